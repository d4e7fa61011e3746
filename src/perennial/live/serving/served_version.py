"""The served version: loaded, verified and tested, and replaced when `current` changes."""

import gc
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.json_format import MessageToDict
from tensorflow.core.protobuf import saved_model_pb2

from perennial.base import documents, files
from perennial.base.choices import is_bucket
from perennial.base.errors import DataError, PerennialError, QualityError, printable
from perennial.data.images import BadImage
from perennial.model.export_layout import CARD, DESCRIPTION, DIGESTS, GRAPH
from perennial.model.inference import image_inputs
from perennial.model.inference.classifier import Classifier
from perennial.model.inference.image_inputs import PixelBudget
from perennial.release.publishing import fetch_version
from perennial.release.publishing.load import find_export, load
from perennial.release.publishing.version_layout import CURRENT, RECORD, VersionRecord
from perennial.release.registry.checkout_state import rejection

log = logging.getLogger(__name__)
ERRORS = (PerennialError, OSError, ValueError, MemoryError, tf.errors.OpError)  # whose message says enough
ADVICE = "publish or export it again"
TRIAL_SIDE = 32  # of the test image, if the model takes any size
DIGITS = 12  # of the digest that identifies an unpublished export


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedVersion:
    """A loaded model. `number` is that of the published version, else the start of the export's digest."""

    number: str
    classifier: Classifier
    card: dict[str, Any]  # the model card; empty if the export has none
    signatures: dict[str, Any]  # TensorFlow's SignatureDefs as JSON
    loaded: float  # seconds since 1970


class Folder:
    """An export, or a publish folder whose link `current` points to one."""

    def __init__(self, path: str) -> None:
        self.name, self._path = path, Path(path)

    def key(self) -> str | None:
        """A cheap identifier of the current version, None without one; a new export may replace one by name."""
        try:
            folder = self.folder()
            status = (folder / GRAPH if (folder / GRAPH).exists() else folder).stat()
        except FileNotFoundError:  # the export is being replaced
            return None
        return f"{folder}\0{status.st_ino}\0{status.st_mtime_ns}"

    def folder(self) -> Path:
        """Return the real folder, which stays the same version when another is published."""
        current = self._path / CURRENT
        return find_export(self._path) or (current.resolve() if current.exists() else self._path)


class Bucket:
    """A prefix in S3 with versions, or a single version."""

    def __init__(self, url: str) -> None:
        self.name = url

    def key(self) -> str | None:
        """Return the digest of the current version's record."""
        return fetch_version.find(self.name).sha256

    def folder(self) -> Path:
        """Return its copy in the user's cache folder."""
        return fetch_version.cached(self.name)


def place(model: str) -> Folder | Bucket:
    """Return the origin that a path or URL names."""
    return Bucket(model) if is_bucket(model) else Folder(model)


def load_version(folder: Path, budget: PixelBudget) -> LoadedVersion:
    """Load the model of an export folder, after verifying its files, and test it on one image."""
    number = _number(folder)
    _require_recorded(folder)
    classifier = load(folder, budget=budget)
    height, width = (side or TRIAL_SIDE for side in classifier.image_size)
    (image,) = image_inputs.from_values(np.full((height, width, 1), 127, np.uint8))
    (output,) = classifier.outputs([image])
    if isinstance(output, BadImage):
        raise DataError(f"{folder} does not classify a grey image: {output.reason}")
    return LoadedVersion(
        number=number,
        classifier=classifier,
        card=documents.json_object((folder / CARD).read_bytes()) if (folder / CARD).is_file() else {},
        signatures=_signatures(folder / GRAPH),
        loaded=time.time(),
    )


def _number(folder: Path) -> str:
    if (folder / RECORD).is_file():
        return str(documents.read_checked(folder / RECORD, VersionRecord, ADVICE).version)
    for name in (DIGESTS, DESCRIPTION, Path(GRAPH)):
        if (folder / name).is_file():
            return files.sha256(folder / name)[:DIGITS]
    raise DataError(f"{folder} holds no {GRAPH}; {ADVICE}")


def _require_recorded(folder: Path) -> None:
    """Compare the files with the digests that publishing or export recorded, if any."""
    if (folder / RECORD).is_file():
        source, recorded = RECORD, documents.read_checked(folder / RECORD, VersionRecord, ADVICE).files
    elif (folder / DIGESTS).is_file():
        source, recorded = DIGESTS, documents.read_json(folder / DIGESTS)
    else:
        return
    for name, digest in recorded.items():
        if not (folder / name).is_file() or files.sha256(folder / name) != digest:
            state = "was changed" if (folder / name).is_file() else "is missing"
            raise DataError(f"{folder} differs from {source}: {name} {state}; {ADVICE}")


def _signatures(file: Path) -> dict[str, Any]:
    graph = saved_model_pb2.SavedModel.FromString(file.read_bytes()).meta_graphs[0]
    found = graph.signature_def.items()
    return {
        name: MessageToDict(each, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        for name, each in sorted(found)
        if not name.startswith("__")
    }


class Follower:
    """Hold the current version; load a new one in a thread, and stay if it cannot be loaded."""

    def __init__(
        self,
        place: Folder | Bucket,
        budget: PixelBudget,
        poll_s: float,
        on_load: Callable[[LoadedVersion | None], object],
        decision: Path | None = None,
    ) -> None:
        self.current: LoadedVersion | None = None
        self.rejected: str | None = None  # why the gate rejected the current version, if it did
        self._decision = decision
        self._place, self._budget, self._poll_s, self._on_load = place, budget, poll_s, on_load
        self._seen: str | None = None
        self._failure = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def start(self, failed: Callable[[Exception], object]) -> None:
        """Start the thread, which loads the first version and then polls; an error is passed to `failed`."""
        self._failed = failed
        # Objects of libraries stay: exclude them from collections, which hold Python's lock for half a second.
        gc.collect()
        gc.freeze()
        self._thread.start()

    def stop(self, timeout_s: float = 1) -> bool:
        """Stop polling; return False if a version is still being loaded after the timeout."""
        self._stopped.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def look(self) -> None:
        """Load the current version if it has changed."""
        key = self._seen
        try:
            key = self._place.key()
            if key is None or key == self._seen:
                return
            version = load_version(self._place.folder(), self._budget)
            if self._place.key() != key:  # replaced in the meantime, perhaps during the load
                return
        except (DataError, QualityError) as error:
            self._refuse(error)
            self._seen = key
        except Exception as error:
            self._refuse(error)  # the next check retries: network, disk or memory may recover
            if not isinstance(error, ERRORS):
                log.debug("the error of the new version:", exc_info=True)
        else:
            self._seen, self._failure = key, ""
            self._use(version)
            gc.collect()  # the graph of the previous version has reference cycles

    def _use(self, version: LoadedVersion) -> None:
        before, self.current = self.current, version
        self._on_load(version)
        instead = f" instead of version {before.number}" if before else ""
        log.info("serving version %s of %s%s", version.number, printable(self._place.name), instead)

    def judge(self) -> None:
        """Look whether the gate rejected the current version, and log it once."""
        if self._decision is None or self.current is None:
            return
        why = rejection(self._decision, self.current.card.get("weights_sha256"))
        if why and why != self.rejected:
            log.warning("the gate rejected version %s: %s", self.current.number, why)
        self.rejected = why

    def _refuse(self, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        if reason == self._failure:
            return
        self._failure = reason
        self._on_load(None)
        number = self.current.number if self.current else "none"
        log.warning("refused a new version, keeping version %s: %s", number, reason)

    def _run(self) -> None:
        try:
            self._seen = self._place.key()
            self._use(load_version(self._place.folder(), self._budget))
        except Exception as error:  # noqa: BLE001 - the server must end
            self._failed(error)
            return
        self.judge()
        while not self._stopped.wait(self._poll_s):
            self.look()
            self.judge()
