"""The list of networks."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from perennial.base.config import networks
from perennial.base.config.networks import NETWORKS
from perennial.cli import app
from perennial.model.models import MODELS


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["models", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_list_has_each_network_with_its_size_and_original_image() -> None:
    listed = {row["name"]: row for row in json.loads(run("--json"))}
    assert list(listed) == list(MODELS)
    assert listed["lenet"] == {
        "name": "lenet", "parameters": 3_274_634, "image_size": 28, "channels": 1, "preprocessing": "lenet",
        "imagenet_top_1": None, "weights": None, "laptop": True,
    }  # fmt: skip
    assert [listed["vgg_16"][key] for key in ("imagenet_top_1", "weights", "laptop")] == [
        71.3,
        "imagenet",
        False,
    ]


def test_networks_with_published_weights_have_a_published_accuracy() -> None:
    accuracies = {name: each.top_1 for name, each in NETWORKS.items() if each.top_1 is not None}
    assert set(networks.PRETRAINED) - networks.PRESETS.keys() <= set(accuracies)  # KerasHub states none
    assert all(10 < top < 90 for top in accuracies.values())


def test_a_name_of_keras_applications_is_accepted() -> None:
    assert json.loads(run("ResNet50", "--json"))[0]["name"] == "keras_resnet_v1_50"


def test_the_list_needs_no_tensorflow() -> None:
    program = (
        "import sys; from typer.testing import CliRunner; from perennial.cli import app\n"
        "assert CliRunner().invoke(app, ['models', 'lenet']).exit_code == 0\n"
        "assert 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"), [(["mobilenet_v22"], "did you mean mobilenet_v2?"), (["x"], "lists all")]
)
def test_a_wrong_call_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["models", *arguments])
    assert (done.exit_code, message in done.output) == (2, True)
