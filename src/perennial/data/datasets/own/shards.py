"""Names of TFRecord files: which are the shards of which split, and which are left out or refused.

mnist_train.tfrecord, train-00000-of-00010, test.record, valid.tfrec.gz     by the last word
train/part-00000, val/00-224x224-798.tfrec                                  by the folder
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from perennial.base import files
from perennial.base.choices import SPLIT_WORDS, Split, split_named
from perennial.base.errors import DataError, listed
from perennial.data.archives import without_leftovers
from perennial.data.datasets.own import foreign
from perennial.data.datasets.own.class_lists import ABOVE, is_class_list

log = logging.getLogger(__name__)
SHOWN = 10  # names in a message
ENDING = re.compile(r"\.(?:tf_?records?|records?|tfrecs?|tfr)(?![a-z0-9])")
COMPRESSED = re.compile(r"\.(?:gz|gzip|zlib)(?![a-z0-9])")
OF = re.compile(r"(\d+)-of-(\d+)")
_SHARD = re.compile(
    rf".*(?:{ENDING.pattern}(?:[-_.]?{OF.pattern}|[-_]\d+)?|{OF.pattern})(?:{COMPRESSED.pattern})?", re.DOTALL
)
# Words after a split that say nothing about it: versions, sizes, formats.
_IDLE = re.compile(r"v\d*|x\d+|px|shards?|parts?|data|dataset|sets?|images?|imgs?|records?|split|jpe?g|png|rgb")
_OTHERS = (".array_record", ".riegeli", ".parquet", ".arrow")  # refused, where other files are left out
_NUMBERED = re.compile(r"(?:.*[^0-9])?[0-9]{2,}")  # a name in the folder of a split, such as part-00000


def split_of(name: str) -> Split | None:
    """The split that a file name ends with, before endings, shard numbers and versions; else None."""
    if not is_shard(name):
        return None
    words = _words(name)
    while words and _IDLE.fullmatch(words[-1]):
        words.pop()
    if words and (split := split_named(words[-1])):
        return split
    if named := [word for word in words if split_named(word)]:
        raise DataError(f"{name!r}: its split is ambiguous; make it the last word: own_{named[0]}.tfrecord")
    return None


def is_shard(name: str) -> bool:
    """Whether a file name is one of TFRecords, by its ending or its shard number."""
    return _SHARD.fullmatch(name.lower()) is not None


def raw_name(name: str) -> str | None:
    """The name in the raw folder, with split or folders in it, of a file of the data; None: it is left out."""
    *above, file = name.split("/")
    if (what := foreign.container(file)) and any(ending in file.lower() for ending in _OTHERS):
        raise DataError(f"{name!r} is no file of TFRecords, but {what}")
    if is_class_list(file):
        return ABOVE.join((*above, file))
    if not above:
        if split_of(file):
            return file
        if is_shard(file):
            raise DataError(
                f"{name!r} is named like TFRecords, but not like those of a split; rename it as in "
                f"own_train.tfrecord, with one of {', '.join(SPLIT_WORDS)} as the last word, or move it away"
            )
        return None
    split = split_named(above[0]) if len(above) == 1 else None
    if split is None or not (is_shard(file) or _NUMBERED.fullmatch(file)):
        return None
    words = [named for word in _words(file) if (named := split_named(word))]
    if is_shard(file) and words and words[-1] != split:
        raise DataError(f"{name!r} lies in the folder of the {split} split, but is named like {words[-1]}")
    return f"{file}_{split}.tfrecord"


def _words(name: str) -> list[str]:
    lower = COMPRESSED.sub("", OF.sub("", name.lower()))
    return re.findall(r"[^\W\d_][^\W_]*", ENDING.sub("", lower))


def of_splits(raw: Sequence[Path], folder: Path) -> dict[Split, list[Path]]:
    """Return the shards of each split among raw files, in the order given."""
    shards: dict[Split, list[Path]] = {}
    for file in raw:
        if raw_name(file.name) and (split := split_of(file.name)) is not None:
            shards.setdefault(split, []).append(file)
    if "train" not in shards:
        names = listed((file.name for file in raw), SHOWN)
        raise DataError(
            f"{folder} holds no TFRecords of a train split, such as own_train.tfrecord: its files are {names}"
        )
    for parts in shards.values():
        _require_complete(parts)
    return {split: shards[split] for split in sorted(shards)}


def _require_complete(shards: Sequence[Path]) -> None:
    """Check that no shard is missing, by the number of shards in each name."""
    names = {file.name for file in shards}
    if len({match[2] for name in names if (match := OF.search(name))}) > 1:
        raise DataError(
            f"{shards[0].parent} holds shards of several sets of one split: {', '.join(sorted(names)[:SHOWN])}"
        )
    for name in sorted(names):
        if (match := OF.search(name)) is None:
            continue
        for number in range(int(match[2])):
            other = f"{name[: match.start(1)]}{number:0{len(match[1])}d}{name[match.end(1) :]}"
            if other not in names:
                raise DataError(f"{shards[0].parent} holds {name} but not {other}")


def chosen(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return the raw name of each file that belongs to the data, and the files that are left out."""
    kept, left = dict[str, str](), list[str]()  # kept: by the raw name
    words: dict[Split, tuple[str, str]] = {}  # the word for a split, and a file that has it
    for name in names:
        if (raw := raw_name(name)) is None:
            left.append(name)
        elif (other := kept.setdefault(raw, name)) != name:
            raise DataError(f"{name!r} and {other!r} would both be {raw!r} in the raw folder; rename one")
        elif split := split_of(raw):
            # The folder's word, or the last of the name.
            above = name.lower().split("/")[:-1]
            word = next(word for word in reversed(above or _words(name)) if split_named(word) == split)
            if (known := words.setdefault(split, (word, name)))[0] != word:
                raise DataError(f"{known[1]!r} and {name!r} are both named like the {split} split; rename one")
    return {name: raw for raw, name in kept.items()}, left


def in_folder(folder: Path) -> dict[str, Path]:
    """Find the files in a folder and its folders, by name, and links to folders, which are left out."""
    inside = {}

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error

    for above, folders, names in os.walk(folder, onerror=refuse):
        links = [name for name in folders if Path(above, name).is_symlink()]
        for name in sorted((*names, *links)):
            files.require_utf8(Path(above, name))
            inside[Path(above, name).relative_to(folder).as_posix()] = Path(above, name)
    return inside


def chosen_below(names: Iterable[str], where: Path) -> dict[str, str]:
    """Return the raw name of each file that belongs to the data; one line names those that are left out."""
    names = without_leftovers(sorted(names), where)
    inside = _below_one_folder(names)
    try:
        kept, left = chosen(inside)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None
    if not any(is_shard(raw) for raw in kept.values()):
        raise DataError(
            f"{where} holds no TFRecords: no file is named like mnist_train.tfrecord or train/part-00000; "
            f"its files are {listed(map(repr, names), SHOWN) or 'none'}"
        )
    if left:
        shown = listed(map(repr, left), SHOWN)
        what = "files of no split that are no list of classes"
        log.warning("%s: left out %d %s: %s", where, len(left), what, shown)
    return {inside[name]: raw for name, raw in kept.items()}


def _below_one_folder(names: Sequence[str]) -> dict[str, str]:
    """Return the names without the single folder around all files, if any, each with the full name."""
    inside = {name: name for name in names}
    while all("/" in name for name in inside):
        above = {name.partition("/")[0] for name in inside}
        if len(above) != 1 or split_named(*above):
            break
        inside = {name.partition("/")[2]: full for name, full in inside.items()}
    return inside
