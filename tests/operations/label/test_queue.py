"""Which images of traffic are to be labelled next."""

import hashlib
from collections import Counter

import pytest
from operations.label import kept

from perennial.operations.label import queue

IMAGES = [kept.image(number) for number in range(60)]
CONTENT = {hashlib.sha256(each).hexdigest(): each for each in IMAGES}
NAMES = list(CONTENT)


def choose(records, **options):
    return queue.choose(records, CONTENT.get, **{"count": 20, "bits": 2, **options})


def drawn(numbers=range(60), **fields):
    return [kept.record(IMAGES[number], share=0.5 + number / 200, **fields) for number in numbers]


def of(found, reason):
    return {NAMES.index(each.sha256) for each in found if each.reason == reason}


def test_half_is_drawn_at_random_and_the_others_are_the_most_unsure():
    found = choose(drawn())
    margins = of(found, "margin")
    assert (len(of(found, "random")), max(margins)) == (
        10,
        max(sorted(set(range(60)) - of(found, "random"))[:10]),
    )


def test_disagreements_come_before_small_margins():
    records = drawn(range(50)) + drawn(range(50, 60), candidate="8", candidate_top=(("dog", 0.9),))
    assert of(choose(records), "disagreement") == set(range(50, 60)) - of(choose(records), "random")


def test_an_image_that_was_kept_for_a_disagreement_alone_is_not_drawn():
    records = drawn(range(30), reason="disagreement", candidate="8", candidate_top=(("dog", 0.9),))
    assert Counter(each.reason for each in choose(records)) == {"disagreement": 20}


def test_small_margins_are_taken_from_each_predicted_class_in_turn():
    records = drawn(range(55), reason="disagreement") + [
        kept.record(IMAGES[number], "dog", 0.99, reason="disagreement") for number in range(55, 60)
    ]
    assert len(of(choose(records, count=8), "margin") & set(range(55, 60))) == 4


def test_chosen_images_that_look_alike_are_left_out():
    same = [kept.record(each, reason="disagreement") for each in IMAGES[:3]]
    copies = {each.sha256: IMAGES[0] for each in same}
    assert len(queue.choose(same, copies.get, count=10, bits=2)) == 1


def test_images_that_look_like_a_labelled_one_are_left_out():
    found = choose(drawn(range(3), reason="disagreement"), labelled=[IMAGES[1]])
    assert of(found, "margin") == {0, 2}


def test_images_with_a_label_are_left_out():
    assert of(choose(drawn(range(3)), known={NAMES[1]}), "random") == {0, 2}


def test_an_image_that_the_place_has_removed_is_left_out():
    assert len(queue.choose(drawn(range(3)), lambda name: None, count=3)) == 0


def test_without_images_to_choose_all_are_drawn_at_random():
    assert len(choose(drawn(range(12)), count=40)) == 12


@pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
def test_equal_seeds_give_equal_queues(seed, same):
    assert (choose(drawn()) == choose(drawn(), seed=seed)) is same


def test_images_kept_with_another_probability_are_drawn_as_often():
    often = [kept.record(each, probability=0.5) for each in IMAGES[:50]]
    seldom = [kept.record(each, probability=0.1) for each in IMAGES[50:]]
    counts = Counter()
    for seed in range(300):
        keys = queue._drawn(queue._candidates(often + seldom), seed)
        counts[NAMES.index(next(keys).sha256) >= 50] += 1
    assert counts[True] / 300 == pytest.approx(0.5, abs=0.09)  # 10 of 0.1 stand for as many as 50 of 0.5
