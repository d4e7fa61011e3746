"""Run a flow as a command: options, exit codes and a table of results."""

import argparse
import atexit
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from perennial.base.errors import SIGNALS, Interrupted, PerennialError
from perennial.base.retries import TERMINAL_PAUSES_S
from perennial.orchestration.client.owner import require_commit
from perennial.orchestration.engine import decorators, this_run
from perennial.orchestration.guard.one_at_a_time import require_idle
from perennial.orchestration.terminal.view import live_view
from perennial.orchestration.work import dvc_repo
from perennial.orchestration.work.dvc_repo import stages, work_folder
from perennial.orchestration.work.output import ignore_closed_terminal
from perennial.orchestration.work.parameters import check_parameters, pipeline, set_parameters
from perennial.orchestration.work.perennial_command import call_perennial
from perennial.orchestration.work.stage_failures import StageFailed

_signals: list[int] = []  # that this process received, oldest first


def run(flow: Callable[..., Mapping[str, str]]) -> None:
    """Run a flow in this process; exit with the code of the stage that failed, or 75 after a signal."""
    parser = _parser(flow)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="write a value into params.yaml first; repeatable, or several in one text as in a shell",
    )
    values = _values(parser)
    with _exit_codes():
        print("checking parameters, pins and stages", file=sys.stderr)  # noqa: T201 - something is shown at once
        check_parameters()
        require_commit(Path.cwd())
        dvc_repo.start()
        if values or not this_run.has_server():
            require_idle(pipeline())  # before anything is written
        with _by_hand():
            if values:
                set_parameters(values)
            with live_view(stages(), work_folder()) as log:
                facts = dict(flow(pipeline=pipeline()))
        table = Table("retrain", Column(overflow="fold"), title_justify="left", show_header=False)
        for name, value in (facts | ({"log": str(log)} if log else {})).items():
            table.add_row(name, value)
        Console().print(table)


def run_plain(flow: Callable[[], object]) -> None:
    """Run a flow that takes no options in this process, with the same exit codes."""
    _parser(flow).parse_args()
    with _exit_codes():
        require_commit(Path.cwd())
        with _by_hand():
            flow()


def _parser(flow: Callable[..., object]) -> argparse.ArgumentParser:
    description, _, _ = (flow.__doc__ or "").partition("\n")
    return argparse.ArgumentParser(
        prog=f"python -m flows.{flow.__name__}",
        description=f"{description} With PREFECT_API_URL, a Prefect server shows the run and its history.",
        epilog="Exit codes: 0 done, 2 invalid parameters, 3 invalid data, 4 model not good enough, "
        "75 interrupted or another run active, 1 anything else.",
    )


@contextmanager
def _exit_codes() -> Iterator[None]:
    """End this process as the flow in the block ends: with an exit code, and one message if it is not 0."""
    started, complete = time.time(), threading.Event()
    atexit.register(_skip_teardown, complete)  # registered first, so called last
    _signals.clear()
    ignore_closed_terminal()
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        yield
    except (PerennialError, this_run.Stopped, StageFailed) as error:
        print(getattr(error, "message", error), file=sys.stderr)  # noqa: T201 - the log may show it further up
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print(_interruption(started), file=sys.stderr)  # noqa: T201 - as above
        raise SystemExit(Interrupted.exit_code) from None
    complete.set()


def _values(parser: argparse.ArgumentParser) -> list[str]:
    """The values of `--set`; another option ends this process with how to set the key that it means."""
    given, unknown = parser.parse_known_args()
    if unknown:
        meant = call_perennial("config", *unknown).log[-1:]
        hint = [line.partition(". A key ")[2] for line in meant if ". A key " in line]
        how = f"; a key {hint[0]}" if hint else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{how}")
    return list(given.set)


@contextmanager
def _by_hand() -> Iterator[None]:
    """Run what is in the block on the server, if one is set; it must answer before anything starts."""
    if not this_run.has_server():
        decorators.show_log()
        yield
        return
    from prefect import tags

    from perennial.orchestration.client.prefect_server import connect
    from perennial.orchestration.server.server_runs import tags_by_hand

    with connect(pauses=TERMINAL_PAUSES_S) as server:
        server.reach()
    with tags(*tags_by_hand()):
        yield


def _skip_teardown(complete: threading.Event) -> None:
    """After a complete run, exit without the teardown of modules, which costs half a second of CPU."""
    if complete.is_set():
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(0)


def _interruption(started: float) -> str:
    """The stage's message about the signal if it failed after `started`, else a general message."""
    file = work_folder() / "failure.json"  # of the stage
    with suppress(OSError, ValueError):
        failure = json.loads(file.read_text(encoding="utf-8"))
        if file.stat().st_mtime > started and failure["code"] == Interrupted.exit_code:
            message = str(failure["message"])
            # The stage got SIGTERM from this process, which passes Ctrl-C on as such.
            return message.replace("SIGTERM", "Ctrl-C", 1) if _signals[:1] == [signal.SIGINT] else message
    return "interrupted; no half-written output was left; run it again to resume"


class _Interrupted(KeyboardInterrupt):
    """After KeyboardInterrupt itself in code from a string (`exec`), Python ends by SIGINT, not with 75."""


def _interrupt(number: int, _frame: object) -> None:
    """Raise KeyboardInterrupt, even if a shell started this process with SIGINT ignored."""
    again = number == signal.SIGHUP and number in _signals  # from the kernel and from the shell
    _signals.append(number)
    if not again:
        raise _Interrupted
