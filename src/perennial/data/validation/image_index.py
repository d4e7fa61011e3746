"""The image index: digests and a perceptual hash of each record, to find images in old versions.

The validate stage writes it beside the record positions, from values that it computes anyway. It is small
(58 bytes for each image) and versioned, so old versions are searched without their records.
"""

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perennial.base.choices import SPLITS
from perennial.base.errors import DataError
from perennial.data.validation.integrity import Findings

FILE = "images.npy"
ENTRY = np.dtype(
    [
        ("sha256", "u1", (32,)),  # of the image file in the record
        ("pixels", "<u8", (2,)),  # digest of size and pixels
        ("hash", "<u8"),  # perceptual
        ("tiny", "u1"),  # whether the image is too small for a meaningful hash
        ("split", "u1"),  # number in SPLITS
    ]
)
# [N]: an entry for each record, of train, then validation, then test, in the order of `perennial show N`.
ImageIndex = NDArray[np.void]


def of(findings: Findings) -> ImageIndex:
    """Build the index from the findings of a full check without problems."""
    entries = np.zeros(sum(len(part.numbers) for part in findings.hashed), ENTRY)
    first = 0
    for part in findings.hashed:
        own, prints = entries[first : first + len(part.numbers)], part.fingerprints
        own["sha256"], own["pixels"], own["hash"] = part.sha256, prints.digests, prints.hashes
        own["tiny"], own["split"] = part.tiny, SPLITS.index(part.split)
        first += len(own)
    return entries


def content(index: ImageIndex) -> bytes:
    """The file of an index."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, index, allow_pickle=False)
    return stream.getvalue()


def read(file: Path) -> ImageIndex:
    """Read the index from a file."""
    try:
        # Unlike np.load, it accepts neither archives nor pickles.
        found: ImageIndex = np.lib.format.open_memmap(file, mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} is not an index of images: {error}") from error
    if found.dtype != ENTRY or found.ndim != 1 or found["split"].max(initial=0) >= len(SPLITS):
        raise DataError(f"{file} is not an index of images: it holds {found.dtype} {list(found.shape)}")
    return found
