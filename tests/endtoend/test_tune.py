"""`perennial tune` in a checkout: what it writes and runs, and kills on the way."""

import json
import shutil
import subprocess
import sys

import pytest
from support.checkout import Checkout, processes_under, wait_until

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
    file.write_text(file.read_text().replace("train:\n", "train: # mine\n", 1))
    found = json.loads(tune(checkout, "--trials", "4", "--json").stdout)
    best = found["trials"][found["best"]]
    assert found["written"]
    assert best["score"] > found["trials"][0]["score"]
    assert f"learning_rate: {best['settings']['train.learning_rate']}" in file.read_text()
    assert "train: # mine" in file.read_text()
    again = json.loads(tune(checkout, "--trials", "4", "--json").stdout)
    assert (again["trials"], again["written"]) == (found["trials"], False)


def logged(checkout):
    """Bytes that the trials have logged."""
    return sum(file.stat().st_size for file in (checkout.folder / ".work" / "tune").glob("*/trials/*/log.txt"))


@pytest.mark.slow
def test_a_search_that_is_killed_again_and_again_ends_as_an_unbroken_one(checkout):
    checkout.set("train", epochs=12)
    checkout.set("checkpoints", interval_steps=50)
    arguments = ["--trials", "6", "--json"]
    command = [sys.executable, "-m", "perennial", "tune", "--search", RATES, *arguments]
    for _ in range(5):
        with subprocess.Popen(command, cwd=checkout.folder, env=checkout.environment()) as process:
            until = logged(checkout) + 1500
            wait_until(
                lambda process=process, until=until: logged(checkout) > until or process.poll() is not None
            )
            assert process.poll() is None, "it ended before it was killed"
            process.kill()
    broken = json.loads(tune(checkout, *arguments).stdout)
    (checkout.folder / broken["folder"]).rename(checkout.folder / ".work" / "broken")
    checkout.set("train", learning_rate=1e-5)
    whole = json.loads(tune(checkout, *arguments).stdout)
    assert broken["trials"] == whole["trials"]
    assert [each for each in processes_under(checkout.folder) if "tune" in each] == []


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


@pytest.mark.slow
def test_a_signal_ends_a_search_with_code_75_and_leaves_no_process(checkout):
    checkout.set("train", epochs=400)
    command = [sys.executable, "-m", "perennial", "tune", "--search", RATES, "--trials", "2"]
    process = subprocess.Popen(command, cwd=checkout.folder, env=checkout.environment())
    logs = checkout.folder / ".work" / "tune"
    wait_until(lambda: any("epoch 9" in file.read_text() for file in logs.glob("*/trials/*/log.txt")))
    process.terminate()
    assert process.wait() == 75
    assert [each for each in processes_under(checkout.folder) if "tune" in each] == []
