"""Which images of traffic to label next: half or more drawn at random, the others where labels teach most.

A hash of its digest decides once whether an image may be drawn or chosen, so what is drawn stays fair however
many queues went before. Of those that may be chosen, images on which the candidate in the shadow disagreed
come first, in random order, so that their labels are fair evidence about the two models; then typical ones,
while there are few labels; then those with the smallest margin between the two most probable classes, spread
over the predicted classes. Of several labels an image, the margin is the smallest distance of a class to its
threshold, in log odds, spread over these classes (K. Brinker, On Active Learning in Multi-label
Classification, 2006). Chosen images that look like another one of the queue or a labelled one are left out.
"""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perennial.base import documents
from perennial.base.project.pins import Digest
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import Label, Reason, may_be_drawn
from perennial.data.images import Refused, decode, statistics
from perennial.data.images.decode import PILLOW_ERRORS
from perennial.data.validation.inspection import TINY_PIXELS
from perennial.live.capture.place import KeptImage, Labels, Top
from perennial.live.label import typical

log = logging.getLogger(__name__)
COUNT = 300  # images of a queue, by default
Fetch = Callable[[str], bytes | None]  # the content of an image by SHA-256; None if it is gone


class QueuedImage(documents.JsonFile):
    """An image to label."""

    sha256: Digest
    reason: Reason
    version: str = ""  # empty: no model has seen it
    served: str = ""  # class, or several labels as a JSON list
    candidate_version: str = ""
    candidate: str = ""  # the same

    def labelled(self, name: str, who: str, time: str) -> Label:
        """The row of the table of labels; an empty name means none of the classes."""
        return Label(class_=name, who=who, time=time, **self.model_dump())


class Queue(documents.JsonFile):
    """The images of a place to label, in this order."""

    place: str
    seed: int
    images: list[QueuedImage]


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """All that the records say of an image."""

    last: KeptImage  # with the candidate's answer, if any record has one
    share: float | None  # the probability with which it was drawn; None if it was not drawn at random

    @property
    def disagrees(self) -> bool:
        return bool(self.last.candidate_top) and self.candidate != self.served

    @property
    def served(self) -> str:
        return _named(self.last.top, self.last.labels)

    @property
    def candidate(self) -> str:
        return _named(self.last.candidate_top, self.last.candidate_labels) if self.last.candidate_top else ""

    @property
    def unsure(self) -> str:
        """The class that the margin is of."""
        return self.last.nearest[0] if self.last.nearest else self.last.top[0][0]

    @property
    def margin(self) -> float:
        if self.last.nearest:
            return self.last.nearest[1]
        first, second = (*(share for _, share in self.last.top[:2]), 0.0)[:2]
        return first - second

    def queued(self, reason: Reason) -> QueuedImage:
        last = self.last
        return QueuedImage(
            sha256=last.sha256, reason=reason, version=last.version, served=self.served,
            candidate_version=last.candidate or "", candidate=self.candidate,
        )  # fmt: skip


def _named(top: Top, labels: Labels | None) -> str:
    return top[0][0] if labels is None else labelled.cell(labels)


class Lookalikes:
    """The perceptual hashes of images: whether another one looks like one of them."""

    def __init__(self, bits: int | None) -> None:
        self._bits = bits
        self._hashes, self._digests = list[int](), set[bytes]()

    def add(self, content: bytes) -> bool:
        """Add an image unless it looks like one that was added; returns whether it was."""
        try:
            opened = decode.opened(content)
            opened.load()
            image = decode.plain(opened)
        except (Refused, *PILLOW_ERRORS):
            return False
        _, prints = statistics.of_image(image)
        digest, found = prints.digests.tobytes(), int(prints.hashes[0])
        if digest in self._digests:
            return False
        if self._bits is not None and image.width * image.height >= TINY_PIXELS:
            if any((found ^ other).bit_count() <= self._bits for other in self._hashes):
                return False
            self._hashes.append(found)
        self._digests.add(digest)
        return True


@dataclass(frozen=True, kw_only=True)
class Choice:
    """How the images of a queue are chosen."""

    count: int = COUNT  # of images, at most
    least: int = 0  # of them at random; else half
    seed: int = 0
    bits: int | None = None  # by which the perceptual hashes of look-alikes differ at most; None: any may come
    few: bool = False  # whether too few labels were seen for margins


def choose(
    records: Iterable[KeptImage], fetch: Fetch, how: Choice, labelled: Iterable[bytes] = ()
) -> list[QueuedImage]:
    """Choose images, half of them at random; `labelled` ones have a label. Equal arguments, equal queues."""
    there, count, seed, alike = _candidates(records), how.count, how.seed, Lookalikes(how.bits)
    for content in (with_label := list(labelled)):
        alike.add(content)

    def typical_of(names: Sequence[str]) -> list[str]:
        pool = sorted(names, key=lambda name: number(seed, "pool", name))[: typical.POOL]
        return typical.choose(pool, fetch, with_label, count, seed) if how.few else []

    drawn, chosen = _drawn(there, seed), _chosen(there, seed, typical_of)
    queue: dict[str, QueuedImage] = {}

    def take(order: Iterator[QueuedImage], most: int, *, different: bool) -> None:
        for each in order if len(queue) < most else ():
            content = None if each.sha256 in queue else fetch(each.sha256)
            if content is not None and (alike.add(content) or not different):
                queue[each.sha256] = each
            if len(queue) >= most:
                return

    take(drawn, min(max((count + 1) // 2, how.least), count), different=False)
    take(chosen, count, different=True)
    take(drawn, count, different=False)
    log.info("%d images to label of %d", len(queue), len(there))
    return sorted(queue.values(), key=lambda each: number(seed, "order", each.sha256))


def _candidates(records: Iterable[KeptImage]) -> Mapping[str, _Candidate]:
    found: dict[str, _Candidate] = {}
    for each in records:
        if not each.top:
            continue
        share = each.probability if each.reason == "random" else None
        if before := found.get(each.sha256):
            last = each if each.candidate_top or not before.last.candidate_top else before.last
            shares = [known for known in (share, before.share) if known is not None]
            found[each.sha256] = replace(before, last=last, share=max(shares, default=None))
        else:
            found[each.sha256] = _Candidate(last=each, share=share)
    return found


def _drawn(there: Mapping[str, _Candidate], seed: int) -> Iterator[QueuedImage]:
    """Those drawn at random, in an order that undoes different probabilities of being kept (Ohlsson 1998)."""
    keys = {
        name: number(seed, "drawn", name) * each.share
        for name, each in there.items()
        if each.share is not None and may_be_drawn(name)
    }
    return (there[name].queued("random") for name in sorted(keys, key=keys.__getitem__))


def _chosen(
    there: Mapping[str, _Candidate],
    seed: int,
    typical_of: Callable[[Sequence[str]], Sequence[str]] = lambda _: (),
) -> Iterator[QueuedImage]:
    """Disagreements at random, typical ones, then the others by margin, one of each predicted class in turn."""
    there = {name: each for name, each in there.items() if not may_be_drawn(name)}
    disagreeing = [name for name, each in there.items() if each.disagrees]
    disagreeing.sort(key=lambda name: number(seed, "chosen", name))
    yield from (there[name].queued("disagreement") for name in disagreeing)
    chosen = typical_of(sorted(there.keys() - set(disagreeing)))
    yield from (there[name].queued("typical") for name in chosen)
    classes: dict[str, list[str]] = defaultdict(list)
    others = sorted(there.keys() - {*disagreeing, *chosen}, key=lambda name: (there[name].margin, name))
    for name in others:
        classes[there[name].unsure].append(name)
    for turn in range(max(map(len, classes.values()), default=0)):
        for names in classes.values():
            yield from (there[name].queued("margin") for name in names[turn : turn + 1])


def number(seed: int, *what: str) -> float:
    """A number above 0 and below 1 that only depends on its arguments."""
    digest = hashlib.sha256(":".join((str(seed), *what)).encode()).digest()
    return (int.from_bytes(digest[:6]) + 0.5) / 2**48


def left(images: Sequence[QueuedImage], known: Collection[str]) -> list[QueuedImage]:
    """Those without a label."""
    return [each for each in images if each.sha256 not in known]
