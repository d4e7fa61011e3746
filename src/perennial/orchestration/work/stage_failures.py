"""How a stage or a command fails, and how a log shows it."""

import logging
import signal

from perennial.base.errors import ERRORS, Failure

FLOWS = "prefect.flow_runs"
# Of a failure with a message. Code 1 without any is an error that nothing expects: `failures.of_code`.
KINDS = {error.exit_code: error.kind for error in ERRORS}


class StageFailed(Exception):
    """A stage or a command failed, or DVC could not run it; `exit_code` is its own, as in `base/errors.py`.

    `perennial run --watch` and infra/automations.yaml find the exit code in the message, so its form is fixed.
    `kind`: what it wrote about its failure, else what its exit code stands for.
    """

    def __init__(self, stage: str, exit_code: int, message: str, kind: Failure | None = None) -> None:
        first_line, _, _ = message.partition("\n")
        super().__init__(f"{stage} ended with exit code {exit_code}: {first_line}")
        self.stage, self.exit_code, self.message = stage, exit_code, message
        self.kind = kind or KINDS.get(exit_code, Failure.OUTSIDE)
        self.logged = False  # by the flow


def of_signal(code: int) -> str:
    """The message of a process that a signal ended, else empty; `code`: -N, or 128 + N where a shell waited."""
    number = -code if code < 0 else code - 128
    if number not in set(signal.Signals):
        return ""
    memory = "; if memory ran out, `dmesg` says so" if number == signal.SIGKILL else ""
    return f"{signal.Signals(number).name} ended it{memory}"


def _shown(record: logging.LogRecord) -> bool:
    """Drop the traceback of a failed stage through Prefect's code; the flow logs its whole message, once."""
    # In a deployed run, Prefect logs the exception of a flow twice: where it is raised, and in its engine.
    failed = record.exc_info[1] if record.exc_info else None
    if isinstance(failed, StageFailed):
        record.exc_info = None
        if record.name == FLOWS:
            logged, failed.logged = failed.logged, True
            record.msg, record.args = failed.message, ()
            return not logged
    return True


for each in (FLOWS, "prefect.task_runs"):
    logging.getLogger(each).addFilter(_shown)
