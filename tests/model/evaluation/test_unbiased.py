"""The score of a champion on test examples that played no part in choosing it."""

import hashlib

import numpy as np
import pytest

from perennial.base.choices import SPLITS
from perennial.data.validation.image_index import ENTRY, ImageIndex
from perennial.model.evaluation import unbiased


def index(*images: tuple[str, int], pixels: dict[int, int] | None = None) -> ImageIndex:
    """An index of images by their split and number; `pixels`: numbers of images with the same pixels."""
    entries = np.zeros(len(images), ENTRY)
    for entry, (split, number) in zip(entries, images, strict=True):
        entry["sha256"], entry["split"] = number, SPLITS.index(split)
        entry["pixels"] = (pixels or {}).get(number, number)
    return entries


def test_an_image_is_known_by_its_file_in_any_split_of_the_version() -> None:
    before = index(("train", 1), ("validation", 2), ("test", 3))
    now = index(("train", 9), ("test", 1), ("test", 2), ("test", 3), ("test", 4))
    assert unbiased.parts(now, before).tolist() == [
        unbiased.TRAINED, unbiased.TRAINED, unbiased.CHOSE, unbiased.NO_PART,
    ]  # fmt: skip


def test_an_image_in_another_file_is_known_by_its_pixels() -> None:
    before, now = index(("train", 1)), index(("test", 5), pixels={5: 1})
    assert unbiased.parts(now, before).tolist() == [unbiased.TRAINED]


def test_examples_that_the_decision_did_not_read_played_no_part() -> None:
    before = index(("train", 1), ("test", 2), ("test", 3))
    now = index(("test", 2), ("test", 3))
    audit = np.array([False, True])
    assert unbiased.parts(now, before, audit).tolist() == [unbiased.CHOSE, unbiased.NO_PART]


def test_an_example_that_joined_played_no_part_whether_it_is_for_audit_or_not() -> None:
    before, now = index(("train", 1), ("test", 2)), index(("test", 2), *(("test", new) for new in range(3, 60)))
    digests = [hashlib.sha256(bytes([new])).digest() for new in range(3, 60)]
    assert 0 < unbiased.audited(digests, 0.2).sum() < len(digests)
    found = unbiased.parts(now, before, np.array([False]))
    assert (found == unbiased.NO_PART).sum() == len(digests)  # each once


def test_images_for_audit_are_chosen_by_their_digests_alone() -> None:
    digests = [hashlib.sha256(bytes([number % 256, number // 256])).digest() for number in range(2000)]
    chosen, more = unbiased.audited(digests, 0.2), unbiased.audited(digests, 0.3)
    assert chosen.mean() == pytest.approx(0.2, abs=0.03)
    assert more[chosen].all()
    assert unbiased.audited(digests[::-1], 0.2).tolist() == chosen[::-1].tolist()


def test_an_image_that_was_both_trained_on_and_tested_was_trained_on() -> None:
    assert unbiased.parts(index(("test", 1)), index(("train", 1), ("test", 1))).tolist() == [unbiased.TRAINED]


@pytest.mark.parametrize(("examples", "known"), [(0, False), (99, False), (100, True)])
def test_a_score_of_few_examples_is_not_known_yet(examples: int, known: bool) -> None:
    found = unbiased.score(examples, examples)
    assert (found["accuracy"] is not None) == known
    assert unbiased.text(found).startswith("not known yet") != known


def test_both_scores_are_said_in_words() -> None:
    assert unbiased.chosen_text(0.912, 2000, 37) == (
        "0.912 on 2,000 test examples, which chose it (comparison 37)"
    )
    assert unbiased.text(unbiased.score(308, 340)) == (
        "0.9059 [0.870, 0.933] on 340 examples that played no part"
    )
