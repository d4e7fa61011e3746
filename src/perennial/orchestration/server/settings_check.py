"""Prefect's settings, checked before Prefect uses them."""

import importlib
import os
import re
import sys
from pathlib import Path

from perennial.base import files
from perennial.base.errors import ConfigError
from perennial.orchestration.engine import this_run


def require_valid_settings() -> None:
    """End this process with exit code 2 and one line if Prefect's import, or its client, would fail."""
    try:
        if this_run.has_server():
            _require_valid_for_prefect()
    except ConfigError as error:
        sys.stderr.write(f"{error}; nothing was started\n")
        raise SystemExit(error.exit_code) from None


def _require_valid_for_prefect() -> None:
    from pydantic import ValidationError

    from perennial.orchestration.client.prefect_server import connect

    with connect():  # it sends nothing
        pass
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
