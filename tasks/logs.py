"""What of a failure reaches the log: the stage's own words, not the way through Prefect's code."""

import logging

from tasks.dvc import StageFailed


def hide_stage_tracebacks() -> None:
    """Makes Prefect's loggers tell a stage's failure in lines; other errors keep their traceback."""
    logging.getLogger("prefect.flow_runs").addFilter(_own_words)
    logging.getLogger("prefect.task_runs").addFilter(_without_traceback)


def _own_words(record: logging.LogRecord) -> bool:
    """The whole message, of which the state of the flow run has the first line."""
    if record.exc_info and isinstance(record.exc_info[1], StageFailed):
        record.msg, record.args = record.exc_info[1].message, ()
    return _without_traceback(record)


def _without_traceback(record: logging.LogRecord) -> bool:
    if record.exc_info and isinstance(record.exc_info[1], StageFailed):
        record.exc_info = None
    return True
