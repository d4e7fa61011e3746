"""The run that this process carries out: Prefect's where a server is set, else a local one."""

import importlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from perennial.base import files
from perennial.base.errors import ConfigError
from perennial.orchestration.client import settings


class Stopped(BaseException):
    """The run ends here, without a failure. Prefect's engine would call an `Exception` one."""

    exit_code = 75


@dataclass(kw_only=True)
class LocalRun:
    """A run without a server, and its task at work."""

    flow: str
    parameters: Mapping[str, Any]
    id: str = field(default_factory=lambda: str(uuid4()))
    start: datetime = field(default_factory=lambda: datetime.now(UTC))
    name: str = ""
    task: str = ""
    tries: int = 1


_runs: list[LocalRun] = []  # of this process, the current one last


@cache
def has_server() -> bool:
    """Whether the environment or Prefect's profile names a server."""
    return settings.read().url is not None


def require_valid_settings(*, server: bool = False) -> None:
    """Exit with 2 and one line if Prefect's import or client would fail, or a needed `server` is not set."""
    try:
        if has_server():
            _require_valid_for_prefect()
        elif server:
            from perennial.orchestration.client.responses import NoServer

            raise NoServer
    except ConfigError as error:
        sys.stderr.write(f"{error}; nothing was started\n")
        raise SystemExit(error.exit_code) from None


def _require_valid_for_prefect() -> None:
    from pydantic import ValidationError

    from perennial.orchestration.client.prefect_server import connect

    with connect():  # it sends nothing
        pass
    if "prefect" not in sys.modules:  # else a worker runs this flow
        sys.stderr.write("importing Prefect, which takes some seconds\n")
    try:
        with files.stderr_into(Path(os.devnull)):  # its plugins print the same error
            importlib.import_module("prefect.settings").get_current_settings()
    except ValidationError as error:
        first = error.errors()[0]
        name, section = str(first["loc"][-1]), re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error.title)
        if not name.lower().startswith("prefect_"):
            name = f"PREFECT_{section.removesuffix('_Settings')}_{name}"
        rule = first["msg"].replace("Input should", "must").removeprefix("Value error, ")
        raise ConfigError(f"{name.upper()} {rule}; correct or unset it") from None


@contextmanager
def local(run: LocalRun, task: str = "") -> Iterator[None]:
    """Let a run be the current one during the block, in which a task may be at work."""
    _runs.append(run)
    run.task, run.tries = task, 1
    try:
        yield
    finally:
        _runs.pop()
        run.task = ""


def local_run() -> LocalRun | None:
    """The current run without a server."""
    return _runs[-1] if _runs else None


def run_id() -> str | None:
    """Its id; None outside a run."""
    own = _runs[-1].id if _runs else None
    return _of_prefect().flow_run.id if has_server() else own


def run_name() -> str:
    """Its name."""
    return str(_of_prefect().flow_run.name) if has_server() else _runs[-1].name


def parameters() -> Mapping[str, Any]:
    """The parameters of its flow."""
    return dict(_of_prefect().flow_run.parameters if has_server() else _runs[-1].parameters)


def start() -> datetime:
    """When it was to start."""
    found: datetime = _of_prefect().flow_run.scheduled_start_time if has_server() else _runs[-1].start
    return found


def deployment() -> str | None:
    """The name of its deployment; None if a person started it."""
    return _of_prefect().deployment.name if has_server() else None


def is_deployed() -> bool:
    """Whether a deployment started it, so that it has a checkout of its own."""
    return has_server() and _of_prefect().deployment.id is not None


def tries() -> int:
    """How often its task at work has been started."""
    own = _runs[-1].tries if _runs else 1
    return int(_of_prefect().task_run.run_count) if has_server() else own


def log() -> logging.Logger | logging.LoggerAdapter[Any]:
    """Its log."""
    if has_server():
        from prefect import get_run_logger

        return get_run_logger()
    return logging.getLogger("perennial.run")


def _of_prefect() -> Any:
    from prefect import runtime  # takes a second and a half

    return runtime


def _name_task(record: logging.LogRecord) -> bool:
    if _runs:
        record.task_name = _runs[-1].task or _runs[-1].flow
    return True


logging.getLogger("perennial.run").addFilter(_name_task)
