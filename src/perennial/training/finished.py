"""Trainings that have ended: their checkpoints only make a second run of the same quick."""

import logging
import shutil
from pathlib import Path

from perennial import files

log = logging.getLogger(__name__)
MARK = "finished"


def mark(folder: Path, *, started_from: str | None) -> None:
    """Notes that a training has written its model; removes the finished trainings beside it.

    Those are of other parameters, data or code, and every retraining on new data would leave one more. What
    has not finished stays, since it can be resumed, and so do the weights that this training started from.
    """
    files.write_bytes(folder / MARK, b"")
    source = Path(started_from).resolve() if started_from else None
    for other in sorted(folder.parent.iterdir()):
        used = source is not None and source.is_relative_to(other.resolve())
        if other != folder and (other / MARK).exists() and not used:
            # Under its own name a half-removed one would look like one with damaged checkpoints.
            removed = other.rename(other.with_name(f".{other.name}.removed"))
            log.info("the finished training %s is removed: another has taken its place", other.name[:12])
            shutil.rmtree(removed)
        elif other.name.endswith(".removed"):
            shutil.rmtree(other)
