"""`dvc` and `perennial` without the time of their imports, which one process did for all.

Each is a fork of it: a process of its own, with its arguments, folder, environment and files. A signal to the
program that was started does not reach the fork, which is killed when that program ends; so a test of signals
starts it with `sys.executable`.
"""

import atexit
import fcntl
import functools
import gc
import importlib
import importlib.machinery
import logging
import marshal
import os
import runpy
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from filelock import FileLock

IMPORTED = (
    "dvc.cachemgr", "dvc.cli.parser", "dvc.daemon", "dvc.data_cloud", "dvc.repo", "dvc.repo.artifacts",
    "dvc.repo.datasets", "dvc.repo.index", "dvc.repo.metrics", "dvc.repo.open_repo", "dvc.repo.params",
    "dvc.repo.plots", "dvc.repo.stage", "dvc.scm", "scmrepo.git", "scmrepo.git.backend.dulwich",
    "scmrepo.git.backend.pygit2", "gto.cli", "perennial.base.config", "perennial.release.registry.record",
    "perennial.orchestration.run_setup.flow_run", "prefect.engine", "prefect.flow_engine", "prefect.main",
    "prefect.runner", "typer.main",
)  # fmt: skip
# Runs without site-packages, so that it starts at once.
CLIENT = """\
import marshal, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect("\\0" + sys.argv[1])
request = marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ), os.getppid()))
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
code = server.recv(1)
os._exit(code[0] if code else 70)
"""
PROGRAM = """\
#!/bin/sh
case "$1 $2" in
"-m dvc"|"-m gto.cli"|"-m perennial"|"-m perennial.base.parallel.child"|"-m prefect.engine"|"-m -c"|\\
"-m perennial.project.tune.training_process"|"-m perennial.project.cross_validation.fold"|\\
"-m perennial.reports.sinks.sender"|"-m support."*|"-m tasks."*)
    shift; exec {python} -IS {client} {name} "$@";;
esac
exec {python} "$@"
"""
SHORT = '#!/bin/sh\nexec {python} -IS {client} {name} "${{0##*/}}" "$@"\n'
WORKER = "worker"  # of pytest-xdist, which gives it code; what it starts by `sys.executable` is no fork
# They import what a stage may need, TensorFlow first, and what all processes that run tests import.
STAGES = (
    "perennial.stages.evaluate", "perennial.stages.export", "perennial.stages.train", "boto3",
    "fastapi.testclient", "keras_hub", "optuna", "prefect_kubernetes.worker", "scipy.stats",
    "sklearn.linear_model",
)  # fmt: skip
# The others import these; not the services of Prefect's server, which take their settings when imported.
PROGRAMS = (
    "alembic.command", "docket", "mlflow", "prefect.cli.server", "prefect.server.database",
    "prefect.server.models", "uvicorn",
)  # fmt: skip
FLOWS = ("flows.", "perennial.orchestration.", "prefect", "tasks.")  # modules that run them
PROCESS = "perennial.base.processes.process"
PYTHON = sys.executable  # which tests replace
USED: list[int] = []  # the locks that this process holds as a user
STARTED: list[subprocess.Popen[bytes]] = []


def python() -> str:
    """The path of a program like `sys.executable`, for the rest of this process."""
    return str(_started() / "python")


def run(*arguments: str, folder: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `python` with the code of this checkout, in a folder, with more variables; its output as text."""
    code = os.pathsep.join(str(Path(__file__).parents[2] / each) for each in ("src", ""))
    environment = {**os.environ, "PYTHONPATH": code, **variables}
    command = [python(), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def with_tensorflow() -> str:
    """The same, for what imports TensorFlow; code from a string is given as `-m -c CODE`."""
    return str(_started(*STAGES) / "python")


def worker() -> str:
    """The same, for a process that runs tests."""
    return str(_started(*STAGES) / WORKER)


def end() -> None:
    """Wait for what this process started, so that its time counts as this process's."""
    while USED:
        os.close(USED.pop())
    for server in STARTED:
        server.returncode = None
        with suppress(subprocess.TimeoutExpired):
            server.wait(60)


def path(*, tensorflow: bool = False) -> str:
    """A PATH whose `python`, `dvc`, `perennial` and `prefect` are forks."""
    folders = _started(*STAGES if tensorflow else ()), Path(PYTHON).parent
    return os.pathsep.join((*map(str, folders), os.environ["PATH"]))


@functools.cache
def _started(*modules: str) -> Path:
    """A folder with the programs that are forks of a process which has imported some modules, too.

    All processes of a run of pytest share it. It ends once none of them holds the lock of its users.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir(), f"forks-{run}-{len(modules)}")
    folder.mkdir(mode=0o700, exist_ok=True)
    users = os.open(folder / "users", os.O_CREAT | os.O_RDWR)
    fcntl.flock(users, fcntl.LOCK_SH)
    USED.append(users)
    with FileLock(folder / "starting"):
        if not (folder / "ready").exists():
            _start(folder, modules)
            (folder / "ready").touch()
    return folder


def _start(folder: Path, modules: Sequence[str]) -> None:
    client, name = folder / "client.py", f"perennial-{folder.name}"
    client.write_text(CLIENT)
    quoted = {"python": shlex.quote(PYTHON), "client": shlex.quote(str(client)), "name": name}
    for program in ("python", "dvc", "perennial", "prefect", WORKER):
        text = PROGRAM if program == "python" else SHORT
        (folder / program).write_text(text.format(**quoted))
        (folder / program).chmod(0o755)
    # An empty HOME: libgit2 looks for the user's settings once. The rest is as in a stage.
    environment = {
        **os.environ, "HOME": str(folder), "KERAS_HOME": str(folder), "MPLCONFIGDIR": str(folder),
        "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip
    command = [PYTHON, "-m", "support.forks", name, str(folder / "python"), *modules]
    server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    server.stdout.close()
    server.returncode = 0  # it outlives this process, if another uses it
    STARTED.append(server)


def serve(name: str, program: str, *modules: str) -> None:
    """Fork for each request, until nobody uses it; then remove its folder."""
    gc.disable()
    if modules:
        with importlib.import_module("perennial.base.files").stderr_into(Path(program).with_name("log")):
            importlib.import_module("perennial.base.processes.tensorflow").load()
    for module in (*IMPORTED, *(modules or PROGRAMS)):
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    assert threading.active_count() == 1, "a fork copies no threads"
    sys.executable = program
    requests = socket.socket(socket.AF_UNIX)
    requests.bind(f"\0{name}")
    requests.listen(64)
    print("ready", flush=True)
    running: set[int] = set()
    users = os.open(Path(program).with_name("users"), os.O_RDWR)
    while True:
        if not select.select([requests], [], [], 1)[0]:
            with suppress(BlockingIOError):
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for each in running:
                    os.waitpid(each, 0)
                shutil.rmtree(Path(program).parent)
                return
            continue
        client, _ = requests.accept()
        if child := os.fork():
            running.add(child)
        else:
            requests.close()
            os.close(users)
            _answer(client)
        client.close()
        running -= {each for each in running if os.waitpid(each, os.WNOHANG)[0]}


def _request(client: socket.socket) -> tuple[str, int]:
    """Take arguments, files, folder and environment of a client's program; its module, and its parent."""
    header, opened, _, _ = socket.recv_fds(client, 8, 3)
    size, request = int.from_bytes(header, "big"), b""
    while len(request) < size:
        request += client.recv(size - len(request))
    (module, *arguments), folder, environment, parent = marshal.loads(request)
    for number, descriptor in enumerate(opened):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    sys.path[:] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *sys.path[1:]]
    return module, parent


def _answer(client: socket.socket) -> None:
    """Become the program that a client asked for; its exit code is the answer."""
    module, parent = _request(client)
    if module == WORKER:
        module, sys.executable, sys.argv = "-c", PYTHON, ["-c", sys.argv[-1]]
    else:
        os.getppid = lambda: parent  # of the program that was started
    _own_code()
    code = module if module != "-c" else sys.argv[1]
    runs = code.startswith(FLOWS) or "from prefect" in code
    if runs or "PREFECT_API_URL" in os.environ:
        sys.modules["prefect.context"].refresh_global_settings_context()
    if runs:
        sys.modules["prefect.logging.configuration"].setup_logging()
    else:  # another program has no log of Prefect's
        logging.root.handlers.clear()
        logging.root.setLevel(logging.WARNING)
    leave, become, own = os._exit, os.execve, os.getpid()

    def end(code: int) -> NoReturn:
        if os.getpid() == own:  # and not a fork of it
            client.send(bytes([code & 255]))
        leave(code & 255)

    def execute(program: object, command: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
        if str(program) != sys.executable:
            become(program, command, variables)  # type: ignore[arg-type]
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = ["", f"perennial-{Path(sys.executable).parent.name}", *command[2:]]
        exec(CLIENT, {})  # ends with the code of a further fork
        raise AssertionError

    if sys.executable != PYTHON:
        os._exit, os.execve = end, execute  # a program may end so, too
    # The signal that the client has ended; it kills by default.
    fcntl.fcntl(client, fcntl.F_SETOWN, own)
    fcntl.fcntl(client, fcntl.F_SETFL, fcntl.fcntl(client, fcntl.F_GETFL) | os.O_ASYNC)
    end(_run(module))


def _own_code() -> None:
    """Forget the code of this project if PYTHONPATH leads to that of another checkout."""
    found, loaded = importlib.machinery.PathFinder.find_spec("perennial"), sys.modules["perennial"].__file__
    if found is not None and found.origin != loaded:
        for name in [each for each in sys.modules if each.partition(".")[0] in {"perennial", "support"}]:
            del sys.modules[name]
    elif PROCESS in sys.modules:  # it keeps the parent of the process that imports it
        sys.modules[PROCESS].PARENT = os.getppid()


def _run(module: str) -> int:
    """The exit code of a module that is run, as Python gives it."""
    code: object = 0
    if "." in module:
        sys.modules.pop(module, None)  # which another module had imported
    try:
        if module == "-c":
            exec(sys.argv.pop(1), {"__name__": "__main__"})
        else:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as at the end of a program
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if isinstance(code, str):
        os.write(2, f"{code}\n".encode())
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve(*sys.argv[1:])
