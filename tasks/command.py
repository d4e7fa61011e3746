"""A flow as a command: parameters checked first, the stage's exit code as its own, a table at the end."""

import signal
import sys
from functools import cache
from typing import NoReturn

from prefect import Flow
from rich.console import Console
from rich.table import Table

from tasks.dvc import StageFailed
from tasks.summary import perennial


def run(flow: Flow[[], dict[str, str]]) -> None:
    """Runs a flow in this process and ends it with the exit code of the stage that failed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    try:
        check_parameters()
        facts = flow()
    except StageFailed as error:
        print(error.message, file=sys.stderr)  # noqa: T201 - the last word belongs on the terminal
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        raise SystemExit(75) from None
    table = Table("retrain", "", title_justify="left", show_header=False)
    for name, value in facts.items():
        table.add_row(name, value)
    Console().print(table)


@cache  # what `run` starts was checked before its server was started, and is the same process
def check_parameters() -> None:
    """Refuses wrong parameters, with all that is wrong in the message.

    Raises:
        StageFailed: with the exit code of wrong parameters.
    """
    perennial("config")


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Ends the flow as Ctrl-C does, also where a shell that started it in the background ignores that."""
    raise KeyboardInterrupt
