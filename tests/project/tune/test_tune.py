"""A search with real trainings of the digits, each in a process of its own."""

import json
import shutil
import signal
import time
from pathlib import Path

import pytest
from support.checkout import signal_child
from support.training import ROOT, change_params
from typer.testing import CliRunner

from perennial.base.config import load
from perennial.base.errors import ConfigError, InputsChanged, Interrupted, PerennialError
from perennial.base.project import source_code
from perennial.cli import app
from perennial.project.tune.training_process import LOG, TRIAL
from perennial.project.tune.tune import Budget, Search, _failed, check, choose, search
from perennial.stages.initialize import initialize

pytestmark = pytest.mark.timing

SMALL = {"train.epochs": 3, "train.epochs_between_evals": 1, "train.stop_threshold": None}
RATES = ["train.learning_rate=1e-4..1e-1:log"]


@pytest.fixture
def pipeline(here):
    """A folder with records of the digits and the stages, where trainings are short."""
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, here)
    change_params(here / "params.yaml", SMALL)
    initialize(load(here / "params.yaml"))
    return here


def searched(texts=RATES, trials=1, minutes=None):
    found = Search(Path("params.yaml"), texts)
    search(found, Budget(trials=trials, minutes=minutes, started=time.monotonic()), pinned=True)
    return found


def test_a_trial_leaves_its_scores_and_one_that_learns_nothing_is_stopped_at_once(pipeline, forked):
    found = searched(["train.learning_rate=1e-9,1e-10"], trials=2)
    present, other = found.study.trials()
    assert (present.state, len(present.evaluations)) == ("finished", 3)
    assert present.score == pytest.approx(present.evaluations[-1])
    kept = {path.name for path in (found.folder / "trials" / "0000").iterdir()}
    assert kept == {"training.json", "curves", LOG}
    assert (other.state, len(other.evaluations)) == ("stopped early", 1)
    assert not (found.folder / "trials" / "0001" / "work").exists()
    assert not Path("models").exists()


def test_the_process_of_a_trial_imports_nothing_of_the_study():
    """It takes a second, in each trial."""
    files = source_code.closure(source_code.PACKAGE / "project" / "tune" / "training_process.py")
    imports = {name.split(".")[0] for file in files for name in source_code.facts(file.read_bytes()).imports}
    assert imports & {"optuna", "sqlalchemy"} == set()


@pytest.mark.slow
def test_a_killed_trial_is_a_failed_one_and_the_search_goes_on(pipeline):
    """As when the kernel kills it because memory ran out."""
    signal_child(TRIAL, signal.SIGKILL)
    trials = searched(trials=2).study.trials()
    assert [each.state for each in trials] == ["failed", "finished"]
    assert "memory" in trials[0].reason


@pytest.mark.slow
def test_several_failures_one_after_another_end_the_search(pipeline, monkeypatch):
    monkeypatch.setattr("perennial.project.tune.tune.FAILURES", 2)
    change_params(Path("params.yaml"), {"train.learning_rate": 1e30})
    with pytest.raises(PerennialError, match=r"2 trials failed one after another.*NaN or infinite"):
        searched(["train.learning_rate=1e29,1e30,1e31"], trials=9)


@pytest.mark.slow
def test_a_trial_that_is_interrupted_goes_on_from_its_checkpoint(pipeline):
    change_params(Path("params.yaml"), {"train.epochs": 25, "checkpoints.interval_steps": 20})
    log = Path(".work/tune")
    signal_child(
        TRIAL,
        signal.SIGTERM,
        lambda: any("epoch 3 of" in file.read_text() for file in log.glob(f"*/*/*/{LOG}")),
    )
    with pytest.raises(Interrupted):
        searched()
    again = searched()
    trials = again.study.trials()
    assert "resumed from step" in next(again.folder.glob(f"trials/0000/{LOG}")).read_text()
    again.folder.rename(".work/again")
    assert searched().study.trials() == trials


def test_a_full_disk_ends_the_search_and_its_trial_goes_on_later(pipeline):
    found = Search(Path("params.yaml"), RATES)
    new = found.study.next(found.present)
    with pytest.raises(PerennialError, match="No space left"):
        _failed(found, new, 1, "x could not be written: No space left on device")
    assert found.study.next(found.present) == new


def test_a_damaged_database_is_named(pipeline):
    found = Search(Path("params.yaml"), RATES)
    (found.folder / "study.db").write_bytes(b"no database" * 1000)
    with pytest.raises(PerennialError, match=r"study.db cannot be used: file is not a database"):
        Search(Path("params.yaml"), RATES)


def test_a_search_without_a_finished_trial_names_the_last_failure(pipeline):
    found = Search(Path("params.yaml"), RATES)
    found.study.stop(found.study.next(found.present).number, "the loss is NaN")
    with pytest.raises(PerennialError, match=r"1 of 1 failed, the last one: the loss is NaN"):
        search(found, Budget(trials=1, minutes=None, started=0), pinned=True)


def test_without_time_to_score_the_present_settings_the_search_is_interrupted(pipeline):
    with pytest.raises(Interrupted, match="before a trial finished"):
        searched(trials=None, minutes=0)


def test_a_change_of_other_parameters_begins_a_new_search(pipeline):
    first = Search(Path("params.yaml"), RATES).folder
    change_params(Path("params.yaml"), {"train.learning_rate": 0.01})  # a searched one
    assert Search(Path("params.yaml"), RATES).folder == first
    change_params(Path("params.yaml"), {"train.optimizer": "rmsprop"})
    assert Search(Path("params.yaml"), RATES).folder != first


@pytest.mark.parametrize("key", ["train.label_smoothing", "train.learning_rate"])
def test_an_edit_during_the_search_is_named_and_nothing_is_written(key, pipeline):
    found = Search(Path("params.yaml"), RATES)
    found.study.finish(
        found.study.next({RATES[0].split("=")[0]: 0.01}).number, score=1, loss=0, stopped_by="epochs"
    )
    change_params(Path("params.yaml"), {key: 0.05})
    before = Path("params.yaml").read_text()
    with pytest.raises(InputsChanged, match=f"^{key} changed during the search"):
        choose(found)
    assert Path("params.yaml").read_text() == before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataset.validation_fraction": 0.0}, "validation split"),
        ({"train.epochs": None, "train.max_steps": 0, "train.warm_start.path": "w"}, r"train\.max_steps is 0"),
    ],
)
def test_parameters_with_which_nothing_can_be_searched_are_refused(pipeline, values, message):
    change_params(Path("params.yaml"), values)
    with pytest.raises(ConfigError, match=message):
        check(Path("params.yaml"), RATES)


def test_a_number_of_trials_and_of_minutes_are_one_too_many(workspace):
    done = CliRunner().invoke(app, ["tune", "--trials", "3", "--minutes", "2"])
    assert (done.exit_code, "--trials and --minutes exclude each other" in done.stderr) == (2, True)
    assert not list(Path(".work/tune").glob("*"))


def test_a_worker_of_a_cluster_is_refused(pipeline, monkeypatch):
    hosts = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": hosts, "task": {"type": "worker", "index": 0}}))
    with pytest.raises(ConfigError, match=r"TF_CONFIG names several workers"):
        check(Path("params.yaml"), RATES)
