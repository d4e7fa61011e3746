"""The promoted model to where it is used; called beside the pipeline, never part of it."""

import logging
import time
from pathlib import Path
from typing import Any

from perennial import files, published
from perennial.config import Config
from perennial.config.release import publish_folder
from perennial.config.types import shown
from perennial.errors import ConfigError, DataError, QualityError
from perennial.published import Published

log = logging.getLogger(__name__)


def publish(
    config: Config, *, to: str | None = None, rollback: bool = False, version: int | None = None
) -> Published:
    """Makes the export the current version of a folder, by default of publish.url; or goes back to a version.

    Raises:
        ConfigError: there is no such folder to publish to.
        DataError: there is no export, decision or version, or it is not what it was made as.
        QualityError: the decision is not to promote, or about another model.
    """
    started, folder = time.monotonic(), _folder(config, to)
    if rollback:
        return published.roll_back(folder, version)
    if version is not None:
        raise ConfigError(f"version {version} can only be gone back to; add --rollback, or leave it out")
    wanted, decision = _promoted(config)
    done = published.add(folder, config.paths.export, wanted, decision)
    if done.moved:
        log.info("published as version %d in %.1f s", done.version, time.monotonic() - started)
    return done


def _folder(config: Config, to: str | None) -> Path:
    chosen = config.publish.url if to is None else to
    if chosen is None:
        raise ConfigError("there is no folder to publish to; name one with --to or publish.url")
    try:
        return publish_folder(chosen, config.paths)
    except ValueError as error:
        raise ConfigError(f"--to {error}, got {shown(chosen)}") from error


def _promoted(config: Config) -> tuple[dict[str, str], dict[str, Any]]:
    """The digests of the export's files, and the decision to promote this very export."""
    export, file = config.paths.export, config.paths.decision
    for path, stage in ((export, "export"), (file, "gate")):
        if not path.exists():
            raise DataError(f"{path} does not exist; `dvc repro {stage}` makes it; nothing was published")
    wanted = published.require_sound(export)
    decision: dict[str, Any] = files.read_json(file)
    model = files.read_json(export / published.MODEL)
    try:
        promote, candidate = decision["promote"], decision["candidate"]
        judged = (candidate["model"], candidate["data"])
    except KeyError as error:
        raise DataError(
            f"{file} has no {error.args[0]}; nothing was published; `dvc repro gate` makes or restores it"
        ) from error
    exported = (model["weights_sha256"], model["data"])
    if judged != exported:
        raise QualityError(
            f"{file} is about the model {judged[0]} and the data {judged[1]}, but {export} holds {exported[0]} "
            f"of {exported[1]}; nothing was published; run `dvc repro gate`"
        )
    if not promote:
        raise QualityError(f"{file} rejects the model: {'; '.join(decision['reasons'])}; nothing was published")
    return wanted, decision
