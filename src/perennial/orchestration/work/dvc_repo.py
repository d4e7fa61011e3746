"""What a flow asks of DVC, which alone decides what is stale and starts every stage.

One process of a run has imported DVC, which takes half a second, and carries out the requests one by one.
"""

import atexit
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from perennial.base import documents
from perennial.base.dvc import dvc_program, repro
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import ConfigError, Failure
from perennial.base.processes.programs import STDOUT, Program
from perennial.orchestration.engine import this_run
from perennial.orchestration.work.stage_failures import StageFailed, of_signal

Result = Literal["ran", "restored", "up to date"]
# Of the steps of a run so far, by name; each task adds its own, which orders the run graph.
Results = dict[str, str]
Lines = Callable[[str], None]  # takes each line of an output
MODULE = "perennial.orchestration.work.dvc_requests"


def reproduce(stage: str, log: Lines) -> Result:
    """Run a stage if DVC finds it stale, and pass each line of its output to `log`."""
    # No process of the stage is left when this returns or raises. After an interruption it has time to save.
    result: Result = _ask("reproduce", stage, log)
    return result


def stale() -> set[str]:
    """The stages that DVC finds stale now, checked all at once."""
    return set(_ask("stale", "dvc status", this_run.log().info))


def restore(*stages: str) -> None:
    """Restore the outputs of stages from DVC's cache, or else from its remote."""
    for how in ("checkout", "pull"):
        try:
            dvc_program.run(how, *stages, variables=stage_environment())
        except DvcError as error:
            message = str(error)
        else:
            return
    raise StageFailed(f"dvc {how}", 1, message)


class DvcProcess:
    """A process that reads requests from a pipe; it writes what the stages write, and the replies."""

    def __init__(self) -> None:
        reader, self._requests = os.pipe()
        command = [sys.executable, "-m", MODULE, str(reader)]
        self._program = Program(
            command,
            env=stage_environment(),
            stderr=STDOUT,
            inherits=[reader],
            to=self._take,
            grace_s=repro.GRACE_S,
        )
        os.close(reader)
        self._mark = secrets.token_hex()  # begins a reply; what a stage writes has none
        self._reply = ""
        self._log: Lines = lambda line: None  # noqa: ARG005 - between two requests

    def ask(self, request: Mapping[str, Any], log: Lines) -> Any:
        """Send a request and wait for the reply; None if the process ended before."""
        self._log, self._reply = log, ""
        with repro.stopping(self._program), suppress(BrokenPipeError):
            os.write(self._requests, json.dumps({**request, "mark": self._mark}).encode() + b"\n")
            self._program.wait(until=lambda: bool(self._reply))
        return json.loads(self._reply or "null")

    def _take(self, line: str) -> None:
        text, _, reply = line.partition(self._mark)
        self._reply = self._reply or reply
        if text := text.strip():
            self._log(text)

    def end(self) -> int:
        """End the process with all that it started; returns its exit code."""
        os.close(self._requests)
        self._program.stop()
        return self._program.poll() or 0


_process: list[DvcProcess] = []


def start() -> DvcProcess:
    """Start the process of this run, which imports DVC while this one goes on, if there is none."""
    if not _process:
        _process.append(DvcProcess())
        atexit.register(end)  # the last one registered is called first, before a flow skips its teardown
    return _process[0]


def end() -> None:
    """End the process of this run, if there is one."""
    while _process:
        _process.pop().end()


def _ask(do: str, stage: str, log: Lines) -> Any:
    """What a function of `dvc_requests` returns; a failure there is raised here."""
    work, variables, lines = work_folder(), stage_environment(), list[str]()
    request = {"do": do, "stage": stage, "work": str(work), "folder": str(Path.cwd()), "variables": variables}

    def take(line: str) -> None:
        lines[:] = [*lines[1 - repro.KEPT_LINES :], line]
        log(line)

    try:
        reply = start().ask(request, take)
    except BaseException:
        end()
        raise
    if reply is None:
        how = of_signal(code := _process.pop().end()) or f"code {code} ended it"
        raise StageFailed(stage, 1, "\n".join((f"DVC's own process is gone: {how}; run this again", *lines)))
    if failed := reply.get("failure"):
        starts = (n for n, line in enumerate(lines) if line.startswith(f"perennial {stage}: "))
        said = lines[next(starts, len(lines)) :] if failed.get("lines") else []
        message = "\n".join((*said, failed["message"]))
        raise StageFailed(stage, failed["code"], message, Failure(failed.get("kind", Failure.OUTSIDE)))
    return reply["result"]


def parameter(section: str, key: str) -> Any:
    """A parameter of the checkout, unchecked."""
    try:
        return documents.parse_yaml(Path("params.yaml").read_bytes())[section][key]
    except (ValueError, OSError, LookupError, TypeError) as error:
        text = f"params.yaml has no {section}.{key} or cannot be read, so it changed while this ran; put it "
        text += "back, and run this again: finished stages are not repeated"
        raise StageFailed("params.yaml", ConfigError.exit_code, text) from error


def stages() -> list[str]:
    """The names of the stages, in their order."""
    return list(documents.parse_yaml(Path("dvc.yaml").read_bytes())["stages"])


def work_folder() -> Path:
    """The folder for files that outlive a run and are not versioned."""
    return Path(parameter("paths", "work"))


def stage_environment() -> dict[str, str]:
    """The variables of a stage or command that a flow starts in its checkout."""
    return {**repro.environment(Path(sys.executable), Path.cwd()), "PERENNIAL_RUN": this_run.run_id() or ""}
