"""What the labels of several queues in a row say of a model's error, and what they would say without the pools.

A place holds 3,000 images, each with a margin and a chance of being wrong that goes with it, 7 % on average.
Five queues of 300 are drawn and labelled in turn by the program's own code. The peer draws its random half from
all images without a label, so each queue leaves out the hard images that those before it chose. PLACES (default
200) is the number of places.
"""

import hashlib
import os
import statistics
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks import results
from perennial.data.images import png
from perennial.live.capture.place import KeptImage
from perennial.live.label import queue
from perennial.model.evaluation.intervals import wilson

PLACES = int(os.environ.get("PLACES", "200"))
IMAGES, QUEUES, COUNT, ERROR = 3000, 5, 300, 0.07
SHAPE = 0.25  # of the distribution of chances: most images are easy
DAY = "2026-11-27T02:00:00.000+00:00"
Halves = tuple[list[str], list[str]]  # drawn at random, and chosen
Queue = Callable[[list[KeptImage], set[str]], Halves]


def measure() -> None:
    """Simulates, prints a table and writes the results."""
    rows = {name: _row(scheme) for name, scheme in (("pools", _pools), ("one pool", _one_pool))}
    print(f"\nerror of {ERROR:.2%} in {PLACES} places; all random labels until queue ...")
    for name, row in rows.items():
        print(f"  {name:<10}" + "".join(f"{each['error']:>8.2%} ({each['coverage']:.0%})" for each in row))
    results.write("label_queues", rows=rows, places=PLACES, images=IMAGES, count=COUNT, error=ERROR)


def _row(scheme: Queue) -> list[dict[str, float]]:
    """After each queue: the error that its random labels say, of the last queue and of all so far."""
    found = [list(_place(scheme, seed)) for seed in range(PLACES)]
    return [
        {
            "error": statistics.mean(place[at][0] for place in found),
            "of this queue": statistics.mean(place[at][1] for place in found),
            "true": statistics.mean(place[at][3] for place in found),
            "coverage": statistics.mean(place[at][2] for place in found),
        }
        for at in range(QUEUES)
    ]


def _place(scheme: Queue, seed: int) -> Iterator[tuple[float, float, bool, float]]:
    random = np.random.default_rng(seed)
    chances = random.beta(SHAPE, SHAPE * (1 - ERROR) / ERROR, IMAGES)
    wrong = random.random(IMAGES) < chances
    names = [hashlib.sha256(f"{seed}:{number}".encode()).hexdigest() for number in range(IMAGES)]
    records = [
        KeptImage(
            time=DAY, model="m", version="1", sha256=name, top=(("cat", 1 - chance), ("dog", chance)),
            reason="random", probability=0.1,
        )
        for name, chance in zip(names, np.minimum(chances, 0.5).tolist(), strict=True)
    ]  # fmt: skip
    is_wrong, known, drawn = dict(zip(names, wrong.tolist(), strict=True)), set[str](), list[bool]()
    for _ in range(QUEUES):
        at_random, chosen = scheme(records, known)
        known.update(at_random, chosen)
        latest = [is_wrong[name] for name in at_random]
        drawn += latest
        low, high = wilson(sum(drawn), len(drawn))
        true = float(np.mean(wrong))
        yield statistics.mean(drawn), statistics.mean(latest), low <= true <= high, true


def _pools(records: list[KeptImage], known: set[str]) -> Halves:
    """A queue as the program draws it."""
    without = [each for each in records if each.sha256 not in known]
    images = queue.choose(without, _image, queue.Choice(count=COUNT))
    drawn = [each.sha256 for each in images if each.reason == "random"]
    return drawn, [each.sha256 for each in images if each.reason != "random"]


def _image(name: str) -> bytes:
    """An image that looks like no other one."""
    return png.encode(np.frombuffer(bytes.fromhex(name)[:27], np.uint8).reshape(3, 3, 3))


def _one_pool(records: list[KeptImage], known: set[str]) -> Halves:
    """A queue whose halves come from all images without a label; the names are digests, so in random order."""
    margins = {each.sha256: each.top[0][1] - each.top[1][1] for each in records if each.sha256 not in known}
    drawn = sorted(margins)[: COUNT // 2]
    return drawn, sorted(margins.keys() - set(drawn), key=margins.__getitem__)[: COUNT // 2]


if __name__ == "__main__":
    measure()
