"""Send to the sinks from a process of its own, which cannot fail or delay a stage whatever a sink does."""

import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from perennial.base import config as configuration
from perennial.base import layout, logs
from perennial.base.config import Config
from perennial.base.errors import PerennialError, printable, redacted
from perennial.base.processes import process
from perennial.base.processes.programs import Program, TimedOut
from perennial.model.training.training_history import FINISHED
from perennial.release.registry import run_records
from perennial.reports.sinks import content
from perennial.reports.sinks.content import Content

log = logging.getLogger(__name__)
CLOCK_S = 0.1  # by which times of files may be earlier than the clock
PERIOD_S = 15.0  # between two looks at a training that runs
LAST_LOOK_S = 10.0  # to send the last points of a training; what is left is sent with its results
KILLED_S = 30.0  # the same after a kill of the training, when nobody waits
RESULTS_S = 600.0  # to send all results, the export among them
LOG = "sinks.log"  # in paths.work
SHOWN = 300  # characters of a sink's error


class Sink(Protocol):
    """A program that takes trainings."""

    def send(self, content: Content, status: str) -> str:
        """Send what it does not have yet; returns where it is shown."""

    def close(self) -> None:
        """Send what is left."""


@dataclass(frozen=True)
class Sent:
    """What became of a sink: where the training is shown, or why it is not."""

    sink: str
    place: str | None
    problem: str | None


@contextmanager
def following(params: Path) -> Iterator[None]:
    """Send the curves of the training that runs in the block, while it runs."""
    with _started("follow", params) as program:
        try:
            yield
        finally:
            sent = _answer(program, params, LAST_LOOK_S)
            if run_records.RUN not in os.environ:  # else the run tells it, once, when it sends the results
                for problem in problems(sent):
                    log.warning("%s", problem)


def send(params: Path) -> list[Sent]:
    """Send the results of this checkout to all sinks, within ten minutes."""
    with _started("send", params) as program:
        return _answer(program, params, RESULTS_S)


def problems(sent: list[Sent]) -> Iterator[str]:
    """What to tell about sinks that did not take the results."""
    for each in sent:
        if each.problem is not None:
            yield f"{each.sink} lacks results: {each.problem}; `perennial report --send` sends them again"


def _answer(program: Program, params: Path, limit_s: float) -> list[Sent]:
    """What the process says that became of each sink, when there is nothing more to send."""
    config = configuration.load(params)
    try:
        said = program.finish(limit_s=limit_s, grace_s=0).stdout.splitlines()
        return [Sent(**each) for each in json.loads(said[-1])]
    except TimedOut as error:
        why = f"it took more than {error.limit_s:g} s"
    except (ValueError, LookupError, TypeError):
        why = f"its process failed; see {config.paths.work / LOG}"
    return [Sent(name, None, why) for name in config.logging.sinks]


@contextmanager
def _started(what: str, params: Path) -> Iterator[Program]:
    """Start the process of the sinks: the end of its input is that of the training, also of a killed one."""
    work = configuration.load(params).paths.work
    work.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __name__, what, str(params), str(time.time() - CLOCK_S)]
    variables = {**os.environ, "PYTHONPATH": layout.python_path()}
    with (work / LOG).open("ab") as stream, ExitStack() as stack:
        with process.signals_held():
            program = Program(command, env=variables, feed=True, stderr=stream, grace_s=KILLED_S)
            stack.enter_context(program)
        yield program


class _Soft:
    """All sinks of a process; the errors of one are kept, and it is tried again."""

    def __init__(self, config: Config) -> None:
        self._config, self._open = config, dict[str, Sink]()
        self.sent: dict[str, Sent] = {}

    def send(self, found: Content, status: str) -> None:
        for name in self._config.logging.sinks:
            try:
                place = self._sink(name).send(found, status)
                self.sent[name] = Sent(name, redacted(place), None)
            except Exception as error:  # noqa: BLE001 - of any package
                self._failed(name, error)

    def failed(self) -> bool:
        """Whether a sink failed at the last try."""
        return any(each.problem for each in self.sent.values())

    def close(self) -> None:
        for name, sink in self._open.items():
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 - of any package
                self._failed(name, error)

    def _failed(self, name: str, error: Exception) -> None:
        log.warning("%s failed", name, exc_info=not isinstance(error, PerennialError))
        text = printable(redacted(" ".join(str(error).split())))[:SHOWN]
        self.sent[name] = Sent(name, None, text or type(error).__name__)

    def _sink(self, name: str) -> Sink:
        if name not in self._open:
            try:
                module: Any = importlib.import_module(f"perennial.reports.sinks.{name}_sink")
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("perennial."):  # the module of the sink has another name
                    raise
                raise PerennialError(f"{error.name} is not installed: `perennial add {name}`") from error
            self._open[name] = module.opened(self._config)
        return self._open[name]


def _follow(config: Config, sinks: _Soft, ended: threading.Event, began: float) -> None:
    """Send the curves of the training that has just started, until `ended`."""
    last = False
    while not last:
        last = ended.wait(PERIOD_S)
        folder = content.newest(config, began)
        if folder is None or (last and sinks.failed()):
            continue
        finished = (folder / FINISHED).exists()
        status = "FINISHED" if finished else "KILLED" if last else "RUNNING"
        sinks.send(content.of_training(config, folder), status)


def _main(what: str, params: Path, began: float) -> None:
    logs.to_stderr("%(asctime)s %(name)s: %(message)s", logging.WARNING)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a killed training's last points are sent in the grace
    config, ended = configuration.load(params), threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        ended.set()

    answer = os.dup(1)
    os.dup2(2, 1)  # packages print what they did
    if what == "follow":
        threading.Thread(target=wait, daemon=True).start()
    sinks = _Soft(config)
    try:
        if what == "follow":
            _follow(config, sinks, ended, began)
        else:
            sinks.send(content.of_results(config), "FINISHED")
        sinks.close()
    except PerennialError as error:
        sinks.sent = {name: Sent(name, None, redacted(str(error))) for name in config.logging.sinks}
    with suppress(OSError):  # its reader may be gone
        os.write(answer, json.dumps([asdict(each) for each in sinks.sent.values()]).encode() + b"\n")


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
