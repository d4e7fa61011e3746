"""A rehearsal of this checkout, and of a copy with a planted bug, which it must find."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import Checkout, copy_project

ROOT = Path(__file__).parents[3]
# A bug: the fault that finds it, in how many minutes, and what is replaced in which file.
BUGS = {
    "shards are not compared with the manifest": (
        "corrupted shard", 3, "data/validation/integrity.py",
        '        findings.add("shard_', '        str("shard_',
    ),
    "no file is flushed": ("power cut", 0, "base/files.py", "os.fsync(", "str("),
    "signals are swallowed": (
        "SIGTERM", 1, "base/processes/process.py", "        _received.append(_name(number))", "        return"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what git has or would have of this checkout."""
    base = tmp_path_factory.mktemp("rehearsal")
    made = Checkout(base / "project", base / "home")
    copy_project(made.folder, ())
    made.home.mkdir()
    for command in ("init -q -b main", "add .", "-c user.name=t -c user.email=t@t commit -qm Start"):
        made.must("git", *command.split())
    return made


def rehearse(checkout, *arguments):
    command = [sys.executable, "-m", "perennial", "rehearse", "--seed", "3", "--json", *arguments]
    environment = checkout.environment(TMPDIR=str(checkout.home), PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run(
        command, cwd=checkout.folder, env=environment, capture_output=True, text=True, check=False
    )
    return done, json.loads(done.stdout)


@pytest.mark.slow
def test_a_rehearsal_holds_on_this_code_and_leaves_nothing(checkout):
    before = checkout.must("git", "status", "--porcelain", "--ignored")
    faults = ("corrupted shard", "SIGTERM")
    done, found = rehearse(
        checkout, "--minutes", "0", *(word for fault in faults for word in ("--fault", fault))
    )
    assert (done.returncode, found["failures"], found["ok"]) == (0, [], True), done.stderr
    assert {each["name"] for each in found["faults"] if each["tries"]} == set(faults)
    assert checkout.must("git", "status", "--porcelain", "--ignored") == before
    assert not list(checkout.home.glob("perennial-rehearsal-*"))


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_build_with_a_bug_is_found(checkout, bug):
    fault, minutes, name, right, wrong = BUGS[bug]
    if fault == "power cut" and shutil.which("strace") is None:
        pytest.skip("needs strace")
    file = checkout.folder / "src" / "perennial" / name
    text = file.read_text()
    assert right in text
    file.write_text(text.replace(right, wrong))
    done, found = rehearse(checkout, "--minutes", str(minutes), "--fault", fault)
    file.write_text(text)
    assert done.returncode == 1
    assert {each["fault"] for each in found["failures"]} == {fault}
    assert Path(found["folder"]).is_dir()
