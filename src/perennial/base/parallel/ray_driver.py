"""A process that uses a Ray cluster on behalf of this one.

Ray ends a process that uses it, without an exception, if it loses the cluster. That of a command must stay: it
writes down why the stage failed.
"""

import importlib.util
import logging
import logging.handlers
import multiprocessing
import os
import pickle
import queue
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, NoReturn, Self
from urllib.parse import urlsplit

from perennial.base import layout
from perennial.base.errors import SIGNALS, ConfigError, Interrupted, PerennialError
from perennial.base.layout import Project
from perennial.base.parallel import process_pool
from perennial.base.processes import process, programs
from perennial.base.project import source_code

LOCAL = "local"  # RAY_ADDRESS for a Ray on this machine, which is also the default
AUTHENTICATION = "RAY_AUTH_MODE"
CLIENT_PORT = 10001  # of ray://head without a port
CONNECT_S = 5.0
END_S = 20.0  # for processes of a local Ray to end
Kind = Literal["value", "log", "error"]
log = logging.getLogger(__name__)


class Driver:
    """A process that calls a function of this package with its end of a connection, and with arguments."""

    def __init__(self, function: Callable[..., object], *given: object) -> None:
        require_usable()
        self._connection, theirs = multiprocessing.Pipe()
        with theirs, process.signals_held():
            self._program = programs.Program(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env={**os.environ, **_own_token(), "PYTHONPATH": layout.python_path()},
                stdout=programs.DEVNULL,  # where Ray quotes the log of a node that was lost
                stderr=None,
                inherits=[theirs.fileno()],
                grace_s=END_S,
            )
        self.send(sys.path)
        self.send((function, given))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it; it disconnects from the cluster first."""
        self._connection.close()
        self._program.wait(END_S)
        self._program.stop()

    def send(self, value: object) -> None:
        """Send a value to the function."""
        with suppress(BrokenPipeError, ConnectionResetError):  # `receive` says why
            self._connection.send(value)

    def receive(self) -> Any:
        """Return the next value from the function, at the end its result, or raise its error."""
        while True:
            try:
                self._connection.poll(None)
                with process.signals_held():  # not half a message
                    kind, found = self._connection.recv()
            except (EOFError, ConnectionResetError):
                raise Interrupted(f"the Ray cluster failed: {self._end()}; run it again") from None
            if kind == "value":
                return found
            if kind == "error":
                raise found
            logging.getLogger(found.name).handle(found)

    def _end(self) -> str:
        code = self._program.wait(END_S) or 0
        by = signal.Signals(-code).name if code < 0 else f"code {code}"
        return f"the process that uses it was ended by {by}"


class Caller:
    """The other end, in the process that was started: for values, and for log messages of all threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, value: object) -> None:
        """Send a value to the process that started this one."""
        self.pass_on("value", value)

    def receive(self) -> Any:
        """Return the next value from there; raises EOFError once there are no more."""
        return self._connection.recv()

    def pass_on(self, kind: Kind, value: object) -> None:
        """Send something of another kind."""
        with self._lock, suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send((kind, value))

    def end(self, kind: Kind, value: object) -> NoReturn:
        """Send the last message, and end this process at once: Ray would wait for a lost cluster."""
        self.pass_on(kind, value)
        os._exit(0)

    def put_nowait(self, record: logging.LogRecord) -> None:
        """Send a log message, as `logging.handlers.QueueHandler` calls it."""
        self.pass_on("log", record)


def map_on_ray(function: Callable[[Any, Any], Any], shared: Any, tasks: Iterable[Any]) -> Iterator[Any]:
    """`map_ordered` on the cluster of RAY_ADDRESS, whose machines share our folders, or on a local one."""
    with Driver(_map, function, shared) as driver:
        most = driver.receive()
        source_code.require_unchanged()  # Ray has packed it
        yield from process_pool.ordered(tasks, driver.send, lambda _: driver.receive(), most)


def _map(caller: Caller, function: Callable[[Any, Any], Any], shared: Any) -> None:
    """Send the result of each task that the caller sends, in that order."""
    with connected() as ray:
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

        def submit() -> None:
            with suppress(EOFError, OSError):
                while True:
                    waiting.put(remote.remote(given, caller.receive()))
            waiting.put(None)

        try:
            remote, given = ray.remote(function), ray.put(shared)
            caller.send(process_pool.WAITING * max(int(ray.cluster_resources().get("CPU", 1)), 1))
            threading.Thread(target=submit, daemon=True).start()
            while (result := waiting.get()) is not None:
                caller.send(ray.get(result))
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError) as error:
            raise PerennialError(
                f"a process of Ray was killed at every try: {one_line(error)}; nothing was changed"
            ) from error


def require_usable() -> None:
    """Check that Ray is installed, and that something listens at the address of its cluster."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("compute.engine: ray needs Ray, which is not installed: `perennial add ray`")
    address = _address()
    if address == LOCAL and " " in sys.executable:
        raise ConfigError(
            f"Ray cannot start processes of {sys.executable}, whose path contains a space; "
            "move the project, or set compute.engine to processes"
        )
    if address not in {LOCAL, "auto"}:
        _require_listening(address)


@contextmanager
def connected() -> Iterator[Any]:
    """Give the ray module to the block, connected to its cluster.

    If the cluster is lost, Ray ends this process after a minute.
    """
    import ray  # noqa: PLC0415 - an extra

    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        own = Project.find().root / source_code.COMPONENTS
        packages = [str(Path(__file__).parents[2]), *([str(own)] if own.is_dir() else [])]
        ray.init(
            _address(),  # without it, Ray would take any cluster that it finds on this machine
            runtime_env={"py_modules": packages},
            log_to_driver=False,
            include_dashboard=False,
            logging_level=logging.WARNING,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"the Ray cluster of RAY_ADDRESS={_address()} cannot be reached: {error}") from error
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # Ray replaces that of SIGTERM
                signal.signal(number, handler)
    try:
        yield ray
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise Interrupted(f"the Ray cluster failed: {one_line(error)}; run it again") from error
    finally:
        ray.shutdown()


def one_line(error: Exception) -> str:
    """The message of an error of Ray, which has many lines."""
    return " ".join(str(error).split())


def _own_token() -> dict[str, str]:
    """The variables for a local Ray, which would leave its token in ~/.ray, where later clusters take it."""
    if _address() != LOCAL or AUTHENTICATION in os.environ:
        return {}
    return {AUTHENTICATION: "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _address() -> str:
    return os.environ.get("RAY_ADDRESS") or LOCAL


def _require_listening(address: str) -> None:
    """Check that something listens at an address; Ray itself would try for minutes."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port or (CLIENT_PORT if parts.scheme == "ray" else None)
    except ValueError:
        host, port = None, None
    if host is None or port is None:
        raise ConfigError(f"RAY_ADDRESS must be host:port, ray://host:port, auto or local, got {address}")
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"the Ray cluster of RAY_ADDRESS={address} cannot be reached: {error.strerror or error}; "
            "nothing was changed; start it or correct the address, or set compute.engine to processes"
        ) from error


def _main(descriptor: int) -> None:
    """Call the function that comes through a connection, and send its result or its error."""
    caller = Caller(Connection(descriptor))
    sys.path[:] = caller.receive()
    logging.root.addHandler(logging.handlers.QueueHandler(caller))  # type: ignore[arg-type]
    logging.getLogger("perennial").setLevel(logging.INFO)
    kind: Kind = "value"
    try:
        with process.interruptible():
            function, given = caller.receive()
            found = function(caller, *given)
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001 - the caller raises it
        kind, found = "error", _sendable(error)
    caller.end(kind, found)


def _sendable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
    except Exception:  # noqa: BLE001 - whatever classes of others raise
        return PerennialError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    _main(int(sys.argv[1]))
