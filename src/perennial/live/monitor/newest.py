"""The new labelled data: what the source has that the champion was not trained on.

The file names and image digests of its training data are listed once per version. An image that was moved
or copied within the source is not new.
"""

import hashlib
import heapq
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from perennial.base import files
from perennial.base.config import Config
from perennial.base.config.data import DatasetConfig
from perennial.base.dvc import dvc_lock
from perennial.base.errors import PerennialError
from perennial.base.processes import locks
from perennial.base.storage import Entry
from perennial.data.archives import Member
from perennial.data.datasets.own.class_lists import is_class_list
from perennial.data.images import BRIGHTNESS_BINS, BadImage, accept, decode, statistics
from perennial.data.sources.copies import Copies
from perennial.data.sources.listing import Listed, Listing
from perennial.data.sources.origin import Origin, is_archive
from perennial.data.sources.pin import copies_folder
from perennial.live.monitor import labelled_images
from perennial.live.monitor.labelled_images import LabelledImage, Labels, Named
from perennial.release.registry import revision

PROGRAM = "perennial.live.monitor.export_program"
TABLES = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE files (name TEXT PRIMARY KEY, size INTEGER) WITHOUT ROWID;
    CREATE TABLE images (sha256 BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class TrainedOn:
    """Files and images of a version's data, in a database, so that memory use does not grow with them."""

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(f"file:{file.resolve().as_posix()}?mode=ro&immutable=1", uri=True)

    def has_file(self, name: str, size: int) -> bool:
        """Whether there was a file of this name and size."""
        query = "SELECT 1 FROM files WHERE name = ? AND size = ?"
        return self._db.execute(query, (name, size)).fetchone() is not None

    def has_image(self, content: bytes) -> bool:
        """Whether there was an image with these bytes, under any name."""
        query = "SELECT 1 FROM images WHERE sha256 = ?"
        return self._db.execute(query, (_digest(content),)).fetchone() is not None

    def close(self) -> None:
        """Close the database."""
        self._db.close()


def open_trained_on(config: Config, commit: str, folder: Path) -> TrainedOn:
    """Open the list of a version's training data; `folder` keeps it, so that the data are fetched once."""
    raw = revision.paths(commit)["raw"]
    digest = dvc_lock.digest(revision.recorded(commit), raw)
    if digest is None:
        raise PerennialError(f"dvc.lock of commit {commit} lists no {raw}")
    file = folder / f"{digest}.sqlite"
    if not file.exists():
        with scratch_folder(config) as temporary:
            revision.fetch_output(commit, raw, fetched := temporary / "raw")
            note(config, fetched, database := temporary / "trained-on.sqlite")
            files.copy(database, file)
        for old in set(folder.glob("*.sqlite")) - {file}:
            old.unlink(missing_ok=True)
    return TrainedOn(file)


@contextmanager
def scratch_folder(config: Config) -> Iterator[Path]:
    """A temporary folder in the work folder; `forget` removes those that a killed monitor left."""
    config.paths.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=config.paths.work, prefix="monitor-") as folder:
        yield Path(folder)


def note(config: Config, raw: Path, file: Path) -> None:
    """Note the files and images of a raw folder in a new database."""
    found = [(path.name, path) for path in sorted(raw.iterdir()) if path.is_file() and path.name != files.MARK]
    (scratch := raw.with_name("scratch")).mkdir()
    database = sqlite3.connect(file, isolation_level=None)
    try:
        database.executescript(TABLES)
        database.execute("BEGIN")
        _insert_files(database, ((name, path.stat().st_size) for name, path in found))
        for image in labelled_images.of_files(config.dataset, found, scratch):
            _insert_files(database, [(image.name, len(image.content))])
            database.execute("INSERT OR IGNORE INTO images VALUES (?)", (_digest(image.content),))
        database.execute("COMMIT")
    finally:
        database.close()


def _insert_files(database: sqlite3.Connection, rows: Iterable[tuple[str, int]]) -> None:
    database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", rows)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


@dataclass
class Newest:
    """New examples, with their images concatenated in a file."""

    file: Path
    objects: int  # of the source that are new
    labels: list[Labels] = field(default_factory=list)  # of each example
    spans: list[tuple[int, int]] = field(default_factory=list)  # offset and bytes of each image in the file
    unreadable: int = 0  # new images that are damaged
    brightness: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BRIGHTNESS_BINS, np.int64))

    @property
    def per_class(self) -> dict[str, int]:
        """Examples that have each label."""
        return dict(sorted(Counter(chain.from_iterable(self.labels)).items()))


def collect(config: Config, listing: Listing, origin: Origin, known: TrainedOn, folder: Path) -> Newest:
    """Fetch at most `monitor.max_examples` new examples into an empty folder, for the download stage, too."""
    most, url = config.monitor.max_examples, config.dataset.url or ""
    found, lists = _new_objects(config, listing, known)
    newest = Newest(file=folder / "images", objects=len(found))
    each_holds_one = config.dataset.name == "image_folder" and not is_archive(url)
    chosen = heapq.nsmallest(most if each_holds_one else len(found), found, key=lambda listed: listed.id)
    parts = [chosen] if each_holds_one else [[*lists, each] for each in chosen]
    labels = _labels(config, listing, origin) if each_holds_one else {}
    seen = set[bytes]()
    with newest.file.open("wb") as stream:
        for number, part in enumerate(parts):
            (scratch := folder / str(number)).mkdir()
            fetched = _fetch(config, listing, origin, part)
            for image in labelled_images.of_files(config.dataset, fetched, scratch, labels):
                digest = hashlib.sha256(image.content).digest()
                if digest not in seen and not known.has_image(image.content):
                    seen.add(digest)
                    _add(newest, image, stream, config.dataset)
                if len(newest.labels) == most:
                    return newest
    return newest


def _labels(config: Config, listing: Listing, origin: Origin) -> dict[str, Labels]:
    """The labels of objects by name."""
    tables = [each for each in chain.from_iterable(listing.pages()) if labelled_images.is_table(each.name)]
    fetched = dict(_fetch(config, listing, origin, tables))
    members = [Member(each.name, 0, each.size) for each in chain.from_iterable(listing.pages())]
    return labelled_images.labels_of(
        members, lambda each: fetched[each.name].read_bytes(), Path(listing.url), config.dataset
    )


def _new_objects(config: Config, listing: Listing, known: TrainedOn) -> tuple[list[Listed], list[Listed]]:
    """The objects that the champion was not trained on, and the lists of labels."""
    found, lists = list[Listed](), list[Listed]()
    for each in chain.from_iterable(listing.pages()):
        if config.dataset.name == "tfrecord" and is_class_list(each.name):
            lists.append(each)
        elif not known.has_file(
            labelled_images.raw_name(config.dataset.name, each.name), each.size
        ) and not labelled_images.is_document(each.name):
            found.append(each)
    return found, lists


def _fetch(config: Config, listing: Listing, origin: Origin, objects: Sequence[Listed]) -> list[Named]:
    """The copies of some objects, by name."""
    folder, url = copies_folder(config), listing.url
    part = Listing(url, portable=listing.portable)
    try:
        for each in objects:
            part.add(Entry(key=each.name, size=each.size, etag=each.etag))
        with locks.held(folder / "lock", "monitor", busy=f"a run fetches {url}"):
            copies = Copies(folder)
            copies.fetch(part, origin)
            copies.clean(listing)
            return list(copies.paths(part))
    finally:
        part.close()


def _add(newest: Newest, image: LabelledImage, stream: BinaryIO, dataset: DatasetConfig) -> None:
    """Add an image, converted as `convert` does; that of a record is added byte for byte."""
    as_it_is = dataset.name == "tfrecord"
    accepted = accept.accepted(image.content, image.name, dataset.transparency)
    if dataset.max_side is not None and not isinstance(accepted, BadImage):
        accepted = accept.limited(accepted, dataset.max_side)
    encoded = image.content if as_it_is or isinstance(accepted, BadImage) else accepted.encoded
    try:
        pixels = decode.decoded(encoded)
    except ValueError:
        newest.unreadable += 1
        return
    if isinstance(pixels, np.ndarray):
        newest.brightness += statistics.of_batch(pixels[np.newaxis])[0].brightness
    else:
        newest.brightness += statistics.of_image(pixels)[0].brightness
    newest.labels.append(image.labels)
    newest.spans.append((stream.tell(), len(encoded)))
    stream.write(encoded)
