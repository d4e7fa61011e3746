"""Original files, verified, into the raw folder."""

import logging
import shutil
from pathlib import Path

from perennial import files, outputs
from perennial.config import Config
from perennial.datasets import DATASETS
from perennial.datasets.dataset import Dataset
from perennial.downloads import credentials, room
from perennial.downloads.addresses import public
from perennial.downloads.limits import LIMITS, Limits
from perennial.downloads.originals import originals
from perennial.downloads.recorded import record, recorded
from perennial.downloads.wanted import Wanted
from perennial.errors import ConfigError

log = logging.getLogger(__name__)


def download(config: Config, limits: Limits = LIMITS) -> None:
    """Puts the data set's files into the raw folder, each from the first mirror that has the right one.

    A verified file is kept under `<work>/downloads/<data set>/`, where one placed by hand is found too and what
    came of an unfinished one waits. Data of one's own are collected from `dataset.path` instead.

    Raises:
        DataError: no mirror has a file with the right digest; says what each answered, and what to
            put where by hand.
        PerennialError: no mirror could be reached, which may pass; or the disk refuses.
    """
    dataset = DATASETS[config.dataset.name]
    if dataset.collect is not None:
        with outputs.new_folder(config.paths.raw, "download") as raw:
            dataset.collect(config.dataset.path, raw)
        log.info("collected %s from %s", config.dataset.name, config.dataset.path)
        return
    if config.dataset.digests == "record" and not config.dataset.base_url:
        raise ConfigError(
            "dataset.digests: record needs dataset.base_url; the built-in mirrors have pinned digests"
        )
    found = _fetched(config, dataset, limits)
    with outputs.new_folder(config.paths.raw, "download") as raw:
        for file in found:
            _link(file, raw / file.name)
    log.info("downloaded %s: %d files", config.dataset.name, len(found))


def _fetched(config: Config, dataset: Dataset, limits: Limits) -> list[Path]:
    """The verified files where they are kept."""
    base_url = config.dataset.base_url
    mirrors = (base_url.rstrip("/") + "/",) if base_url else dataset.mirrors
    folder = config.paths.work / "downloads" / config.dataset.name
    known = credentials.of(base_url) if base_url else None
    if config.dataset.digests == "pinned":
        wanted, instead = (tuple(map(Wanted.pinned, each)) for each in (dataset.files, dataset.instead))
        return originals(wanted, instead, mirrors, folder, limits, credentials=known)
    digests = config.paths.digests
    addressed = {each.name: public(mirrors[0] + each.name) for each in (*dataset.files, *dataset.instead)}
    wanted, instead = (
        tuple(Wanted(name=each.name, sha256=recorded(digests, addressed[each.name])) for each in choice)
        for choice in (dataset.files, dataset.instead)
    )

    def arrived(file: Path) -> None:
        if recorded(digests, addressed[file.name]) is None:
            record(digests, addressed[file.name], files.sha256(file))

    return originals(wanted, instead, mirrors, folder, limits, arrived, known)


def _link(file: Path, target: Path) -> None:
    """Gives a file a second name; a copy where there are no hard links, or where it is a person's own.

    DVC makes raw files read-only and may join them to its cache.
    """
    if not file.is_symlink() and file.stat().st_nlink == 1 and files.linked(file, target):
        return
    with room.writing(target):
        shutil.copyfile(file, target)
