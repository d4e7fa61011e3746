"""Which images of traffic are to be labelled next."""

import hashlib
from collections import Counter

import pytest
from support import kept

from perennial.data.datasets.readers.labelled import may_be_drawn
from perennial.live.label import queue
from perennial.live.label.queue import Choice

IMAGES = [kept.image(number) for number in range(60)]
CONTENT = {hashlib.sha256(each).hexdigest(): each for each in IMAGES}
NAMES = list(CONTENT)
DRAWABLE = {number for number, name in enumerate(NAMES) if may_be_drawn(name)}
CHOOSABLE = sorted(set(range(60)) - DRAWABLE)


def choose(records, labelled=(), **how):
    return queue.choose(records, CONTENT.get, Choice(**{"count": 20, "bits": 2, **how}), labelled)


def drawn(numbers=range(60), **fields):
    return [kept.record(IMAGES[number], share=0.5 + number / 200, **fields) for number in numbers]


def of(found, reason):
    return {NAMES.index(each.sha256) for each in found if each.reason == reason}


def test_half_is_drawn_at_random_and_the_others_are_the_most_unsure():
    found = choose(drawn())
    assert (len(of(found, "random")), of(found, "margin")) == (10, set(CHOOSABLE[:10]))


@pytest.mark.parametrize(("least", "random"), [(0, 10), (3, 10), (14, 14), (300, 20)])
def test_at_least_so_many_are_drawn_at_random_as_the_test_split_lacks(least, random):
    assert len(of(choose(drawn(), least=least), "random")) == random


def test_an_image_is_either_drawn_or_chosen_in_all_queues():
    labelled, drawn_ones, chosen = set(), set(), set()
    for number in range(6):
        found = choose([each for each in drawn() if each.sha256 not in labelled], count=10, seed=number)
        labelled |= {each.sha256 for each in found}
        drawn_ones |= of(found, "random")
        chosen |= of(found, "margin")
    assert (drawn_ones, chosen) == (DRAWABLE, set(CHOOSABLE))


def test_disagreements_come_before_small_margins():
    disagreeing = CHOOSABLE[-5:]
    records = drawn(set(range(60)) - {*disagreeing})
    records += drawn(disagreeing, candidate="8", candidate_top=(("dog", 0.9),))
    assert of(choose(records), "disagreement") == set(disagreeing)


def test_an_image_that_was_kept_for_a_disagreement_alone_is_not_drawn():
    records = drawn(reason="disagreement", candidate="8", candidate_top=(("dog", 0.9),))
    assert Counter(each.reason for each in choose(records, count=60)) == {"disagreement": len(CHOOSABLE)}


def test_small_margins_are_taken_from_each_predicted_class_in_turn():
    *others, first, second, third = CHOOSABLE
    dogs = {first, second, third}
    records = drawn(others, reason="disagreement") + [
        kept.record(IMAGES[number], "dog", 0.99, reason="disagreement") for number in dogs
    ]
    assert len(of(choose(records, count=6), "margin") & dogs) == 3


def test_chosen_images_that_look_alike_are_left_out():
    same = [kept.record(IMAGES[number], reason="disagreement") for number in CHOOSABLE[:3]]
    copies = {each.sha256: IMAGES[0] for each in same}
    assert len(queue.choose(same, copies.get, Choice(count=10, bits=2))) == 1


def test_images_that_look_like_a_labelled_one_are_left_out():
    first, second, third = CHOOSABLE[:3]
    found = choose(drawn([first, second, third], reason="disagreement"), labelled=[IMAGES[second]])
    assert of(found, "margin") == {first, third}


def test_an_image_that_the_place_has_removed_is_left_out():
    assert len(queue.choose(drawn(range(3)), lambda name: None, Choice(count=3))) == 0


def test_without_images_to_choose_all_are_drawn_at_random():
    found = choose(drawn(sorted(DRAWABLE)), count=60)
    assert of(found, "random") == DRAWABLE


@pytest.mark.parametrize(("seed", "same"), [(0, True), (1, False)])
def test_equal_seeds_give_equal_queues(seed, same):
    assert (choose(drawn()) == choose(drawn(), seed=seed)) is same


def test_images_kept_with_another_probability_are_drawn_as_often():
    numbers = sorted(DRAWABLE)[:24]
    often, seldom = numbers[:20], set(numbers[20:])
    records = [kept.record(IMAGES[number], probability=0.5) for number in often]
    records += [kept.record(IMAGES[number], probability=0.1) for number in seldom]
    firsts = [next(queue._drawn(queue._candidates(records), seed)) for seed in range(300)]
    share = sum(NAMES.index(each.sha256) in seldom for each in firsts) / 300
    assert share == pytest.approx(0.5, abs=0.09)  # 4 of 0.1 stand for as many as 20 of 0.5
