"""Labels of a folder of photos that no model has seen: `labels.csv` beside them, as `perennial start` reads it.

FOLDER/labels.csv                   file,label: a row for each photo, without a label until it has one
.work/photos/<digest>/labels.csv    the answers, by SHA-256
.work/photos/<digest>/written.csv   what labels.csv was when we wrote it last
"""

import csv
import hashlib
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from perennial.base import files
from perennial.base.errors import ConfigError, DataError, listed
from perennial.data import archives
from perennial.data.datasets.own import label_table
from perennial.data.datasets.own.names import require_classes
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import Label
from perennial.data.images import BadImage, accept
from perennial.live.label import queue, typical
from perennial.live.label.answers import Answers
from perennial.live.label.queue import Queue, QueuedImage

START_BYTES = 1 << 12  # which tell the format


def are_in(folder: Path) -> bool:
    """Whether images lie in a folder itself, which are no images of traffic; refuses those below others."""
    if not folder.is_dir():
        return False
    found = [each for each in folder.iterdir() if each.is_file() and _is_image(each)]
    if found and (inner := [each.name for each in folder.iterdir() if each.is_dir() and each.name[0] != "."]):
        raise ConfigError(
            f"{folder} has images, such as {found[0].name}, and folders: {listed(inner, 3)}; nothing "
            "was written; put the photos to label into a folder of their own"
        )
    return bool(found)


def _is_image(file: Path) -> bool:
    with file.open("rb") as stream:
        return accept.format_name(stream.read(START_BYTES)) != "unknown"


class Photos(Answers):
    """The photos of a folder, and their labels."""

    def __init__(self, folder: Path, work: Path) -> None:
        super().__init__(work / "photos" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16])
        self.next_step = f"Make a model of them: perennial start {folder}"
        self._names, self._csv = defaultdict[str, list[str]](list), folder / labelled.TABLE.name
        self._written = self.folder / "written.csv"
        for each in archives.folder_contents(folder):
            content = (folder / each.name).read_bytes()
            if accept.format_name(content) != "unknown":
                self._names[hashlib.sha256(content).hexdigest()].append(each.name)
        self.photos = sum(map(len, self._names.values()))
        self._require_ours()

    def _require_ours(self) -> None:
        known = self._written.read_text(encoding="utf-8", errors="replace") if self._written.exists() else None
        ours = (known, self._text(self.labels()))
        if self._csv.exists() and self._csv.read_text(encoding="utf-8", errors="replace") not in ours:
            raise ConfigError(
                f"{self._csv} is not as `perennial label` left it from here, so it stays as it is; "
                "`perennial start` reads it; to label the photos here, move it away"
            )

    def image(self, sha256: str) -> Path | None:
        """The photo; None if it is none of the folder."""
        return self._csv.parent / self._names[sha256][0] if sha256 in self._names else None

    def shown(self, sha256: str) -> bytes | None:
        """The photo as a browser shows it, upright, as JPEG or PNG."""
        found = accept.accepted(file.read_bytes(), "") if (file := self.image(sha256)) else None
        return None if found is None or isinstance(found, BadImage) else found.encoded

    def _content(self, sha256: str) -> bytes | None:
        """The photo as it is, which is read faster; of other formats, as it is shown."""
        content = file.read_bytes() if (file := self.image(sha256)) else b""
        return content if accept.format_name(content) in {"JPEG", "PNG"} else self.shown(sha256)

    def draw_photos(self, count: int, seed: int) -> Queue:
        """The photos without a label, typical ones first; the others are in random order."""
        known = self.labels()
        there = sorted(self._names.keys() - known, key=lambda name: queue.number(seed, "pool", name))
        done = [content for name in known if (content := self._content(name))]
        first = typical.choose(there[: typical.POOL], self._content, done[: typical.POOL], count, seed)
        images = [QueuedImage(sha256=name, reason="typical") for name in first]
        images += [QueuedImage(sha256=name, reason="random") for name in there if name not in set(first)]
        return Queue(place=str(self._csv.parent), seed=seed, images=images[:count])

    def _write(self, found: dict[str, Label]) -> None:
        """Write the answers, then the table beside the photos; a kill between them loses none."""
        self._require_ours()
        super()._write(found)
        for file in (self._csv, self._written):
            files.write_bytes(file, self._text(found).encode())

    def _text(self, found: Mapping[str, Label]) -> str:
        stream = io.StringIO(newline="")
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(("file", "label"))
        named = ((file, name) for name, all_of_it in self._names.items() for file in all_of_it)
        rows.writerows((file, found[name].class_ if name in found else "") for file, name in sorted(named))
        return stream.getvalue()


def require_names(classes: Sequence[str]) -> None:
    """Check that there are classes, and that `perennial start` will read them as such."""
    if len(classes) < 2:
        raise ConfigError(
            "name the classes: perennial label FOLDER --class cat --class dog; nothing was written"
        )
    if words := [name for name in classes if name.casefold() in label_table.UNLABELLED]:
        raise ConfigError(f"the class {words[0]!r} is a word for no label; name another")
    try:
        require_classes(classes, Path("--class"))
    except DataError as error:
        raise ConfigError(str(error)) from error
