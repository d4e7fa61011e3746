"""Publishing an export that passed the gate, or that a person promoted, to a folder or a bucket."""

import logging
import time
from pathlib import Path

from perennial.base import documents, files
from perennial.base.choices import is_bucket
from perennial.base.config import Config
from perennial.base.config.fields import shown
from perennial.base.config.paths import publish_target
from perennial.base.documents import JsonFile
from perennial.base.dvc import dvc_program
from perennial.base.errors import ConfigError, DataError, QualityError
from perennial.model.evaluation.results import Decision
from perennial.model.export_layout import DESCRIPTION, DIGESTS
from perennial.release.publishing import provenance, publish_to_bucket, publish_to_folder
from perennial.release.publishing.version_layout import CURRENT, AllowedExport, Published
from perennial.release.registry import verdict
from perennial.release.registry.access import open_registry
from perennial.release.registry.current_champion import is_champion, rolled_back

log = logging.getLogger(__name__)


class Exported(JsonFile):
    """The part of an export's description that publishing needs."""

    weights_sha256: str
    data: str


class FileDigests(JsonFile):
    """SHA-256 by path."""

    __pydantic_extra__: dict[str, str]


def publish(
    config: Config, *, to: str | None = None, rollback: bool = False, version: int | None = None
) -> Published:
    """Publish the export to a URL or folder, by default publish.url, or roll back to a version."""
    started, place = time.monotonic(), _target(config, to)
    options, in_bucket = _options(config), is_bucket(place)
    if rollback:
        if in_bucket:
            return publish_to_bucket.roll_back(place, version, options)
        return publish_to_folder.roll_back(place, version)
    if version is not None:
        raise ConfigError(f"version {version} is only for a rollback; add --rollback, or leave it out")
    champion = _is_wanted(config)
    digests, decision = _decided(config)
    if not decision.promote and not champion:
        raise QualityError(
            f"{verdict.sentence(decision)}; nothing was published; "
            "`perennial promote --force NAME --because TEXT` makes it champion, on record, and then it can be"
        )
    allowed = AllowedExport(
        export=config.paths.export,
        digests=digests,
        decision=decision.as_json(),
        provenance=provenance.of_checkout(config.record.artifact, digests),
    )
    published = (
        publish_to_bucket.add(place, allowed, options) if in_bucket else publish_to_folder.add(place, allowed)
    )
    if published.moved:
        log.info("published as version %d in %.1f s", published.version, time.monotonic() - started)
    return published


def _options(config: Config) -> dict[str, str]:
    """The options of the DVC remote `publish.dvc_remote`; those who fetch a model have no customer's key."""
    found = dvc_program.remote_options(config.publish.dvc_remote)
    if "sse_customer_key" in found:
        raise ConfigError(
            f"the DVC remote {config.publish.dvc_remote} of publish.dvc_remote has a sse_customer_key, without "
            "which nobody could fetch the model; nothing was published; use a remote with sse_kms_key_id"
        )
    return found


def _target(config: Config, to: str | None) -> str:
    """The folder or URL to publish to: that of --to, else publish.url."""
    chosen = config.publish.url if to is None else to
    if chosen is None:
        raise ConfigError("there is no folder or URL to publish to; name one with --to or publish.url")
    try:
        return publish_target(chosen, config.paths, config.dataset.path)
    except ValueError as error:
        raise ConfigError(f"--to {error}, got {shown(chosen)}") from error


def _is_wanted(config: Config) -> bool:
    """Whether the model is the champion; refuses one that was rolled back, or is not approved but has to be."""
    try:
        opened = open_registry(config, fetch=False)
    except ConfigError:  # there is no repository
        if config.gate.approval:
            raise
        return False
    if back := rolled_back(config, opened):
        raise QualityError(
            f"this is the model of {back.name}, which was rolled back; nothing was published; "
            f"`perennial rollback {back.name}` makes it champion again"
        )
    champion = is_champion(config, opened)
    if config.gate.approval and not champion:
        raise QualityError("gate.approval: nobody has approved this model; nothing was published")
    return champion


def _decided(config: Config) -> tuple[dict[str, str], Decision]:
    """The digests of the export's files, and the gate's decision about it."""
    export, file = config.paths.export, config.paths.decision
    if not export.exists():
        raise DataError(f"{export} does not exist; `dvc repro export` makes it; nothing was published")
    digests = verified_digests(export)
    advice = "nothing was published; `dvc repro gate` makes or restores it"
    decision = documents.read_checked(file, Decision, advice)
    advice = "nothing was published; `dvc repro export` makes or restores it"
    exported = documents.read_checked(export / DESCRIPTION, Exported, advice)
    decided = decision.candidate
    if (decided.model, decided.data) != (exported.weights_sha256, exported.data):
        raise QualityError(
            f"{file} is about the model {decided.model} and the data {decided.data}, but {export} holds "
            f"{exported.weights_sha256} of {exported.data}; nothing was published; run `dvc repro gate`"
        )
    return digests, decision


def verified_digests(export: Path) -> dict[str, str]:
    """Compute the SHA-256 of each file of an export, and compare them with the list of the export stage."""
    advice = f"nothing was published, {CURRENT} is unchanged; `dvc repro export` makes or restores the export"
    file = export / DIGESTS
    if not file.exists():
        raise DataError(f"{file} does not exist: {export} is damaged or of an earlier version; {advice}")
    found, listed = files.digests(export), documents.read_checked(file, FileDigests, advice).model_dump()
    listed[DIGESTS.as_posix()] = found[DIGESTS.as_posix()]
    for name in sorted(found.keys() | listed.keys()):
        if found.get(name) != listed.get(name):
            change = "was changed" if name in listed else "was added"
            if name not in found:
                change = "is missing"
            raise DataError(f"{export} is not what was exported: {name} {change}; {advice}")
    return found
