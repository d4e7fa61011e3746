"""`perennial tune` in a checkout: what it writes, and two at once."""

import json
import shutil
import subprocess
import sys

import pytest
from support.checkout import Checkout
from support.edits import edit

from perennial.project.tune.search_result import lines

pytestmark = pytest.mark.timing

RATES = "train.learning_rate=1e-5..1e-2:log"


@pytest.fixture
def checkout(reproduced: Checkout):
    """The checkout with poor settings, and all files as they were afterwards."""
    text = (reproduced.folder / "params.yaml").read_text()
    reproduced.set("train", learning_rate=1e-5)
    yield reproduced
    (reproduced.folder / "params.yaml").write_text(text)
    reproduced.restore()
    shutil.rmtree(reproduced.folder / ".work" / "tune", ignore_errors=True)


def tune(checkout, *arguments):
    command = ["perennial", "tune", "--search", RATES, *arguments]
    done = subprocess.run(
        command, cwd=checkout.folder, env=checkout.environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_the_best_settings_are_written_once(checkout):
    file = checkout.folder / "params.yaml"
    edit(file, "train:\n", "train: # mine\n", 1)
    found = json.loads(tune(checkout, "--trials", "4", "--json").stdout)
    best = found["trials"][found["best"]]
    assert found["written"]
    assert "next: perennial run" in lines(found)
    assert best["score"] > found["trials"][0]["score"]
    assert f"learning_rate: {best['settings']['train.learning_rate']}" in file.read_text()
    assert "train: # mine" in file.read_text()
    again = json.loads(tune(checkout, "--trials", "4", "--json").stdout)
    assert (again["trials"], again["written"]) == (found["trials"], False)


@pytest.mark.slow
def test_two_searches_at_once_follow_each_other(checkout):
    """The second one waits for the first one and finds its trials."""
    arguments = ["--search", RATES, "--trials", "2", "--json"]
    command = [sys.executable, "-m", "perennial", "tune", *arguments]
    environment = {"cwd": checkout.folder, "env": checkout.environment(), "stdout": subprocess.PIPE}
    both = [subprocess.Popen(command, **environment) for _ in range(2)]
    one, other = (json.loads(each.communicate(timeout=600)[0])["trials"] for each in both)
    assert one == other
    assert [each["number"] for each in one] == [0, 1]
