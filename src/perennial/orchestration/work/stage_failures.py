"""How a stage or a command fails, and how a log shows it."""

import logging

from perennial.base.errors import ERRORS, Failure

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


def _whole_message(record: logging.LogRecord) -> bool:
    """Log all lines of a failed stage, once; the state of the flow run shows only the first."""
    # In a deployed run, Prefect logs the exception of a flow twice: where it is raised, and in its engine.
    failed = record.exc_info[1] if record.exc_info else None
    if isinstance(failed, StageFailed):
        if failed.logged:
            return False
        failed.logged = True
        record.msg, record.args = failed.message, ()
    return _without_traceback(record)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Drop the traceback through Prefect's code if a stage failed; other errors keep theirs."""
    if record.exc_info and isinstance(record.exc_info[1], StageFailed):
        record.exc_info = None
    return True


logging.getLogger("prefect.flow_runs").addFilter(_whole_message)
logging.getLogger("prefect.task_runs").addFilter(_without_traceback)
