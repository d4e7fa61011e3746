"""The training data of the champion: names of its files and digests of its images, listed once a version.

New data are those that it was not trained on: an image that was moved or copied within the source is not new.
"""

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path

from perennial import dvc_lock, files
from perennial.config import Config
from perennial.errors import PerennialError
from perennial.monitor import images
from perennial.monitor.images import LabelledImage
from perennial.registry import revision

TABLES = """
    PRAGMA journal_mode = OFF;
    CREATE TABLE files (name TEXT PRIMARY KEY, size INTEGER) WITHOUT ROWID;
    CREATE TABLE images (sha256 BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class TrainedOn:
    """Files and images of a version's data, in a database: memory does not grow with their number."""

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
    """Open the list of a version's training data; `folder` keeps it, so that the data are fetched once.

    Raises:
        DataError: the commit is not in this clone, or its data are damaged.
        PerennialError: DVC's cache and remote lack its data.
    """
    raw = revision.paths(commit).get("raw", "")
    digest = dvc_lock.digest(revision.recorded(commit), raw)
    if digest is None:
        raise PerennialError(f"dvc.lock of commit {commit} lists no {raw or 'raw data'}")
    file = folder / f"{digest}.sqlite"
    if not file.exists():
        config.paths.work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=config.paths.work, prefix="monitor-") as temporary:
            revision.fetch_output(commit, raw, fetched := Path(temporary, "raw"))
            note(config, fetched, database := Path(temporary, "trained-on.sqlite"))
            files.copy(database, file)
        for old in set(folder.glob("*.sqlite")) - {file}:
            old.unlink(missing_ok=True)
    return TrainedOn(file)


def note(config: Config, raw: Path, file: Path) -> None:
    """Note the files and images of a raw folder in a new database."""
    found = [(path.name, path) for path in sorted(raw.iterdir()) if path.is_file() and path.name != files.MARK]
    (scratch := raw.with_name("scratch")).mkdir()
    database = sqlite3.connect(file, isolation_level=None)
    try:
        database.executescript(TABLES)
        database.execute("BEGIN")
        _insert_files(database, ((name, path.stat().st_size) for name, path in found))
        for image in images.of_files(config.dataset.name, found, scratch):
            _insert_image(database, image)
        database.execute("COMMIT")
    finally:
        database.close()


def _insert_files(database: sqlite3.Connection, rows: Iterable[tuple[str, int]]) -> None:
    database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", rows)


def _insert_image(database: sqlite3.Connection, image: LabelledImage) -> None:
    _insert_files(database, [(image.name, len(image.content))])
    database.execute("INSERT OR IGNORE INTO images VALUES (?)", (_digest(image.content),))


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
