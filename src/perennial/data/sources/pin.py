"""The pin of a source: a small file in git that records the content of `dataset.url` when a run started.

The download stage depends on the pin, and accepts only the content that it records.
"""

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perennial.base.choices import is_bucket
from perennial.base.config import Config
from perennial.base.dvc import dvc_program
from perennial.base.errors import ConfigError, DataError, PerennialError, listed
from perennial.base.processes import locks
from perennial.base.project.pins import LABELS, SourcePin, labels_sha256
from perennial.base.storage import Changed, Missing
from perennial.data import datasets
from perennial.data.archives import leftover
from perennial.data.datasets.readers import labelled
from perennial.data.downloads.spec import LIMITS, TransferLimits
from perennial.data.sources.listing import Copies, Listing, Origin, is_archive, is_web, open_origin

log = logging.getLogger(__name__)
SHOWN, COPIES = 10, "source"  # names in a message; folder of copies in paths.work
PIN_AGAIN = "`perennial pin source` accepts the current content; `dvc pull` restores this revision's data"


class SourceChanged(PerennialError):
    """The source differs from its pin; a retry with a new pin may succeed."""


def pin(config: Config) -> SourcePin:
    """Record the content of `dataset.url` and the labels in pins/source.json, written only if it changes."""
    found = SourcePin(labels_sha256=labels_sha256())
    if config.dataset.url is not None:
        with listed_source(config) as (listing, _):
            found = pin_of(listing)
    found.write()
    return found


def collect_source(config: Config, raw: Path, limits: TransferLimits = LIMITS) -> None:
    """Put the objects of `dataset.url` into the raw folder: exactly those that pins/source.json pins."""
    url, dataset = config.dataset.url or "", datasets.of(config.dataset)
    pinned = SourcePin.read()
    with listed_source(config, limits) as (listing, origin):
        _require_pinned(listing, pinned)
        if dataset.collect is None or dataset.assemble is None:
            raise ConfigError(f"dataset.url cannot be used with {config.dataset.name}, which has mirrors")
        if _is_local(url):
            dataset.collect(Path(url), raw)
            with listed_source(config, limits) as (after, _):
                _require_pinned(after, pinned)
            return
        folder = copies_folder(config)
        with locks.held(folder / "lock", "download", busy=f"another run is fetching {url}", timeout_s=-1):
            copies = Copies(folder)
            try:
                copies.fetch(listing, origin)
            except (Changed, Missing) as error:
                raise SourceChanged(f"{url} changed during the read: {error}; {PIN_AGAIN}") from error
            if is_archive(url):
                for _, path in copies.paths(listing):
                    dataset.collect(path, raw)
            else:
                dataset.assemble(copies.paths(listing), raw)
            copies.clean(listing)


@contextmanager
def listed_source(config: Config, limits: TransferLimits = LIMITS) -> Iterator[tuple[Listing, Origin]]:
    """Yield the listing of the objects at `dataset.url` that belong to the data set, and their origin."""
    url = config.dataset.url or ""
    if is_web(url) and not is_archive(url):
        raise ConfigError(
            "dataset.url with http or https must name one archive (.tar, .tar.gz, .zip, ...), because web "
            f"servers do not list folders, got {url}"
        )
    origin, listing = open_origin(url, limits), Listing(url, portable=not _is_local(url))
    left: list[str] = []
    try:
        for entry in origin.list():
            if is_archive(url) or _belongs(entry.key, config):
                listing.add(entry)
            elif not leftover(entry.key) and not entry.key.endswith("/"):
                left.append(entry.key)
        if left:
            shown = listed(map(repr, left), SHOWN)
            what = "objects of no split that are no list of classes"
            log.warning("%s: left out %d %s: %s", url, len(left), what, shown)
        if not listing.objects:
            raise DataError(f"{url} has no files for dataset.name {config.dataset.name}; nothing was fetched")
        yield listing, origin
    finally:
        listing.close()


def _is_local(url: str) -> bool:
    """Whether a URL is a path of this machine, where names may be any that Linux allows."""
    return not is_web(url) and not is_bucket(url)


def _belongs(name: str, config: Config) -> bool:
    """Whether an object belongs to the data; DataError if its name is like one but not accepted."""
    try:
        return datasets.named(config.dataset.name).belongs(name)
    except DataError as error:
        raise DataError(f"{config.dataset.url}: {error}; nothing was fetched") from None


def copies_folder(config: Config) -> Path:
    """Return the folder for copies of this source's objects, which the clones of a deployment share."""
    url = config.dataset.url or ""
    return config.paths.work / COPIES / hashlib.sha256(url.encode()).hexdigest()[:16]


def pin_of(listing: Listing) -> SourcePin:
    """Return the pin of a listing, and of the labels here."""
    size = {"objects": listing.objects, "bytes": listing.bytes}
    return SourcePin(url=listing.url, listing_sha256=listing.sha256(), labels_sha256=labels_sha256(), **size)


def collect_labels(raw: Path) -> None:
    """Put the labelled images of traffic into the raw folder, if there are any."""
    found = labels_sha256()
    if found != SourcePin.read().labels_sha256:
        raise SourceChanged(
            f"{LABELS} differs from its pin in {SourcePin.FILE}; nothing was replaced; `perennial pin source` "
            "accepts it, `git restore labels pins/source.json` restores this revision's"
        )
    if found is None:
        return
    if any(not each.with_suffix("").exists() for each in labelled.IMAGES.glob(f"*{labelled.POINTER}")):
        dvc_program.run("pull", "--recursive", str(labelled.IMAGES))
    log.info("collected %d labelled images of traffic", labelled.pack(raw))


def _require_pinned(listing: Listing, pinned: SourcePin) -> None:
    if (found := pin_of(listing)) != pinned.model_copy(update={"labels_sha256": labels_sha256()}):
        held = f"{pinned.objects} objects, {pinned.bytes} bytes of {pinned.url}"
        raise SourceChanged(
            f"{listing.url} differs from its pin in {SourcePin.FILE}: expected {held}, got {found.objects} "
            f"objects, {found.bytes} bytes with other names, sizes or ETags; nothing was replaced; {PIN_AGAIN}"
        )
