"""The trials of a search: draws that can be repeated, early stops, ties, and what a kill leaves."""

import math

import pytest

from perennial.base.params import options
from perennial.project.tune import space
from perennial.project.tune.study import Study

VALUES = options.values(())
SEARCH = ["train.learning_rate=1e-4..1e-1:log", "train.optimizer=adam,momentum"]
EVALUATIONS = 9


@pytest.fixture
def early(monkeypatch):
    """The sampler learns from fewer trials, so that few show what it does."""
    monkeypatch.setattr("perennial.project.tune.study.RANDOM", 3)


@pytest.fixture
def make(tmp_path):
    def made(name="a", texts=SEARCH, **options):
        dimensions = space.parse(texts, VALUES)
        options = {"metric": "accuracy", "evaluations": EVALUATIONS, **options}
        return Study(tmp_path / name, dimensions, **options), space.present(dimensions, VALUES)

    return made


def score(settings, evaluation):
    quality = 1 - abs(math.log10(settings["train.learning_rate"]) + 2) / 5
    return quality * (1 - 0.7**evaluation)


def train(study, trial, until=EVALUATIONS):
    """Score a trial as its training would, up to an evaluation; says whether it ended."""
    for evaluation in range(1, until + 1):
        found = score(trial.settings, evaluation)
        stops = study.evaluated(trial.number, evaluation, score=found, loss=1 - found)
        if stops and evaluation < EVALUATIONS:
            study.stop(trial.number)
            return True
    if until == EVALUATIONS:
        study.finish(trial.number, score=found, loss=1 - found, stopped_by="epochs")
    return until == EVALUATIONS


def run(study, present, trials):
    for _ in range(trials):
        train(study, study.next(present))
    return study.trials()


def test_a_search_goes_on_after_a_kill_as_if_there_was_none(early, make):
    whole = run(*make("a"), 5)
    for number in range(5):
        study, present = make("b")  # opened again by a new process
        if train(study, study.next(present), until=number % 4):
            continue
        study, present = make("b")
        trial = study.next(present)
        assert trial.number == number
        train(study, trial)
    assert make("b")[0].trials() == whole


@pytest.mark.slow
def test_most_trials_stop_early_and_neither_the_first_nor_the_best_does(make):
    study, present = make()
    trials = run(study, present, 18)
    assert (trials[0].settings, trials[0].before, trials[0].state) == (present, True, "finished")
    stopped = [each for each in trials if each.state == "stopped early"]
    assert 6 <= len(stopped) <= 15
    assert {len(each.evaluations) for each in stopped} <= {1, 3}
    assert study.better(study.best(), trials[0])


def test_a_trial_with_a_poor_score_goes_on_if_its_loss_is_among_the_better(make):
    """One image of a small validation split decides its accuracy."""
    study, present = make()
    for score, loss in ((0.7, 1.5), (0.6, 1.2), (0.6, 1.4)):
        study.evaluated(study.next(present).number, 1, score=score, loss=loss)
        study.stop(study.trials()[-1].number)
    worse_score, worse_both = (0.5, 1.1), (0.5, 1.6)
    assert not study.evaluated(study.next(present).number, 1, score=worse_score[0], loss=worse_score[1])
    study.stop(study.trials()[-1].number)
    assert study.evaluated(study.next(present).number, 1, score=worse_both[0], loss=worse_both[1])


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_a_loss_is_minimized_and_of_equal_scores_the_lowest_loss_is_the_best(make, metric):
    study, present = make(metric=metric)
    for loss in (0.3, 0.1, 0.2):
        score = 0.9 if metric == "accuracy" else loss
        study.finish(study.next(present).number, score=score, loss=loss, stopped_by="epochs")
    assert study.best().number == 1
    assert study.better(study.best(), study.trials()[0]) is (metric == "loss")


def test_a_search_of_few_settings_ends_when_all_have_been_tried(make):
    study, present = make(texts=["train.optimizer=adam,momentum", "train.batch_size=32,64"])
    while trial := study.next(present):
        study.finish(trial.number, score=0.5, loss=1.0, stopped_by="epochs")
    assert len({str(each.settings) for each in study.trials()}) == len(study.trials()) == 4


def test_a_failed_trial_is_kept_with_its_reason_and_the_next_one_differs(make):
    study, present = make()
    study.stop(study.next(present).number, "the loss is NaN")
    failed, following = study.trials()[0], study.next(present)
    assert (failed.state, failed.reason) == ("failed", "the loss is NaN")
    assert following.settings != failed.settings


def test_present_settings_outside_of_the_search_are_tried_as_they_are(make):
    study, _ = make()
    outside = {"train.learning_rate": 0.5, "train.optimizer": "rmsprop"}
    assert study.next(outside).settings == outside


@pytest.mark.slow
def test_importance_names_the_setting_that_decides(make):
    study, present = make(texts=[*SEARCH, "train.batch_size=32,64,128"])
    for _ in range(12):
        trial = study.next(present)
        study.finish(trial.number, score=score(trial.settings, 9), loss=0.1, stopped_by="epochs")
    assert next(iter(study.importance())) == "train.learning_rate"


def test_few_trials_have_no_importance(make):
    study, present = make()
    study.finish(study.next(present).number, score=0.5, loss=0.1, stopped_by="epochs")
    assert study.importance() == {}
