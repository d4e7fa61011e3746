"""`python -m dvc` and `python -m perennial` without the time of their imports, which one process did for all.

Each is a fork of it: a process of its own, with its arguments, folder, environment and files. A signal to the
program that was started does not reach the fork, so a test that kills one starts it with `sys.executable`.
"""

import atexit
import functools
import importlib
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
from pathlib import Path
from typing import NoReturn

IMPORTED = (
    "dvc.cachemgr", "dvc.cli.parser", "dvc.daemon", "dvc.data_cloud", "dvc.repo", "dvc.repo.artifacts",
    "dvc.repo.datasets", "dvc.repo.index", "dvc.repo.metrics", "dvc.repo.open_repo", "dvc.repo.params",
    "dvc.repo.plots", "dvc.repo.stage", "dvc.scm", "scmrepo.git", "scmrepo.git.backend.dulwich",
    "scmrepo.git.backend.pygit2", "perennial.base.config", "perennial.release.registry.record", "typer.main",
)  # fmt: skip
# Runs without site-packages, so that it starts at once.
CLIENT = """\
import marshal, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect("\\0" + sys.argv[1])
request = marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ)))
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
code = server.recv(1)
os._exit(code[0] if code else 70)
"""
PROGRAM = """\
#!/bin/sh
case "$1 $2" in "-m dvc"|"-m perennial") shift; exec {python} -IS {client} {name} "$@";; esac
exec {python} "$@"
"""


@functools.cache
def python() -> str:
    """The path of a program like `sys.executable`, for the rest of this process."""
    folder = Path(tempfile.mkdtemp(prefix="forks-"))
    program, client, name = folder / "forked", folder / "client.py", f"perennial-{folder.name}"
    client.write_text(CLIENT)
    quoted = {"python": shlex.quote(sys.executable), "client": shlex.quote(str(client)), "name": name}
    program.write_text(PROGRAM.format(**quoted))
    program.chmod(0o755)
    # An empty HOME: libgit2 looks for the user's settings once.
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "support.forks", name, str(program)]
    server = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        server.communicate()  # ends with its input
        shutil.rmtree(folder)

    atexit.register(end)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return str(program)


def serve(name: str, program: str) -> None:
    """Fork for each request, until the standard input ends."""
    for module in IMPORTED:
        importlib.import_module(module)
    assert threading.active_count() == 1, "a fork copies no threads"
    assert "perennial.base.runtime.process" not in sys.modules, (
        "it keeps the parent of the process that imports it"
    )
    sys.executable = program
    requests = socket.socket(socket.AF_UNIX)
    requests.bind(f"\0{name}")
    requests.listen(64)
    print("ready", flush=True)
    running = set()
    while True:
        ready, _, _ = select.select([requests, sys.stdin], [], [])
        if sys.stdin in ready:
            return
        client, _ = requests.accept()
        if child := os.fork():
            running.add(child)
        else:
            requests.close()
            _answer(client)
        client.close()
        running -= {each for each in running if os.waitpid(each, os.WNOHANG)[0]}


def _answer(client: socket.socket) -> None:
    """Become the program that a client asked for; its exit code is the answer."""
    header, opened, _, _ = socket.recv_fds(client, 8, 3)
    size, request = int.from_bytes(header, "big"), b""
    while len(request) < size:
        request += client.recv(size - len(request))
    (module, *arguments), folder, environment = marshal.loads(request)
    for number, descriptor in enumerate(opened):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.path[0] = [module, *arguments], folder
    leave = os._exit

    def end(code: int) -> NoReturn:
        client.send(bytes([code & 255]))
        leave(code & 255)

    os._exit = end  # a program may end so, too
    end(_run(module))


def _run(module: str) -> int:
    """The exit code of a module that is run, as Python gives it."""
    code: object = 0
    try:
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
