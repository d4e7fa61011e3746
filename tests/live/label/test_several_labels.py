"""Several labels an image: which to label next, answers as lists, other programs, and the branch."""

import json

import pytest
from support.kept import image, keep, record

from perennial.base.errors import DataError
from perennial.base.storage.local import LocalStore
from perennial.data.datasets.readers import labelled
from perennial.data.datasets.readers.labelled import Label, may_be_drawn
from perennial.live.label import queue, studio
from perennial.live.label.answers import Answers
from perennial.live.label.label_page import Labelling
from perennial.live.label.queue import Choice

ODD = ('a "quoted", name', "semi;colon|bar", "line\nbreak", "[list]", "back\\slash", "ß 猫")


def chosen_images(count):
    """Images that may be chosen, not drawn."""
    found = ((each, record(each)) for each in map(image, range(100)))
    return [each for each, kept in found if not may_be_drawn(kept.sha256)][:count]


def test_the_image_whose_label_is_nearest_to_its_threshold_comes_first_of_each_class() -> None:
    contents = chosen_images(6)
    nearest = [("cat", 0.9), ("cat", 0.2), ("dog", 0.5), ("dog", 0.1), ("owl", 3.0), ("cat", 0.01)]
    records = [
        record(content, labels=("cat",), nearest=each) for content, each in zip(contents, nearest, strict=True)
    ]
    there = queue._candidates(records)
    order = [there[each.sha256].last.nearest for each in queue._chosen(there, 0)]
    assert order == [("cat", 0.01), ("dog", 0.1), ("owl", 3.0), ("cat", 0.2), ("dog", 0.5), ("cat", 0.9)]


def test_a_candidate_disagrees_by_its_set_of_labels() -> None:
    one, other = chosen_images(2)
    pair = {"candidate": "8", "candidate_top": (("dog", 0.5),), "labels": ("cat", "dog"), "nearest": ("cat", 1)}
    records = [
        record(one, candidate_labels=("dog", "cat"), **pair), record(other, candidate_labels=("cat",), **pair)
    ]  # fmt: skip
    there = queue._candidates(records)
    reasons = [(each.sha256, each.reason) for each in queue._chosen(there, 0)]
    assert reasons == [(records[1].sha256, "disagreement"), (records[0].sha256, "margin")]
    found = there[records[1].sha256].queued("disagreement")
    assert (found.served, found.candidate) == ('["cat", "dog"]', '["cat"]')


@pytest.fixture
def labelling(tmp_path, monkeypatch):
    """The page's answers to four images."""
    monkeypatch.chdir(tmp_path)
    store, contents = LocalStore(tmp_path / "kept"), [image(number) for number in range(4)]
    keep(store, contents, [record(each, labels=("cat",), nearest=("cat", 0.5)) for each in contents])
    answers = Answers(tmp_path / "work")
    drawn = answers.draw("kept", Choice(count=4, bits=2))
    return Labelling(drawn, answers, ("cat", *ODD), "Ada", several=True)


@pytest.mark.parametrize("names", [(), ("cat",), ODD])
def test_labels_of_any_text_come_back_as_they_were(labelling, names) -> None:
    first = labelling.queue.images[0].sha256
    labelling.answer(first, list(names))
    found = labelling.answers.labels()[first]
    assert (found.labels, found) == (sorted(names), labelled.parse(labelled.text_of([found]))[first])
    assert len(labelled.text_of([found]).splitlines()) == 2


def test_a_page_of_another_task_and_strange_labels_are_refused(labelling) -> None:
    first = labelling.queue.images[0].sha256
    for given, reason in (("cat", "of another task"), (None, "of another task"), (["cat", "lion"], "'lion'")):
        with pytest.raises(DataError, match=reason):
            labelling.answer(first, given)
    assert labelling.answers.labels() == {}


NAMES = ["cat", 'a "quoted", name']
CHOICES = {
    "JSON": (NAMES, [studio.NONE]), "JSON-MIN": ({"choices": NAMES}, studio.NONE),
    "CSV": (json.dumps({"choices": NAMES}), studio.NONE), "ours": (json.dumps(NAMES), "[]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHOICES)
def test_label_studio_gives_several_labels_and_gets_them(labelling, kind) -> None:
    images = labelling.queue.images
    rows = [
        {"sha256": each.sha256, "choice": choice} for each, choice in zip(images, CHOICES[kind], strict=False)
    ]
    labels = studio.read(json.dumps(rows), "export", images, several=True)
    assert [each.labels for each in labels] == [sorted(NAMES), []]
    found = studio.tasks([(images[0], "a.png")], {images[0].sha256: labels[0]}, several=True)
    assert found[0]["annotations"][0]["result"][0]["value"] == {"choices": sorted(NAMES)}
    assert 'choice="multiple"' in studio.interface(NAMES, several=True)


def test_equal_sets_of_labels_are_equal_whoever_gave_them() -> None:
    assert labelled.cell(["dog", "cat", "dog"]) == labelled.cell(["cat", "dog"]) == '["cat", "dog"]'
    assert Label(sha256="", class_="[]", reason="random").labels == []
