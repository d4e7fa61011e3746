"""Programs of this package that need TensorFlow and run in a separate process.

Such a program is a module with a function `main`, which takes and returns what JSON can hold.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from perennial.base import failures, layout
from perennial.base.errors import ERRORS, Failure, PerennialError, exit_code
from perennial.base.processes import process, programs, tensorflow
from perennial.base.project import source_code

Call = Callable[[dict[str, Any]], Any]


@contextmanager
def started(program: str, log: Path) -> Iterator[Call]:
    """Start a module as a program that imports TensorFlow at once; the block gets a function that calls it."""
    command = [sys.executable, "-m", __name__, program]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as stream, ExitStack() as stack:
        with process.signals_held():
            child = stack.enter_context(programs.Program(command, env=_environment(), feed=True, stderr=stream))

        def call(argument: dict[str, Any]) -> Any:
            done = child.finish(request(argument), limit_s=None)
            return result(program, done.code, done.stdout, log)

        yield call


def call(program: str, argument: dict[str, Any], log: Path) -> Any:
    """Start a program, call it once and return its result."""
    with started(program, log) as run:
        return run(argument)


def request(argument: dict[str, Any]) -> bytes:
    """What the process of a program reads: its argument, and the variables that it works with."""
    return json.dumps({"argument": argument, "environment": _environment()}).encode()


def result(program: str, code: int, output: bytes, log: Path) -> Any:
    """The result of a program that ended with this code and printed this; raises its error."""
    if code:
        why = ", perhaps because memory ran out" if code < 0 else ""
        said = f"the process of {program} ended with code {code}{why}; see {log}"
        raise PerennialError(said, kind=failures.of_code(code))
    source_code.require_unchanged(program)
    answer = json.loads(output.splitlines()[-1])
    if "error" in answer:
        found = next(each for each in ERRORS if each.exit_code == answer["code"])
        raise found(answer["error"], kind=Failure(answer["kind"]))
    return answer["result"]


def answer(run: Callable[[Any], Any], given: bytes) -> bytes:
    """Run a program on its request; returns what it prints: the result, or the error that ended it."""
    asked = json.loads(given)
    os.environ.update(asked["environment"])
    try:
        printed: dict[str, object] = {"result": run(asked["argument"])}
    except (PerennialError, OSError) as error:
        printed = {"error": str(error), "code": exit_code(error), "kind": failures.kind(error)}
    return f"\n{json.dumps(printed)}\n".encode()


def _environment() -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONPATH": layout.python_path()}


def _main(program: str) -> None:
    """Run a program on the request from standard input."""
    tensorflow.load()
    run = importlib.import_module(program).main
    sys.stdout.write(answer(run, sys.stdin.buffer.read()).decode())


if __name__ == "__main__":
    _main(sys.argv[1])
