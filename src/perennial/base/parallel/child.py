"""Programs of this package that need TensorFlow and run in a separate process.

Such a program is a module with a function `main`, which takes and returns what JSON can hold.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perennial.base import failures, layout
from perennial.base.errors import ERRORS, Failure, PerennialError, exit_code
from perennial.base.processes import process, tensorflow
from perennial.base.project import source_code

Call = Callable[[dict[str, Any]], Any]


@contextmanager
def started(program: str, log: Path) -> Iterator[Call]:
    """Start a module as a program that imports TensorFlow at once; the block gets a function that calls it."""
    command = [sys.executable, "-m", __name__, program, str(os.getpid())]
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stream
        ) as child,
    ):

        def call(argument: dict[str, Any]) -> Any:
            given = json.dumps({"argument": argument, "environment": _environment()})
            output, _ = child.communicate(given.encode())
            if code := child.returncode:
                why = ", perhaps because memory ran out" if code < 0 else ""
                said = f"the process of {program} ended with code {code}{why}; see {log}"
                raise PerennialError(said, kind=failures.of_code(code))
            source_code.require_unchanged(program)
            return _result(json.loads(output.splitlines()[-1]))

        try:
            yield call
        finally:
            child.kill()


def call(program: str, argument: dict[str, Any], log: Path) -> Any:
    """Start a program, call it once and return its result."""
    with started(program, log) as run:
        return run(argument)


def _environment() -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONPATH": layout.python_path()}


def _result(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        found = next(each for each in ERRORS if each.exit_code == answer["code"])
        raise found(answer["error"], kind=Failure(answer["kind"]))
    return answer["result"]


def _main(program: str, owner: int) -> None:
    """Run a program on the argument from standard input, and print its result or the error that ended it."""
    process.die_with(owner)
    tensorflow.load()
    run = importlib.import_module(program).main
    given = json.loads(sys.stdin.buffer.read())
    os.environ.update(given["environment"])
    try:
        printed: dict[str, object] = {"result": run(given["argument"])}
    except (PerennialError, OSError) as error:
        printed = {"error": str(error), "code": exit_code(error), "kind": failures.kind(error)}
    sys.stdout.write(f"\n{json.dumps(printed)}\n")


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
