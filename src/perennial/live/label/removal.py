"""Remove images from a folder of labels: `labels.csv`, `images/`, and in the work folder the queue."""

import csv
import io
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from perennial.base import files
from perennial.data.datasets.readers import labelled
from perennial.data.images import Image, accept
from perennial.data.sources import pin
from perennial.live.capture.same_image import Found, Wanted
from perennial.live.label.answers import QUEUE

# Temporary folders in the work folder, and the seconds after which the command that made one was killed.
LEFT, LEFT_S = ("monitor-*", "start-*", "champion-*", "forget-*"), 86_400


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
