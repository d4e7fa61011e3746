"""`perennial start FOLDER`: params.yaml is written, nothing is lost, and no question is asked."""

import json
from pathlib import Path

import pytest
from support import raw
from support.checkout import start_repository
from support.edits import edit
from typer.testing import CliRunner

from perennial.base import config, files
from perennial.base.project.pins import WeightsPin
from perennial.cli import app

PARAMS = Path("params.yaml")
FILE = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_96_no_top.h5"
NO_SERVER = "--set=model.weights_url=http://127.0.0.1:9/"


@pytest.fixture
def run(project: Path):
    raw.write_pictures(Path("own"), each=6, side=60)

    def call(*arguments: str):
        return CliRunner().invoke(app, ["start", "own", NO_SERVER, *arguments])

    return call


def test_without_the_weights_a_small_network_is_chosen_and_the_remedy_shown(run) -> None:
    done = run()
    assert done.exit_code == 0
    parameters = config.load(PARAMS)
    assert (parameters.model.name, parameters.model.weights) == ("cifarnet", None)
    assert "18 images in 3 classes, 6 in each" in done.stdout
    assert "into " + str(Path(".work/downloads/weights").absolute()) in done.stdout
    assert "set model.weights" not in done.stdout  # it has done so
    assert "next: perennial new NAME --photos own, which makes a project; this folder is none" in done.stdout


def test_who_wants_no_weights_gets_what_suits_random_ones(run) -> None:
    assert run("--set", "model.weights=null").exit_code == 0
    assert (config.load(PARAMS).model.name, config.load(PARAMS).train.trainable) == ("cifarnet", [])


def test_weights_at_hand_are_used_and_pinned(run) -> None:
    files.write_bytes(Path(".work/downloads/weights", FILE), b"\x89HDF\r\n\x1a\nlayer_names")
    done = json.loads(run("--json", "--set", "train.epochs=3").stdout)
    parameters = config.load(PARAMS)
    assert (parameters.model.name, parameters.model.weights) == ("mobilenet_v2", "imagenet")
    assert parameters.train.epochs == 3
    assert WeightsPin.read().imagenet.file == FILE
    assert done["weights_missing"] is None
    assert {"key", "value", "reason"} == done["choices"][0].keys()
    assert "train.epochs" not in {each["key"] for each in done["choices"]}


def test_a_changed_file_that_git_has_not_is_refused_or_kept(run) -> None:
    mine = PARAMS.read_text().replace("batch_size: 64", "batch_size: 48  # mine")
    PARAMS.write_text(mine)
    refused = run()
    assert (refused.exit_code, PARAMS.read_text()) == (2, mine)
    assert "params.yaml has uncommitted changes; nothing was written" in refused.output
    assert run("--force").exit_code == 0
    assert Path("params.yaml.1.old").read_text() == mine


def test_what_git_has_or_an_earlier_start_wrote_is_replaced(run) -> None:
    edit(PARAMS, "seed: 0 # seed that", "seed: 5 # seed that")
    start_repository(Path())
    assert [run().exit_code, run("--set", "train.epochs=2").exit_code] == [0, 0]
    assert config.load(PARAMS).dataset.seed == 5
    assert not list(Path().glob("*.old"))


def test_reasons_stand_beside_what_start_chose_and_a_comment_of_a_person_stays(run) -> None:
    edit(PARAMS, "patience: null # eval", "patience: null # Ada's: eval")
    assert run("--force").exit_code == 0
    first = PARAMS.read_text()
    assert "  epochs: 60 # start: 720 images seen in total; the best epoch is kept\n" in first
    assert "  patience: 20 # Ada's: evaluations without" in first
    assert len(first.splitlines()) <= 150
    assert CliRunner().invoke(app, ["config", "--upgrade"]).exit_code == 0
    assert PARAMS.read_text() == first
    assert run("--set", "train.epochs=2").exit_code == 0
    assert "  epochs: 2 # passes over the training split; null: max_steps decides\n" in PARAMS.read_text()
    assert CliRunner().invoke(app, ["config", "--set", "train.keep=last"]).exit_code == 0
    assert "  keep: last # last | best; which evaluated weights become the model\n" in PARAMS.read_text()
    assert "  stop_metric: loss # start: accuracy is too coarse on" in PARAMS.read_text()


def test_a_wrong_layout_or_value_writes_nothing(run) -> None:
    before = PARAMS.read_bytes()
    assert run("--set", "train.epoch=2").exit_code == 2
    Path("own/cat/test").mkdir()
    Path("own/cat/test/1.png").write_bytes(b"")
    assert run().exit_code == 3
    assert PARAMS.read_bytes() == before
