"""Programs of this package that run in a separate process, such as those that need TensorFlow.

Such a program takes one JSON argument and prints one JSON document: its result, or the error that ended it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perennial
from perennial import source_code
from perennial.errors import ERRORS, PerennialError, exit_code
from perennial.runtime import process


def call(program: str, argument: dict[str, Any], log: Path) -> Any:
    """Run a module of this package as a program, whose stderr goes to `log`; returns its result.

    Raises:
        PerennialError: the program's own error, of its class, or the process was killed.
    """
    command = [sys.executable, "-m", program, json.dumps(argument), str(os.getpid())]
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            command,
            env={"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, "PYTHONPATH": python_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stream,
        ) as started,
    ):
        try:
            output, _ = started.communicate()
        finally:
            started.kill()
    if started.returncode:
        raise PerennialError(
            f"the process of {program} ended with code {started.returncode}, perhaps because memory ran out; "
            f"its messages are in {log}"
        )
    source_code.require_unchanged(program)
    answer = json.loads(output.splitlines()[-1])
    if "error" in answer:
        kind = next(each for each in ERRORS if each.exit_code == answer["code"])
        raise kind(answer["error"])
    return answer["result"]


def python_path() -> str:
    """PYTHONPATH for a child process that runs the same code."""
    source = str(Path(perennial.__file__).parents[1])
    return os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])


def answer(run: Callable[[dict[str, Any]], object]) -> None:
    """Run the function of such a program and print its result; end early if the caller's process ends."""
    argument, owner = sys.argv[1:]
    process.die_with(int(owner))
    try:
        printed: dict[str, object] = {"result": run(json.loads(argument))}
    except (PerennialError, OSError) as error:
        printed = {"error": str(error), "code": exit_code(error)}
    sys.stdout.write(f"\n{json.dumps(printed)}\n")
