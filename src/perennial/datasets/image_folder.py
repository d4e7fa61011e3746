"""Images of one's own: a folder or an archive with a folder for each class, laid out as `folder` says."""

import shutil
from pathlib import Path

from perennial import archives
from perennial.datasets import folder
from perennial.datasets.dataset import Dataset, Source
from perennial.errors import DataError

SUFFIXES = {"tar": ".tar", "gzip": ".tar.gz", "bzip2": ".tar.bz2", "xz": ".tar.xz", "zip": ".zip"}


def collect(content: Path, raw: Path) -> None:
    """Puts a folder of images into the raw folder as `images.tar`, or an archive as `images` with its ending.

    An archive is copied: the raw folder is made read-only, and what a person owns is not.

    Raises:
        DataError: there is nothing, a file cannot be read, or it is no archive. Whether an archive is whole is
            seen when it is expanded.
    """
    if content.is_dir():
        if not any(path.is_dir() for path in content.iterdir()):
            raise DataError(f"{content} holds no folders; put images into {content}/<class>/<image>")
        archives.pack(content, raw / "images.tar")
    elif content.is_file():
        shutil.copyfile(content, raw / f"images{SUFFIXES[archives.format_of(content)]}")
    else:
        raise DataError(f"{content} does not exist; dataset.path names a folder of images or an archive of one")


def read(raw: Path) -> Source:
    """The images in the one plain tar file of the folder."""
    tars = sorted(raw.glob("*.tar"))
    if len(tars) != 1:
        raise DataError(f"{raw} holds {[tar.name for tar in tars]}, expected one .tar file")
    return folder.read(tars[0])


IMAGE_FOLDER = Dataset(read=read, collect=collect, decoded=True)
