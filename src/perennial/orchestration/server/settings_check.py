"""Prefect's settings, checked before Prefect uses them."""

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perennial.base import files


def require_valid_settings() -> None:
    """End this process with exit code 2 and one line if Prefect refuses the value of a setting.

    `prefect_server.require_usable` checks those of a client without Prefect, whose own import takes seconds.
    """
    try:
        with files.stderr_into(Path(os.devnull)):  # its plugins print the same error
            found = importlib.import_module("prefect.settings").get_current_settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = _variable(error.title, str(first["loc"][0]) if first["loc"] else "")
        rule = first["msg"].replace("Input should", "must").removeprefix("Value error, ")
        sys.stderr.write(f"{name} {rule}; correct or unset it; nothing was started\n")
        raise SystemExit(2) from None

    if not found.api.url:
        _require_writable(found.home)


def _require_writable(home: Path) -> None:
    """End this process with exit code 2 and one line if Prefect's temporary server cannot write its files."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=home).close()
    except OSError as error:
        sys.stderr.write(
            f"Prefect's folder {home} cannot be written: {error.strerror}; set PREFECT_HOME to another; "
            "nothing was started\n"
        )
        raise SystemExit(2) from None


def _variable(section: str, key: str) -> str:
    """The variable of a key in a section of Prefect's settings, which may have several names."""
    sections: list[Any] = [importlib.import_module("prefect.settings.base").PrefectBaseSettings]
    for each in sections:
        sections += each.__subclasses__()
    for each in sections:
        for name, field in each.model_fields.items() if each.__name__ == section else ():
            names = [name, *map(str, getattr(field.validation_alias, "choices", ()))]
            if key in names:
                given = [alias.upper() for alias in names if alias.upper() in os.environ]
                return given[0] if given else f"{each.model_config.get('env_prefix')}{name}".upper()
    return f"Prefect's setting {key}"
