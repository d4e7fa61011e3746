"""Labels as people give them, in the work folder until a branch takes them: on the disk before the next image.

label/labels.csv       a row for each answer
label/images/          the images of the queue, by digest
label/queue.json       which images, and in which order

What was made of images that are forgotten is removed here, and from the project's labels.
"""

import csv
import io
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from perennial.base import documents, files
from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.project.git import keep_out_of_git
from perennial.base.project.pins import Exclusions
from perennial.base.storage import Missing, Store
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import Label
from perennial.data.images import Image, accept
from perennial.data.sources import pin
from perennial.live.capture import place
from perennial.live.capture.same_image import Found, Wanted
from perennial.live.label import queue
from perennial.live.label.queue import Choice, Queue, QueuedImage

QUEUE = "queue.json"  # in the folder of answers
ENDINGS = (".jpg", ".png")  # of images
# Temporary folders in the work folder, and the seconds after which the command that made one was killed.
LEFT, LEFT_S = ("monitor-*", "start-*", "champion-*", "forget-*"), 86_400


class Taken(PerennialError):
    """The image has a label already, from another page; or another one than the one to undo."""


class Answers:
    """The labels that are not yet in the project's table."""

    next_step = "Make a branch of them: perennial label --branch NAME"

    def __init__(self, folder: Path) -> None:
        self.folder, self.images = folder, folder / labelled.IMAGES.name
        self._table, self._queue = folder / labelled.TABLE.name, folder / QUEUE
        files.make_folder(self.images)
        keep_out_of_git(folder, ours=True)

    def labels(self) -> dict[str, Label]:
        """All answers, by SHA-256."""
        return labelled.read(self._table)

    def add(self, queued: QueuedImage, name: str, who: str) -> Label:
        """Write an answer; an empty name means none of the classes."""
        label = queued.labelled(name, who, datetime.now(UTC).isoformat(timespec="milliseconds"))
        with self._changed() as found:
            if other := found.get(label.sha256):
                raise Taken(f"{other.who or 'another page'} labelled this image as {other.class_ or 'none'}")
            found[label.sha256] = label
        return label

    def undo(self, sha256: str, time: str) -> None:
        """Remove the answer that was given at a time."""
        with self._changed() as found:
            if sha256 not in found or found[sha256].time != time:
                raise Taken("this answer was changed meanwhile, so it stays as it is")
            del found[sha256]

    def take(self, labels: Iterable[Label]) -> int:
        """Write answers of another program, in place of earlier ones; returns how many are new or changed."""
        count = 0
        with self._changed() as found:
            for each in labels:
                before = found.get(each.sha256)
                if before is None or before.class_ != each.class_:
                    found[each.sha256] = each
                    count += 1
        return count

    @contextmanager
    def _changed(self) -> Iterator[dict[str, Label]]:
        """The answers, to change as the only process; they are on the disk after the block, if it ends well."""
        with files.locked(self.folder):
            found = self.labels()
            yield found
            self._write(found)

    def _write(self, found: dict[str, Label]) -> None:
        files.write_bytes(self._table, labelled.text_of(found.values()).encode())

    def image(self, sha256: str) -> Path | None:
        """The file of an image of the queue."""
        found = (self.images / f"{sha256}{ending}" for ending in ENDINGS)
        return next((file for file in found if file.is_file()), None)

    def shown(self, sha256: str) -> bytes | None:
        """The image as a browser shows it, JPEG or PNG."""
        return file.read_bytes() if (file := self.image(sha256)) else None

    def unfinished(self, url: str | None = None) -> Queue | None:
        """The queue that was drawn last, if it is of this place (None: any) and has images without a label."""
        if not self._queue.exists():
            return None
        found = self.drawn()
        mine = url is None or found.place == redacted(url)
        return found if mine and queue.left(found.images, self.labels()) else None

    def drawn(self) -> Queue:
        """The queue that was drawn last, finished or not."""
        if not self._queue.exists():
            raise ConfigError("no queue was drawn yet; name the place of `perennial serve --keep`")
        return documents.read_checked(self._queue, Queue, "`perennial label PLACE --new` draws another queue")

    def draw(self, url: str, how: Choice, *, first: bool = False) -> Queue:
        """Draw a new queue from the images of a place; `first`: at random as many as the test split lacks."""
        store = place.open_place(url)
        place.note_place(self.folder.parent, url)
        try:
            keys = place.images(store)
            if not keys and any(each.features for each in place.read(store)):
                raise ConfigError(
                    f"{redacted(url)} holds statistics and no images, so there is nothing to label; "
                    "`perennial serve --keep-what image` keeps images"
                )
            project = project_labels()
            labels = {**labelled.with_splits(self.labels(), project, first=first), **project}
            known = {*labels, *Exclusions.read().digests}
            there = [file.read_bytes() for file in sorted(labelled.IMAGES.glob("*")) if file.stem in known]
            mine = [file.read_bytes() for name in self.labels() if (file := self.image(name))]
            records = (each for each in place.read(store) if each.sha256 not in known)
            how = replace(how, least=labelled.lacking(labels.values()) if first else 0)
            images = queue.choose(
                records, lambda name: self._fetched(store, keys.get(name), name), how, (*there, *mine)
            )
        finally:
            store.stop()
        if not images:
            shown = redacted(url)
            raise ConfigError(f"{shown} has no images to label; `perennial serve --keep {shown}` keeps some")
        found = Queue(place=redacted(url), seed=how.seed, images=images)
        files.write_json(self._queue, found.model_dump())
        return found

    def _fetched(self, store: Store, key: str | None, sha256: str) -> bytes | None:
        """The content of an image, which is then in the work folder; None if the place has removed it."""
        if (file := self.image(sha256)) is not None:
            return file.read_bytes()
        if key is None:
            return None
        file = self.images / key.rpartition("/")[2]
        try:
            store.get(key, file, sha256=sha256)
        except Missing:
            return None
        return file.read_bytes()


def project_labels() -> dict[str, Label]:
    """The labels in the project's table, by SHA-256."""
    return labelled.read(labelled.TABLE)


def remove_labelled(folder: Path, wanted: Wanted) -> Counter[Found]:
    """Remove all files that were made of the wanted images, and their rows; others stay as they are."""
    if not folder.is_dir():
        return Counter()
    gone = dict[str, Found]()  # by digest
    with files.locked(folder):
        for file in sorted((folder / labelled.IMAGES.name).glob("*")):
            content = file.read_bytes() if file.is_file() else b""
            if wanted.lacks_pixels(file.stem):
                wanted.add(wanted.digests[file.stem], content)
            if found := wanted.find(content):
                gone[file.stem] = found
                file.unlink()
        rows = _change_table(folder / labelled.TABLE.name, wanted)
        for digest in (*rows, *_change_queue(folder / QUEUE, wanted)):
            gone.setdefault(digest, Found(image=wanted.digests[digest], how="file"))
        for digest in gone:
            for file in (folder / labelled.IMAGES.name).glob(f"{digest}.*"):
                file.unlink()  # a pointer of DVC
    return Counter(gone.values())


def remove_copies(work: Path, wanted: Wanted) -> Counter[Found]:
    """Remove copies of the wanted images that runs fetched, and all that commands left that were killed."""
    gone = Counter[Found]()
    for folder in (each for name in LEFT for each in work.glob(name)):
        if folder.stat().st_mtime < time.time() - LEFT_S:
            shutil.rmtree(folder)
    for file in (each for each in (work / pin.COPIES).rglob("*") if each.is_file()):
        content = file.read_bytes()
        image = accept.accepted(content, "")
        encoded = image.encoded if isinstance(image, Image) else content
        if found := wanted.find(content) or wanted.find(encoded):
            file.unlink()
            gone[found] += 1
    return gone


def _change_table(file: Path, wanted: Wanted) -> list[str]:
    """Remove rows from a table of labels; returns their digests."""
    if not file.is_file():
        return []
    rows = list(_rows(file.read_bytes().decode("utf-8", "surrogateescape")))
    gone = [digest for _, digest in rows if digest in wanted.digests]
    if gone:
        text = "".join(text for text, digest in rows if digest not in wanted.digests)
        files.write_bytes(file, text.encode("utf-8", "surrogateescape"))
    return gone


def _rows(table: str) -> Iterator[tuple[str, str]]:
    """The text of each row of a table, and its digest."""
    lines = list(io.StringIO(table, newline=""))
    reader, first = csv.reader(lines), 0
    for row in reader:
        digest = next((cell for cell in row if labelled.SHA256.fullmatch(cell)), "")
        yield "".join(lines[first : reader.line_num]), digest
        first = reader.line_num


def _change_queue(file: Path, wanted: Wanted) -> list[str]:
    """Remove images from the queue; returns their digests."""
    if not file.is_file():
        return []
    queue = json.loads(file.read_bytes())
    gone = [each["sha256"] for each in queue["images"] if each["sha256"] in wanted.digests]
    if gone:
        others = [each for each in queue["images"] if each["sha256"] not in gone]
        files.write_json(file, {**queue, "images": others})
    return gone
