"""What of a failure reaches the log: the stage's own words, not the way through Prefect's code."""

import logging

from tasks.dvc import StageFailed


def hide_stage_tracebacks() -> None:
    """Makes Prefect's loggers tell a stage's failure in lines; other errors keep their traceback."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logging.getLogger(name).addFilter(_without_traceback)


def _without_traceback(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], StageFailed):
        record.exc_info = None
    return True
