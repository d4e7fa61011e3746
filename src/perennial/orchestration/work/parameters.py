"""Parameters of a run, checked before anything starts."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from perennial.base import config, failures
from perennial.base.config import Config
from perennial.base.config.fields import shown
from perennial.base.config.paths import publish_target
from perennial.base.errors import ConfigError, PerennialError, exit_code, redacted
from perennial.base.layout import PARAMS, Project
from perennial.base.project import code_digests, own_components
from perennial.base.stage_state import outputs
from perennial.orchestration.engine import this_run
from perennial.orchestration.work.perennial_command import perennial
from perennial.orchestration.work.stage_failures import StageFailed


def check_parameters(
    overrides: Mapping[str, Any] | None = None,
    *,
    rev: str | None = None,
    pipeline: str | None = None,
    publish_to: str | None = None,
) -> None:
    """Write overrides to params.yaml, and check the parameters in the file, those of the run, and code.yaml.

    Overrides and `rev` are for runs of deployments, each of which has its own checkout.
    """
    if overrides:
        _require_own_checkout("overrides", "`perennial config --set KEY=VALUE` changes params.yaml")
        perennial("config", *(f"--set={key}={json.dumps(value)}" for key, value in overrides.items()))
    if rev:
        _require_own_checkout("rev", "`git switch` chooses the revision")
    expected = _checked(publish_to).record.artifact
    if pipeline not in {None, expected}:
        _refuse(
            f"this run is to retrain {pipeline}, but record.artifact in params.yaml is {expected}; correct the "
            "parameter `pipeline` of the run, or deploy the repository of that model; nothing was started"
        )


def set_parameters(texts: Sequence[str]) -> None:
    """Write values into params.yaml, and check all; a text holds KEY=VALUE pairs, quoted as in a shell."""
    try:
        values = [value for text in texts for value in shlex.split(text)]
    except ValueError as error:
        _refuse(f"--set {' '.join(texts)}: {error}; quote a value with spaces, as in \"'KEY=[a, b]'\"")
    perennial("config", *(f"--set={value}" for value in values))
    sys.stderr.write(f"params.yaml: {', '.join(values)}\n")
    _checked.cache_clear()
    check_parameters()


def pipeline() -> str:
    """The name of the model that this checkout trains."""
    return _checked(None).record.artifact


@cache  # called twice in one process: by the command before anything else, then by the flow
def _checked(publish_to: str | None) -> Config:
    """The parameters, checked in this process, which takes a tenth of a second."""
    try:
        checked, project = config.load(Path(PARAMS)), Project.find()
        outputs.require_outputs(checked.paths)
        own_components.require(checked.model_dump(mode="json", by_alias=True), project.root)
        code_digests.require_all(project.shared("."), checked.paths.work)
        if publish_to is not None:
            publish_target(publish_to, checked.paths, checked.dataset.path)
    except ValueError as error:
        _refuse(f"publish_to {error}, got {shown(publish_to)}")
    except (PerennialError, OSError) as error:
        raise StageFailed("config", exit_code(error), redacted(str(error)), failures.kind(error)) from None
    return checked


def _require_own_checkout(parameter: str, instead: str) -> None:
    if not this_run.is_deployed():
        _refuse(
            f"{parameter}: only runs of a deployment take it, since each has a checkout of its own; "
            f"in this checkout, {instead}; nothing was changed"
        )


def _refuse(message: str) -> NoReturn:
    raise StageFailed("config", ConfigError.exit_code, message)
