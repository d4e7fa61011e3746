"""Publishing to a bucket: files below `<version>/`, then their record, then a conditional write of `current`.

`current` names a version and the SHA-256 of its record, which holds those of the files; readers in that order
never see an incomplete model. `claims/<version>` assigns each number to one export, so that two publishers
never write the same version, and a killed publisher can continue its own.
"""

import hashlib
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

from perennial.base import documents, files
from perennial.base.errors import DataError, PerennialError
from perennial.base.storage import Changed, Missing, Store, open_store, together
from perennial.data.downloads.progress_bar import progress_bar
from perennial.model.export_layout import DESCRIPTION
from perennial.release.publishing import version_layout as layout
from perennial.release.publishing.fetch_version import StoredVersion

log = logging.getLogger(__name__)
CLAIMS = "claims"
# Uploaded last, so that a server that watches the bucket cannot load an incomplete version.
GRAPH_LAST = ("saved_model.pb",)


def add(place: str, allowed: layout.AllowedExport, options: Mapping[str, str] = {}) -> layout.Published:
    """Publish as `publish_to_folder.add` does; `options`: of a DVC remote."""
    store = open_store(place, options)
    before, etag = _pointer(store)
    now = None if before.version is None else StoredVersion.at(store, f"{before.version}/").record.files
    if before.version is not None and now == allowed.digests:
        return _published(store, before.version, moved=False)
    _warn_unless_conditional(store)
    for version in before.rolled_back:
        if _description(store, version) == (allowed.export / DESCRIPTION).read_bytes():
            raise layout.rolled_back_refusal(allowed.export, version, store.url, before.version)
    version = _claimed(store, before, allowed)
    _upload(store, version, allowed.export, allowed.digests)
    store.put(f"{version}/{layout.PROVENANCE.as_posix()}", allowed.provenance)
    record = allowed.record(version)
    store.put(f"{version}/{layout.RECORD.as_posix()}", record)
    return _point(store, before, etag, version, record, before.rolled_back)


def roll_back(place: str, version: int | None, options: Mapping[str, str] = {}) -> layout.Published:
    """Roll back as `publish_to_folder.roll_back` does; `options`: of a DVC remote."""
    store = open_store(place, options)
    before, etag = _pointer(store)
    record = layout.RECORD.as_posix()
    complete = [each for each in store.numbers() if next(iter(store.list(f"{each}/{record}")), None)]
    history = layout.PublishedVersions(store.url, complete, before.version, before.rolled_back)
    version = history.target(version)
    published = StoredVersion.at(store, f"{version}/")
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        published.download(Path(folder))
    rolled_back = history.rolled_back_to(version)
    if version == before.version and rolled_back == before.rolled_back:
        return _published(store, version, moved=False)
    _warn_unless_conditional(store)
    return _point(store, before, etag, version, published.content, rolled_back)


def _pointer(store: Store) -> tuple[layout.Pointer, str | None]:
    """The content of `current`, and its ETag; without that object, nothing is published."""
    try:
        content, entry = store.get_bytes(layout.CURRENT)
    except Missing:
        return layout.Pointer(), None
    where = f"{store.url}/{layout.CURRENT}"
    return documents.parse_checked(content, where, layout.Pointer, layout.UNCHANGED), entry.etag


def _warn_unless_conditional(store: Store) -> None:
    if not store.conditional():
        what = "ignores conditional writes: two publishers at the same time are not kept apart"
        log.warning("%s %s; publish to it from one place only", store.url, what)


def _description(store: Store, version: int) -> bytes | None:
    """The model of a version, regardless of its card and other formats."""
    try:
        return store.get_bytes(f"{version}/{DESCRIPTION.as_posix()}")[0]
    except Missing:
        return None


def _claimed(store: Store, before: layout.Pointer, allowed: layout.AllowedExport) -> int:
    """Claim a number for this export: a new one, or the highest if a publisher of the same export left it."""
    content = files.json_bytes({"files": dict(allowed.digests), "decision": dict(allowed.decision)})
    claim = files.json_bytes({"sha256": hashlib.sha256(content).hexdigest()})
    while True:
        names = (each.key.removeprefix(f"{CLAIMS}/") for each in store.list(f"{CLAIMS}/"))
        claims = [int(name) for name in names if name.isdecimal()]
        highest = max([0, before.version or 0, *before.rolled_back, *store.numbers(), *claims])
        taken = {before.version, *before.rolled_back}
        if highest in set(claims) - taken and store.get_bytes(f"{CLAIMS}/{highest}")[0] == claim:
            return highest
        try:
            store.put(f"{CLAIMS}/{highest + 1}", claim, if_none_match=True)
        except Changed:
            continue
        return highest + 1


def _upload(store: Store, version: int, export: Path, digests: Mapping[str, str]) -> None:
    """Upload the missing files of an export, and compare the result."""
    sizes = {name: (export / name).stat().st_size for name in digests}
    present = {each.key.partition("/")[2]: each for each in store.list(f"{version}/")}
    same_size = {name for name, each in present.items() if each.size == sizes.get(name)}
    # Most stores list the MD5 of an object.
    missing = [n for n in digests if n not in same_size or present[n].md5 != files.md5(export / n)]
    with progress_bar(f"version {version}", 0, sum(sizes[name] for name in missing)) as advance:
        for names in ([n for n in missing if n not in GRAPH_LAST], [n for n in missing if n in GRAPH_LAST]):
            for entry in together(store, lambda name: store.put(f"{version}/{name}", export / name), names):
                advance(entry.size)
    found = {each.key.partition("/")[2]: each.size for each in store.list(f"{version}/")}
    if layout.of_export(found) != sizes or files.digests(export) != digests:
        raise DataError(
            f"{store.url}/{version} differs from {export}: the export was changed meanwhile, or another "
            f"program writes there; {layout.CURRENT} is unchanged; run this again"
        )


def _point(
    store: Store, before: layout.Pointer, etag: str | None, version: int, record: bytes, rolled_back: list[int]
) -> layout.Published:
    """Write `current`, unless it has changed since this began."""
    pointer = layout.Pointer(
        version=version, record_sha256=hashlib.sha256(record).hexdigest(), rolled_back=rolled_back
    )
    content = files.json_bytes(pointer.model_dump())
    try:
        # If the store ignores conditions, compare by reading before and after.
        if store.conditional() or _pointer(store)[1] == etag:
            store.put(layout.CURRENT, content, if_match=etag, if_none_match=etag is None)
        won = store.conditional()
    except Changed:
        won = False
    now = pointer if won else _pointer(store)[0]
    if now == pointer:
        return _published(store, version, moved=version != before.version)
    raise PerennialError(
        f"another publisher made version {now.version} of {store.url} current meanwhile; version {version} is "
        "complete but not current; run this again if it should be"
    )


def _published(store: Store, version: int, *, moved: bool) -> layout.Published:
    return layout.Published(version, f"{store.url}/{version}", moved=moved)
