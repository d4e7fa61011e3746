"""Forget images: remove what was kept and labelled of them, and exclude all their files from later versions.

Kept images: `live/capture/place.py`; labelled ones: `live/label/answers.py`.
"""

import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from perennial.base import documents, files
from perennial.base.choices import SPLITS, Split, is_bucket
from perennial.base.config import Config
from perennial.base.errors import DataError, PerennialError, redacted
from perennial.base.project.git import Repository
from perennial.base.project.pins import Exclusions, Reason
from perennial.base.storage import open_store
from perennial.data import datasets
from perennial.data.datasets.readers import labelled
from perennial.data.images import statistics
from perennial.data.records.random_access import Records
from perennial.data.validation import image_index
from perennial.data.validation.image_index import ImageIndex
from perennial.live.capture import place
from perennial.live.capture.same_image import TURNED, Found, Wanted
from perennial.live.label import answers
from perennial.release.audit import sides

KINDS = ("refs/heads/", "refs/remotes/", "refs/tags/")
LABEL = "label"  # in the work folder
MAX_SIDE = re.compile(r"^[+-]\s*max_side:\s*(\d+)", re.MULTILINE)  # in a difference of params.yaml
SAMPLE = 64  # records whose digests are compared with the index
BITS = 16  # of 64 in which the hashes of two encodings of an image may differ; its pixels decide


@dataclass(frozen=True, kw_only=True)
class Committed:
    """An image in git's history."""

    found: Found
    path: str  # from the repository's top folder
    references: Sequence[str]  # branches and tags that have it now


def _find_committed(
    repository: Repository, wanted: Wanted, images: Sequence[Path], forgotten: "Forgotten"
) -> list[Committed]:
    """List labelled images of wanted ones, and these files wherever they are; removes those of DVC."""
    asked = ["--", labelled.IMAGES.as_posix()]
    rows = set(_added(repository, *asked))
    for name in (repository.run("hash-object", "--no-filters", "--", str(each.resolve())) for each in images):
        if repository.ask("cat-file", "-e", name) is not None:
            rows |= {row for row in _added(repository, f"--find-object={name}") if row[0] == name}
    found = {}
    pointers = {row for row in rows if row[1].endswith(labelled.POINTER)}
    known = (*sides.open_sides(), sides.open_cache_of_runs(files.home())) if pointers else ()
    places = [each for each in known if each]
    for blob, path in sorted(rows):
        content, (sha256, *_) = repository.blob(blob) or b"", Path(path).name.split(".")
        if (blob, path) in pointers:
            md5 = documents.yaml_object(content)["outs"][0]["md5"]
            content = sides.first_content(places, md5) or b""
        if content and wanted.lacks_pixels(sha256):
            wanted.add(wanted.digests[sha256], content)
        each = wanted.find(content)
        if (blob, path) in pointers:
            if each or sha256 in wanted.digests:  # the second: only old versions may be left in S3
                refused = {side.name: side.remove([md5], versions=True) for side in places}
                forgotten.failed |= {f"DVC's {name}": why[md5] for name, why in refused.items() if why}
            if each:
                forgotten.kept.setdefault("DVC", Counter())[each] += 1
        elif each:
            found[blob, path] = each
    there = _references(repository, found)
    return [
        Committed(found=each, path=path, references=there[blob, path]) for (blob, path), each in found.items()
    ]


def _added(repository: Repository, *which: str) -> Iterator[tuple[str, str]]:
    """The object name and path of each file that a commit added or changed."""
    form = ("--raw", "--no-abbrev", "--no-renames", "--diff-filter=AM", "--format=", "-z")
    fields = repository.run("log", "--all", "--reflog", "HEAD", *form, *which).split("\0")
    # Pairs such as `:000000 100644 0000 <blob> A` and `labels/images/0f3c.jpg`
    for about, path in pairwise(fields):
        if about.strip().startswith(":"):
            yield about.split()[3], path


def _references(repository: Repository, files: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    """The branches and tags whose commit has a file, for each."""
    names = repository.run("for-each-ref", "--format=%(refname)", *KINDS).splitlines()
    asked = [(name, file) for name in names for file in files]
    text = "".join(f"{name}:{path}\n" for name, (_, path) in asked)
    rows = repository.run("cat-file", "--batch-check=%(objectname)", stdin=text).splitlines()
    found: dict[tuple[str, str], list[str]] = {file: [] for file in files}
    for (name, file), row in zip(asked, rows, strict=True):
        if row == file[0]:
            found[file].append(name.split("/", 2)[2])
    return found


@dataclass(kw_only=True)
class Forgotten:
    """Where images were found, and what was changed."""

    work: str  # folder of the images to label
    excluded: Exclusions = field(default_factory=Exclusions)
    added: list[str] = field(default_factory=list)  # digests that were not excluded before
    unreadable: set[int] = field(default_factory=set)  # images without pixels that can be decoded here
    kept: dict[str, Counter[Found]] = field(default_factory=dict)  # removed from each place
    statistics: dict[str, int] = field(default_factory=dict)  # of each place, known by digests alone
    answers: Counter[Found] = field(default_factory=Counter)  # removed from the work folder
    labels: Counter[Found] = field(default_factory=Counter)  # removed from the project's labels
    records: Counter[tuple[Split, Found]] | None = None  # of this checkout; None: it has none
    committed: list[Committed] = field(default_factory=list)
    shallow: bool = False  # the clone lacks older commits
    images: set[int] = field(default_factory=set)  # the numbers of those that were found somewhere
    failed: dict[str, str] = field(default_factory=dict)  # places that were not searched, with the reason

    def seen(self) -> set[int]:
        """The numbers under which something was found."""
        counters = (*self.kept.values(), self.answers, self.labels)
        there = [each for counter in counters for each in counter]
        there += [each for _, each in self.records or ()] + [each.found for each in self.committed]
        return {each.image for each in there}


def forget(
    config: Config, repository: Repository, images: Sequence[Path | str], places: Iterable[str], because: str
) -> Forgotten:
    """Forget images, each named by a file or by the SHA-256 of one, here and in places of `serve --keep`.

    A place that cannot be reached stays as it is; the other ones are searched all the same.
    """
    wanted, found = Wanted(sides=_sides(config, repository)), Forgotten(work=str(config.paths.work / LABEL))
    for number, image in enumerate(images):
        if isinstance(image, str):
            wanted.add_digest(number, image)
        elif not wanted.add(number, image.read_bytes()):
            found.unreadable.add(number)
    found.excluded, first = exclude(repository, list(wanted.digests), because)  # before anything is removed
    known = None
    while known != wanted.known:  # a digest may lead to an image, of which there may be more elsewhere
        known = wanted.known
        _search(config, repository, images, places, wanted, found)
    found.excluded, more = exclude(repository, list(wanted.digests), because)
    found.added = sorted([*first, *more])
    found.shallow = repository.is_shallow()
    there = found.seen()
    found.images = {number for number in range(len(images)) if wanted.of(number) in there}
    return found


def exclude(repository: Repository, digests: Sequence[str], because: str) -> tuple[Exclusions, list[str]]:
    """Add digests to pins/exclusions.json; returns its content and the newly added digests."""
    before = Exclusions.read()
    new = sorted(set(digests) - set(before.digests))
    if not new:
        return before, []
    who = repository.run("var", "GIT_AUTHOR_IDENT").rpartition(" ")[0].rpartition(" ")[0]
    reason = Reason(because=because, who=who, date=datetime.now(UTC).date().isoformat())
    after = before.with_reason(dict.fromkeys(new, reason))
    after.write()
    return after, new


def _search(
    config: Config,
    repository: Repository,
    images: Sequence[Path | str],
    places: Iterable[str],
    wanted: Wanted,
    found: Forgotten,
) -> None:
    """Search everywhere once, remove what may be removed, and add it to what was found."""
    for url in places:
        shown = redacted(url)
        if not is_bucket(url) and not Path(url).is_dir():  # a disk may not be mounted
            known = config.paths.work / place.PLACES
            found.failed[shown] = f"there is no such folder; if it is gone for good, remove it from {known}"
            continue
        try:
            store = open_store(url)
            found.kept[shown] = found.kept.get(shown, Counter()) + place.remove_images(store, wanted)
            found.statistics[shown] = place.statistics(store)
            store.stop()
        except (PerennialError, OSError) as error:
            found.failed[shown] = str(error)
    named = [each for each in images if isinstance(each, Path)]
    try:
        found.committed = _find_committed(repository, wanted, named, found)
    except (PerennialError, OSError) as error:
        found.failed["git and DVC"] = str(error)
    found.answers += answers.remove_labelled(config.paths.work / LABEL, wanted)
    found.labels += answers.remove_labelled(labelled.FOLDER, wanted)
    if copies := answers.remove_copies(config.paths.work, wanted):
        found.kept[str(config.paths.work)] = found.kept.get(str(config.paths.work), Counter()) + copies
    found.records = _count_records(config, wanted)


def _sides(config: Config, repository: Repository) -> list[int]:
    """All values of dataset.max_side in the parameters and their history."""
    history = repository.ask("log", "--all", "-p", "-G", "max_side:", "--format=", "--", "params.yaml") or ""
    now = config.dataset.max_side
    return sorted({int(each) for each in MAX_SIDE.findall(history)} | ({now} if now else set()))


def _count_records(config: Config, wanted: Wanted) -> Counter[tuple[Split, Found]] | None:
    """Count the records of each split that were made of wanted images.

    They and their source files are known to `wanted` from then on. An image that is known only by its digest is
    also looked for as its record shows it. None: this checkout has no records, or they were not validated since
    they were written.
    """
    if (validated := _validated(config)) is None:
        return None
    index, records = validated
    found = Counter[tuple[Split, Found]]()
    digests = [each.tobytes().hex() for each in index["sha256"]]
    for number in (number for number, digest in enumerate(digests) if wanted.lacks_pixels(digest)):
        if (content := _content(records, number)) is not None:
            wanted.add(wanted.digests[digests[number]], content)
    near, names = set(_near(index, wanted)), dict[str, int]()
    for number, digest in enumerate(digests):
        each = None
        if digest in wanted.digests:
            each = Found(image=wanted.digests[digest], how="file")
        elif number in near and (content := _content(records, number)) is not None:
            each = wanted.find(content)
        if each is not None:
            found[SPLITS[index["split"][number]], each] += 1
            with suppress(DataError):
                if (fields := records.record(number).fields) and fields.filename:
                    names[fields.filename] = each.image
    if names:
        _add_files(config, wanted, names)
    return found


def _validated(config: Config) -> tuple[ImageIndex, Records] | None:
    """The index of images and the records; None if the numbers or sampled digests differ."""
    try:
        index = image_index.read(config.paths.index / image_index.FILE)
        records = Records(config.paths.records, config.paths.index)
    except DataError:
        return None
    splits = {split: part.examples for split, part in records.manifest.splits.items()}
    if any(splits.get(split, 0) != np.count_nonzero(index["split"] == n) for n, split in enumerate(SPLITS)):
        return None
    for number in np.linspace(0, len(index) - 1, min(len(index), SAMPLE), dtype=int).tolist():
        content = _content(records, number)
        if content is None or hashlib.sha256(content).digest() != index["sha256"][number].tobytes():
            return None
    return index, records


def _add_files(config: Config, wanted: Wanted, names: Mapping[str, int]) -> None:
    """Add the source files of records, whose digests stay the same if other parameters reduce them."""
    files.make_folder(config.paths.work)
    with tempfile.TemporaryDirectory(dir=config.paths.work, prefix="forget-") as folder, suppress(DataError):
        for examples in datasets.read(config.dataset, config.paths.raw, Path(folder)).splits.values():
            if examples.originals is None:
                continue
            there = [index for index, name in enumerate(examples.names) if name in names]
            for index, content in zip(there, examples.originals(there), strict=True):
                wanted.add(names[examples.names[index]], content)


def _content(records: Records, number: int) -> bytes | None:
    try:
        return records.record(number).encoded
    except DataError:
        return None


def _near(index: ImageIndex, wanted: Wanted) -> Iterator[int]:
    """The numbers of records with equal pixels or a similar hash, however an image lies."""
    for picture in wanted.pictures():
        for way in TURNED:
            _, prints = statistics.of_image(picture if way is None else picture.transpose(way))
            alike = (np.bitwise_count(index["hash"] ^ prints.hashes[0]) <= BITS) & (index["tiny"] == 0)
            yield from np.flatnonzero(alike | (index["pixels"] == prints.digests[0]).all(axis=1)).tolist()
