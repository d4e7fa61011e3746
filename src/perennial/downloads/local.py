"""A file:// address: a folder of this machine as a mirror."""

from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from perennial import files
from perennial.downloads import addresses, room
from perennial.downloads.failures import Refused
from perennial.downloads.http import Job
from perennial.downloads.resume import Version


def copy(job: Job) -> None:
    """Copies the file from its first byte.

    Raises:
        Refused: there is nothing to read.
        PerennialError: the disk refuses.
    """
    source = Path(url2pathname(urlsplit(job.url).path))
    try:
        with source.open("rb") as stream:
            size = source.stat().st_size
            job.partial.begin(Version(url=addresses.public(job.url), etag=None, last_modified=None, total=None))
            room.require(job.partial.file.parent, size)
            while piece := stream.read(files.CHUNK_BYTES):
                job.partial.append(piece)
    except OSError as error:
        raise Refused(error.strerror or str(error)) from error
