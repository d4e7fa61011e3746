"""Which images to label while there are few labels."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from support import kept
from support.raw import encoded

from perennial.cli import label_commands
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import Label, may_be_drawn
from perennial.data.records import manifest
from perennial.live.label import queue, typical
from perennial.live.label.answers import Answers
from perennial.live.label.queue import Choice

IMAGES = [kept.image(number) for number in range(40)]
CONTENT = {hashlib.sha256(each).hexdigest(): each for each in IMAGES}
RECORDS = [kept.record(each, reason="disagreement") for each in IMAGES]  # none is drawn at random
CHOOSABLE = {name for name in CONTENT if not may_be_drawn(name)}


def groups(count, size):
    """Groups of points whose first one is in the middle of the others."""
    angles = np.linspace(0, 2 * np.pi, size - 1, endpoint=False)
    ring = np.stack((np.cos(angles), np.sin(angles)), axis=1)
    group = np.concatenate((np.zeros((1, 2)), ring))
    middles = np.stack((np.arange(count) % 5, np.arange(count) // 5), axis=1) * 40
    return (middles[:, None] + group).reshape(-1, 2).astype(np.float32)


def test_each_group_without_a_label_gives_the_image_in_its_middle():
    found = groups(25, 9)
    edges = np.arange(25) * 9 + 3
    labelled_ones = edges[:5]
    rows = np.concatenate((labelled_ones, np.setdiff1d(np.arange(len(found)), labelled_ones)))
    chosen = rows[typical.order(found[rows], 5, 20, seed=3)]
    assert sorted(chosen) == [group * 9 for group in range(5, 25)]


def test_the_largest_groups_come_first():
    large, small = groups(20, 9), groups(25, 3)[-15:] + 500
    chosen = typical.order(np.concatenate((small, large)), 0, 20, seed=0)
    assert sum(row >= len(small) for row in chosen[:12]) == 12


def test_equal_images_do_not_keep_the_search_busy():
    assert len(set(typical.order(np.ones((40, 3), np.float32), 1, 20, seed=0))) < 20


@pytest.mark.slow
def test_labels_of_typical_digits_teach_more_than_random_ones():
    digits = load_digits()
    contents = {
        str(number): encoded(np.uint8(each * 15)[..., None].repeat(3, axis=2))
        for number, each in enumerate(digits.images[:600])
    }
    chosen = list(map(int, typical.choose(contents, contents.get, [], 20, seed=0)))

    def accuracy(rows):
        model = LogisticRegression(max_iter=300).fit(digits.data[rows] / 4, digits.target[rows])
        return model.score(digits.data[600:] / 4, digits.target[600:])

    random = [accuracy(np.random.default_rng(seed).permutation(600)[:20]) for seed in range(20)]
    assert accuracy(chosen) > np.mean(random) + 0.1


def test_equal_arguments_give_equal_names_and_damaged_images_are_left_out():
    damaged = {**CONTENT, "damaged": IMAGES[0][:40], "gone": None}
    found = [typical.choose(damaged, damaged.get, IMAGES[:3], 10, seed=1) for _ in range(2)]
    assert found[0] == found[1]
    assert len(found[0]) == 10
    assert not {"damaged", "gone"} & set(found[0])


def test_with_few_labels_typical_images_take_the_place_of_small_margins():
    found = queue.choose(RECORDS, CONTENT.get, Choice(count=8, bits=2, few=True), IMAGES[:2])
    assert {each.reason for each in found} == {"typical"}
    assert len(found) == 8
    assert {each.sha256 for each in found} <= CHOOSABLE


def test_disagreements_come_before_typical_images():
    name = min(CHOOSABLE)
    other = kept.record(CONTENT[name], reason="disagreement", candidate="8", candidate_top=(("dog", 0.9),))
    found = queue.choose([*RECORDS, other], CONTENT.get, Choice(count=4, bits=2, few=True))
    assert sorted(each.reason for each in found) == ["disagreement", "typical", "typical", "typical"]


def test_margins_fill_a_queue_that_typical_images_do_not(monkeypatch):
    monkeypatch.setattr(typical, "MOST_GROUPS", 5)
    found = queue.choose(RECORDS, CONTENT.get, Choice(count=9, bits=2, few=True))
    assert sorted(each.reason for each in found) == ["margin"] * 4 + ["typical"] * 5


@pytest.mark.parametrize(
    ("trained", "answered", "few"), [(19, 0, True), (19, 1, False), (20, 0, False), (None, 0, False)]
)
def test_labels_are_few_below_ten_a_class(trained, answered, few, load, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers = Answers(tmp_path / "work")
    answers.take(Label(sha256=name, class_="cat", reason="random") for name in list(CONTENT)[:answered])
    config = SimpleNamespace(paths=SimpleNamespace(records=tmp_path))
    if trained is not None:
        part = manifest.SplitManifest(examples=trained, per_class=[1, trained - 1], shards=[])
        found = manifest.Manifest(dataset="own", classes=["cat", "dog"], source={}, splits={"train": part})
        manifest.write(tmp_path, found)
    assert label_commands._are_few(config, answers) is few


def test_a_typical_image_only_trains():
    label = Label(sha256=min(set(CONTENT) - CHOOSABLE), class_="cat", reason="typical")
    assert labelled.parse(labelled.text_of([label])) == {label.sha256: label}
    assert not label.measures
