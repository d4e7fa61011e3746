"""A rehearsal of this checkout, and of a copy with a planted bug, which it must find."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import Checkout, copy_project, start_repository

from perennial.project.rehearsal.promises import PROMISES

pytestmark = pytest.mark.slow
# A bug: shards are not compared with the manifest.
FILE, RIGHT, WRONG = (
    "data/validation/integrity.py", '        findings.add("shard_', '        str("shard_',
)  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what git has or would have of this checkout."""
    base = tmp_path_factory.mktemp("rehearsal")
    made = Checkout(base / "project", base / "home")
    copy_project(made.folder, ())
    made.home.mkdir()
    start_repository(made.folder)
    return made


def rehearse(checkout, minutes, *promises):
    named = (word for promise in promises for word in ("--promise", promise))
    command = [sys.executable, "-m", "perennial", "rehearse", "--seed", "3", "--json", "--minutes", minutes]
    environment = checkout.environment(TMPDIR=str(checkout.home), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        [*command, *named], cwd=checkout.folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in {0, 1}, done.stderr
    return done, json.loads(done.stdout)


def kept(checkout):
    """What git says of the checkout, without the bytecode that Python writes for what it imports first."""
    listed = checkout.must("git", "status", "--porcelain", "--ignored").splitlines()
    return [line for line in listed if "__pycache__" not in line]


def test_a_rehearsal_holds_on_this_code_and_leaves_nothing(checkout):
    before = kept(checkout)
    done, found = rehearse(checkout, "0", *PROMISES)
    assert (done.returncode, found["failures"], found["ok"]) == (0, [], True), done.stderr
    assert {each["name"] for each in found["promises"] if each["tries"]} == set(PROMISES)
    assert kept(checkout) == before
    assert not list(checkout.home.glob("perennial-rehearsal-*"))


def test_a_build_with_a_bug_is_found(checkout):
    file = checkout.folder / "src" / "perennial" / FILE
    text = file.read_text()
    assert RIGHT in text
    file.write_text(text.replace(RIGHT, WRONG))
    done, found = rehearse(checkout, "3", "damaged data")
    file.write_text(text)
    assert done.returncode == 1
    assert {each["promise"] for each in found["failures"]} == {"damaged data"}
    assert Path(found["folder"]).is_dir()
