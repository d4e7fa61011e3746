"""A place with images that a server has kept."""

import hashlib

import numpy as np
from support.raw import encoded

from perennial.base.storage import Store
from perennial.live.capture import place
from perennial.live.capture.place import KeptImage

DAY = "2026-11-27"


def image(number: int, side: int = 40) -> bytes:
    """A PNG that looks like no other one."""
    small = np.random.default_rng(number).integers(0, 256, (8, 8, 3), np.uint8)
    return encoded(np.kron(small, np.ones((side // 8, side // 8, 1), np.uint8)))


def record(content: bytes = b"", served: str = "cat", share: float = 0.6, **fields: object) -> KeptImage:
    """What a server records of an image that it answers with `served`."""
    other = "dog" if served == "cat" else "cat"
    values = {
        "time": f"{DAY}T02:00:00.000+00:00", "model": "pets", "version": "7", "reason": "random",
        "probability": 0.01, "top": ((served, share), (other, 1 - share)),
        "sha256": hashlib.sha256(content).hexdigest(), **fields,
    }  # fmt: skip
    return KeptImage(**values)  # type: ignore[arg-type]


def keep(store: Store, contents: list[bytes], records: list[KeptImage]) -> None:
    """Write images and records as servers do."""
    for content in contents:
        place.put_image(store, DAY, content)
    place.put_records(store, DAY, f"a{len(records)}", records)
