"""The settings of a search: what is accepted, what is refused before anything starts, and values of draws."""

import re

import pytest

from perennial.base import config
from perennial.base.errors import ConfigError
from perennial.base.params import options
from perennial.project.tune import space

VALUES = options.values(())
REFUSED = {
    "an unknown key": ("train.lerning_rate=0.1..0.2", "did you mean train.learning_rate"),
    "a section": ("train.schedule=a,b", "is a section; did you mean train.schedule.name"),
    "above a limit": ("train.label_smoothing=0.0..1.5", "train.label_smoothing must be less than 1"),
    "a wrong type": ("train.batch_size=0.5..3.5", "train.batch_size"),
    "an unknown choice": ("train.optimizer=adam,adamm", "did you mean adam"),
    "one choice": ("train.optimizer=adam", "config --set train.optimizer=adam"),
    "a list in brackets": ("train.learning_rate=[0.1,0.2]", "leave out the brackets"),
    "three dots": ("train.learning_rate=0.01...1", "two dots"),
    "a range in reverse": ("train.learning_rate=0.1..0.01", "must be below"),
    "a logarithm of zero": ("train.label_smoothing=0..0.5:log", "must begin above 0"),
    "no number": ("train.learning_rate=a..b", "two numbers"),
    "other data": ("dataset.validation_fraction=0.1..0.2", "changes the data"),
    "the seed": ("train.seed=0..9", "luck"),
    "the metric": ("train.stop_metric=loss,accuracy", "compared by it"),
    "initial weights": ("train.warm_start.path=a,b", "initial weights"),
    "a broken rule": ("train.xla=true,false", "train.deterministic"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_search_that_cannot_work_is_refused(name):
    text, message = REFUSED[name]
    with pytest.raises(ConfigError, match=re.escape(message)):
        space.parse([text], VALUES)


def test_a_key_is_named_once():
    with pytest.raises(ConfigError, match="twice"):
        space.parse(["train.epochs=1..3", "train.epochs=2..4"], VALUES)


@pytest.mark.parametrize(("text", "whole"), [("train.epochs=1..3", True), ("train.learning_rate=1..3", False)])
def test_a_range_is_of_whole_numbers_where_the_option_takes_only_these(text, whole):
    (found,) = space.parse([text], VALUES)
    assert found.whole == whole


def test_choices_may_be_lists_numbers_and_null():
    (found,) = space.parse(["train.trainable=[],[logits*]"], VALUES)
    (other,) = space.parse(["train.clip_norm=null,1.0"], VALUES)
    assert (found.ends, other.ends) == ([[], ["logits*"]], [None, 1.0])


def test_a_drawn_fraction_has_few_digits_and_stays_in_its_range():
    (found,) = space.parse(["train.learning_rate=0.00012345..0.1:log"], VALUES)
    assert (found.value(0.012345678), found.value(0.00012345)) == (0.01235, 0.00012345)


def test_a_choice_is_found_again_whatever_its_type():
    (found,) = space.parse(["train.label_smoothing=0,0.1"], VALUES)
    assert [found.drawn(each) for each in (0.0, 0.1, 0.2)] == ["0", "0.1", None]


@pytest.mark.parametrize("changes", [{}, {"model.name": "mobilenet_v2", "model.weights": "imagenet"}])
def test_the_default_search_is_valid_and_the_same_after_its_best_is_written(changes):
    changed = space.with_values(VALUES, {**changes, "preprocessing.image_size": 96})
    texts = space.default(config.check(changed))
    best = {each.key: each.ends[-1] for each in space.parse(texts, changed)}
    assert space.default(config.check(space.with_values(changed, best))) == texts
