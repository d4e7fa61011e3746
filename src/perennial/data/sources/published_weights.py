"""The weights that `model.weights: imagenet` names: fetched once, verified, and kept in the work folder."""

import logging
import mmap
import os
from pathlib import Path

from perennial.base import files
from perennial.base.config import Config
from perennial.base.config.networks import PublishedWeights, published
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.data.downloads import spec as specs
from perennial.data.downloads.connection import credentials_for
from perennial.data.downloads.fetch import Fetcher
from perennial.data.downloads.spec import LIMITS, FileSpec, TransferLimits, record_digest, recorded_digests
from perennial.data.sources.weights import DOWNLOADS

log = logging.getLogger(__name__)
HDF5 = b"\x89HDF\r\n\x1a\n"
LAYERS, WEIGHTS = b"layer_names", b"vars"  # names in the files of Keras Applications, and of Keras 3
MD5_DIGITS = 32
ALTERNATIVES = " Or set model.weights to the path of such a file, or to null for random weights."


def fetch(config: Config, limits: TransferLimits = LIMITS) -> Path:
    """Return the verified file: from an earlier call, placed by hand, from Keras' own cache, or downloaded.

    The first file is compared with the digest that Keras publishes (for MobileNet V1 and V2, and presets of
    KerasHub, it publishes none). Its digest is then recorded in digests.json, and later files are compared
    with that.
    """
    if (found := published(config.model.name, config.preprocessing.image_size)) is None:
        raise ConfigError(f"model.weights: imagenet is not published for model.name {config.model.name}")
    folder, url = config.paths.work / DOWNLOADS / found.preset, config.model.weights_url
    recorded = recorded_digests(config.paths.digests).get(found.url)
    spec = _spec(found, recorded)
    file = folder / found.name
    if not (file.is_file() and spec.digest is None):  # else the user put it there
        address = url.rstrip("/") + "/" if url else found.folder
        fetcher = Fetcher(
            mirrors=(*_keras_cache(found.name), address),
            folder=folder,
            limits=limits,
            credentials=credentials_for(address) if url else None,
        )
        try:
            fetcher.fetch_all([spec])
        except (DataError, PerennialError) as error:
            raise type(error)(f"{error}{_remedies(found, spec, address, config)}") from error
    _require_keras_weights(file, WEIGHTS if found.preset else LAYERS)
    if recorded is None:
        record_digest(config.paths.digests, found.url, files.sha256(file))
    return file


def _spec(found: PublishedWeights, recorded: str | None) -> FileSpec:
    """Return the spec of the file; a recorded digest takes precedence over the published one."""
    digest = recorded or found.digest
    if digest is not None and len(digest) == MD5_DIGITS:
        return FileSpec(name=found.name, md5=digest)
    return FileSpec(name=found.name, sha256=digest)


def _keras_cache(name: str) -> list[str]:
    """Return the URL of Keras' own download folder, if the file is there."""
    # Path.home() fails for a user without a home folder.
    keras_home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")  # noqa: PTH111
    folder = Path(keras_home).absolute() / "models"
    return [f"{folder.as_uri()}/"] if (folder / name).is_file() else []


def _remedies(found: PublishedWeights, spec: FileSpec, address: str, config: Config) -> str:
    """Advice for working offline, and how to accept another file than the first one."""
    folder = (config.paths.work / DOWNLOADS / found.preset).absolute()
    where = f"put {spec.name} from {specs.public_url(address)} into {folder} and run this again"
    offline = "" if spec.digest else f" If you are offline, {where}."  # with a digest, the error says it
    if found.url not in recorded_digests(config.paths.digests):
        return offline + ALTERNATIVES
    return (
        f"{offline}{ALTERNATIVES} The digest is that of the first download; to accept another file, remove the "
        f"entry {found.url} from {config.paths.digests}."
    )


def _require_keras_weights(file: Path, marker: bytes) -> None:
    """Check the format before the digest is recorded."""
    with file.open("rb") as stream:
        start = stream.read(len(HDF5))
        if start == HDF5:
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content.find(marker) >= 0:  # HDF5 stores names of attributes as they are
                    return
    if start == HDF5:
        raise DataError(
            f"{file} has no {marker.decode()}, as the published files do: Keras Applications has another "
            "format than KerasHub and `save_weights` of Keras 3; no digest was recorded; put the published "
            "file in its place, or set model.weights to the path of this one"
        )
    file.unlink()
    raise DataError(
        f"{file} starts with {start!r}, expected an HDF5 file: the server sent something else, such as a "
        "login page; the file was removed; open the address in a browser, then run this again"
    )
