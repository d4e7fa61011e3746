"""The raw files as their readers want them: uncompressed."""

import os
from pathlib import Path

from perennial import files
from perennial.datasets import archives
from perennial.errors import DataError

ARCHIVES = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".tar", ".zip")


def unpack(raw: Path, folder: Path) -> None:
    """Puts every raw file into a folder: archives as plain `.tar`, others without their `.gz`.

    Raises:
        DataError: there is nothing, or a file is not whole. A gzip stream is read to its end, because only
            there stands its checksum.
    """
    found = sorted(path for path in raw.glob("*") if path.is_file() and path.name != files.MARK)
    if not found:
        raise DataError(f"{raw} holds no files; `dvc repro download` fetches them")
    for file in found:
        ending = next((ending for ending in ARCHIVES if file.name.lower().endswith(ending)), None)
        name = file.name.removesuffix(".gz") if ending is None else f"{file.name[: -len(ending)]}.tar"
        target = folder / name
        if os.path.lexists(target):
            raise DataError(f"{raw} holds two files that would both be {name} when they are unpacked")
        if ending is not None:
            archives.expand(file, target)
        elif file.suffix == ".gz":
            with files.naming(target), target.open("wb") as stream:
                archives.inflate(file, "gzip", stream)
        else:
            target.symlink_to(file.resolve())
