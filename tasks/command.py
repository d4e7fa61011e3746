"""A flow as a command: parameters checked first, the stage's exit code as its own, a table at the end."""

import signal
import sys
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
        perennial("config")
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


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Ends the flow as Ctrl-C does, also where a shell that started it in the background ignores that."""
    raise KeyboardInterrupt
