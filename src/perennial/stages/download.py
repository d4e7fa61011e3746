"""Download stage: verified source files in the raw folder."""

import logging
import shutil
from dataclasses import asdict
from pathlib import Path

from perennial.base import files
from perennial.base.config import Config
from perennial.base.errors import ConfigError
from perennial.base.stage_state import outputs
from perennial.data import datasets
from perennial.data.datasets.dataset import Dataset
from perennial.data.downloads import spec as specs
from perennial.data.downloads.connection import credentials_for
from perennial.data.downloads.fetch import Fetcher
from perennial.data.downloads.partial import disk_errors
from perennial.data.downloads.spec import LIMITS, FileSpec, TransferLimits
from perennial.data.sources.pin import collect_labels, collect_source

MADE = "made.txt"  # the only raw file of a data set without files: the records name their source
log = logging.getLogger(__name__)


def download(config: Config, limits: TransferLimits = LIMITS) -> None:
    """Put the data set's source files into the raw folder, each from the first mirror that has a valid copy.

    Verified, partial and manually added files are kept in `<work>/downloads/<data set>/`. A data set of your
    own is collected from `dataset.url`, as pins/source.json pins it, or from `dataset.path`.
    """
    dataset, options = datasets.of(config.dataset), config.dataset
    collected = options.url is not None or dataset.collect is not None
    if not collected and options.digests == "record" and not options.base_url:
        raise ConfigError(
            "dataset.digests: record needs dataset.base_url; the built-in mirrors have pinned digests"
        )
    fetched = [] if collected or not dataset.files else _fetched(config, dataset, limits)
    with outputs.new_folder(config.paths.raw, "download") as raw:
        if options.url is not None:
            collect_source(config, raw, limits)
        elif dataset.collect is not None:
            dataset.collect(options.path, raw)
            log.info("collected %s from %s", options.name, options.path)
        elif not fetched:
            (raw / MADE).write_text(f"{options.name} makes its images itself.\n", encoding="utf-8")
            log.info("%s makes its images itself: there is nothing to download", options.name)
        for file in fetched:
            _link(file, raw / file.name)
        collect_labels(raw)
    if fetched:
        log.info("downloaded %s: %d files", options.name, len(fetched))


def _fetched(config: Config, dataset: Dataset, limits: TransferLimits) -> list[Path]:
    """Download the files, or take verified ones, in the work folder."""
    base_url = config.dataset.base_url
    mirrors = (base_url.rstrip("/") + "/",) if base_url else dataset.mirrors
    folder = config.paths.work / "downloads" / config.dataset.name
    credentials = credentials_for(base_url) if base_url else None
    fetcher = Fetcher(mirrors=mirrors, folder=folder, limits=limits, credentials=credentials)
    if config.dataset.digests == "pinned":
        return fetcher.fetch_all([FileSpec(**asdict(file)) for file in dataset.files])
    digests = config.paths.digests
    urls = {file.name: specs.public_url(mirrors[0] + file.name) for file in dataset.files}
    recorded = specs.recorded_digests(digests)
    wanted = [FileSpec(name=name, sha256=recorded.get(url)) for name, url in urls.items()]

    def record(file: Path) -> None:
        if urls[file.name] not in recorded:
            specs.record_digest(digests, urls[file.name], files.sha256(file))

    return fetcher.fetch_all(wanted, record)


def _link(file: Path, target: Path) -> None:
    """Create a hard link; copy a file of the user's (DVC makes it read-only), or where links do not work."""
    if not file.is_symlink() and file.stat().st_nlink == 1 and files.linked(file, target):
        return
    with disk_errors(target):
        shutil.copyfile(file, target)
