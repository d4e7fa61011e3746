"""How a task runs a stage through DVC, and how it stops one."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.checkout import processes_under, wait_until
from support.tasks import write_pipeline

from perennial.base import limits
from perennial.base.dvc import repro
from perennial.base.errors import Failure
from perennial.base.processes import locks, process
from perennial.orchestration.work import dvc_repo
from perennial.orchestration.work.dvc_repo import reproduce
from perennial.orchestration.work.stage_failures import StageFailed

pytestmark = pytest.mark.timing

Write = Callable[..., Path]
SAVING = """
import signal, sys, time
from pathlib import Path

def save(*_):
    time.sleep(1)
    Path("saved").touch()
    print("saved at step 7")
    sys.exit(75)

signal.signal(signal.SIGTERM, save)
print("working", flush=True)
time.sleep(1000)
"""
DEAF = SAVING.replace("save)", "signal.SIG_IGN)")
LOST = """
import os, signal, subprocess, sys
from perennial.orchestration.work import dvc_requests
dvc_requests.end_on_sigterm()
type("Held", (), {"__del__": lambda _: signal.raise_signal(signal.SIGTERM)})()
try:
    subprocess.run([sys.executable, "-c", "import time; time.sleep(1000)"])
except SystemExit as ended:
    os._exit(ended.code)  # at once, as that process: the timer would end a teardown
"""


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    """One process of DVC for all tests, as for all stages of a run; it ends after them."""
    yield
    dvc_repo.end()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a pipeline of the one stage `train` into the folder that the test works in."""
    monkeypatch.chdir(tmp_path)
    return lambda code, **more: write_pipeline(tmp_path, code, **more)


def failed() -> StageFailed:
    """The failure of the stage."""
    with pytest.raises(StageFailed) as error:
        reproduce("train", print)
    return error.value


def at_work(folder: Path) -> list[str]:
    """The processes of DVC and of the stage."""
    return [line for line in processes_under(folder) if "stage.py" in line or "dvc_requests" in line]


def interrupt(line: str) -> None:
    """Ctrl-C while the stage works."""
    print(line)
    if line == "working":
        raise KeyboardInterrupt


def test_a_failure_shows_its_first_line_and_keeps_the_rest() -> None:
    error = StageFailed("train", 3, "first\nsecond")
    assert (str(error), error.message) == ("train ended with exit code 3: first", "first\nsecond")


def test_a_failure_is_logged_once_with_all_its_lines() -> None:
    failed = StageFailed("train", 2, "no epochs\nset train.epochs")
    log, lines = logging.getLogger("prefect.flow_runs"), []
    for _ in range(2):  # as Prefect's engine does
        record = log.makeRecord(log.name, logging.ERROR, "", 0, "an error", (), (StageFailed, failed, None))
        if log.filter(record):
            lines.append(record.getMessage())
    assert lines == ["no epochs\nset train.epochs"]


@pytest.mark.parametrize("left", ["", '{"write": {"/a/b"'])
def test_a_list_of_locks_that_a_killed_dvc_left_half_written_is_no_obstacle(write: Write, left: str) -> None:
    folder = write("from pathlib import Path; Path('out').touch()", outs=["out"])
    (folder / ".dvc" / "tmp").mkdir(exist_ok=True)
    (folder / ".dvc" / "tmp" / "rwlock").write_text(left)
    assert reproduce("train", print) == "ran"


def test_an_interrupted_stage_has_time_to_save_and_log(write, capsys) -> None:
    folder = write(SAVING)
    with pytest.raises(KeyboardInterrupt):
        reproduce("train", interrupt)
    assert (folder / "saved").exists()
    locks = json.loads((folder / ".dvc" / "tmp" / "rwlock").read_text())
    assert locks == {"read": {}, "write": {}}  # of a DVC that has ended, of which others would warn
    assert capsys.readouterr().out.endswith("saved at step 7\n")


def test_a_stage_that_does_not_end_is_killed(write, caplog, monkeypatch) -> None:
    monkeypatch.setattr(repro, "GRACE_S", 0.5)
    folder = write(DEAF)
    with pytest.raises(KeyboardInterrupt):
        reproduce("train", interrupt)
    assert "was killed" in caplog.text
    wait_until(lambda: not at_work(folder))


def test_who_starts_a_process_has_more_time_after_a_signal_than_it_gives() -> None:
    assert min(limits.STAGE_GRACE_S, locks.WAIT_S) > limits.SAVE_GRACE_S + 2 * process.POLL_S
    assert limits.STAGE_GRACE_S < limits.RUNS_GRACE_S


LEADER = "import os, pathlib; pathlib.Path('out').write_text(str(os.getsid(0)))"


def test_one_dvc_process_runs_all_stages(write: Write) -> None:
    file, leaders = write(LEADER, outs=["out"], deps=["stage.py"]) / "stage.py", []
    for number in range(2):
        file.write_text(f"{LEADER}  # {number}")
        assert reproduce("train", print) == "ran"
        leaders.append((file.parent / "out").read_text())
    assert leaders[0] == leaders[1]


def test_a_stage_has_no_input(write: Write) -> None:
    folder = write("import sys; open('out', 'w').write(sys.stdin.read() + '.')", outs=["out"])
    assert (reproduce("train", print), (folder / "out").read_text()) == ("ran", ".")


def test_a_dvc_process_that_is_killed_takes_the_stage_with_it_and_the_next_one_starts(write: Write) -> None:
    folder = write("import os, time; print('killing'); os.kill(os.getsid(0), 9); time.sleep(1000)")
    error = failed()
    assert (error.exit_code, error.kind) == (1, Failure.OUTSIDE)
    assert error.message.startswith("DVC's own process is gone: SIGKILL ended it")
    assert error.message.endswith("killing")
    assert not at_work(folder)
    (folder / "stage.py").write_text("")
    assert reproduce("train", print) == "ran"


def test_the_dvc_process_ends_before_the_flow_that_skips_its_teardown(write: Write) -> None:
    folder = write("")
    flow = (
        "from perennial.orchestration.terminal import flow_command\n"
        "from perennial.orchestration.work import dvc_repo\n"
        "with flow_command._exit_codes():\n    print(dvc_repo.start()._program.pid)"
    )
    done = subprocess.run([sys.executable, "-c", flow], cwd=folder, capture_output=True, text=True, check=True)
    assert not process.is_alive(int(done.stdout))


def test_a_signal_that_a_finalizer_swallows_still_ends_dvc_and_the_stage_that_it_starts_then(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "Exception ignored in" in done.stderr) == (75, True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_the_flow_that_started_it(write: Write, number: int) -> None:
    folder = write("import time; print('working', flush=True); time.sleep(1000)")
    flow = "from perennial.orchestration.work.dvc_repo import reproduce; reproduce('train', print)"
    command = [sys.executable, "-u", "-c", flow]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert any(line == "working\n" for line in process.stdout)
        process.send_signal(number)
    wait_until(lambda: not at_work(folder))


SAYING = """
import json, pathlib
pathlib.Path(".work").mkdir()
failure = {{"code": {code}, "message": "why", "kind": "{kind}"}}
pathlib.Path(".work/failure.json").write_text(json.dumps(failure))
raise SystemExit({code})
"""
MISTAKEN = "import sys; print('perennial train: no such key\\nanother mistake'); sys.exit(2)"
UNSAID = "ERROR: failed to reproduce 'train'"
KILLED = "SIGKILL ended it; if memory ran out, `dmesg` says so"
FAILURES = {
    "a bug": ("{}['x']", 1, Failure.BUG, UNSAID),
    "a signal": ("import os; os.kill(os.getpid(), 9)", 1, Failure.INTERRUPTED, KILLED),
    "a signal, from a shell": ("raise SystemExit(137)", 1, Failure.INTERRUPTED, KILLED),
    "refused": ("raise SystemExit(4)", 4, Failure.REFUSED, UNSAID),
    "printed": (MISTAKEN, 2, Failure.REFUSED, "perennial train: no such key\nanother mistake"),
    "network": (SAYING.format(code=1, kind="network"), 1, Failure.NETWORK, "why"),
    "changed": (SAYING.format(code=75, kind="changed"), 75, Failure.CHANGED, "why"),
    "interrupted": (SAYING.format(code=75, kind="interrupted"), 75, Failure.INTERRUPTED, "why"),
}


@pytest.mark.parametrize(("code", "exit_code", "kind", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failure_has_what_the_stage_wrote_about_it_or_its_code_stands_for(
    write, code, exit_code, kind, message
) -> None:
    write(code)
    error = failed()
    assert (error.exit_code, error.kind) == (exit_code, kind)
    assert error.message.startswith(message)
    assert str(error) == f"train ended with exit code {exit_code}: {error.message.splitlines()[0]}"


def write_odd_name(folder: Path) -> None:
    (folder / "mine" / "cat").mkdir(parents=True)
    (folder / "mine" / "cat" / os.fsdecode(b"caf\xe9.jpg")).touch()


CONFLICT = "<<<<<<< ours\nschema: '2.0'\n=======\n>>>>>>> theirs\n"
FILES = {"deps": ["mine"], "outs": ["out"]}
OBSTACLES = {
    "no dependency": (FILES, lambda _: None, 3, "train depends on mine, which does not exist"),
    "a name that is not UTF-8": (FILES, write_odd_name, 3, r"mine/cat/caf\xe9.jpg"),
    "no parameter": ({"params": ["no.such.key"]}, lambda _: None, 1, "are missing from 'params.yaml'"),
    "a conflict": ({}, lambda folder: (folder / "dvc.lock").write_text(CONFLICT), 1, "read: 'dvc.lock', "),
    "no repository": ({}, lambda folder: (folder / ".dvc").rename("away"), 1, "not inside of a DVC repository"),
}


@pytest.mark.parametrize(("more", "prepare", "code", "why"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_dvc_cannot_work_with_is_refused_in_one_line(write: Write, more, prepare, code, why) -> None:
    folder = write("", **more)
    (folder / "out").touch()
    prepare(folder)
    error = failed()
    assert (error.kind, error.exit_code) == (Failure.REFUSED, code)
    assert (why in error.message, "\n" in error.message) == (True, False), error.message
    assert (folder / "out").exists()  # DVC would have removed it by then


def damage_database(folder: Path) -> str:
    """Overwrite what DVC noted about files."""
    for file in (folder / "site").rglob("cache.db"):
        file.write_bytes(b"garbage" * 2000)
    return "move that folder away"


def replace_by_a_file(name: str) -> Callable[[Path], str]:
    """A function that puts a file in place of a folder."""

    def replace(folder: Path) -> str:
        if (folder / name).exists():
            shutil.rmtree(folder / name)
        (folder / name).touch()
        return "move the cache away" if name.endswith("cache") else "move it away"

    return replace


def break_link(folder: Path) -> str:
    """Remove DVC's cache, to which a dependency is a link."""
    (folder / "mine").unlink()
    (folder / "mine").symlink_to(folder / ".dvc" / "cache" / "gone")
    return "remove the link"


@pytest.mark.fast_rows("database", "cache")
@pytest.mark.parametrize(
    "damage",
    [damage_database, break_link, *map(replace_by_a_file, ("site", ".dvc/tmp", ".dvc/cache"))],
    ids=["database", "link", "site", "tmp", "cache"],
)
def test_damage_to_what_dvc_keeps_is_one_line_with_a_remedy_and_not_retried(write, damage, monkeypatch) -> None:
    folder = write("from pathlib import Path; Path('out').touch()", deps=["mine"], outs=["out"])
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(folder / "site"))
    (folder / "mine").touch()
    assert reproduce("train", print) == "ran"
    (folder / "mine").write_text("new")
    remedy = damage(folder)
    error = failed()
    assert error.kind is Failure.REFUSED
    assert (error.exit_code, error.message.count("\n")) == (1, 0)
    assert remedy in error.message


@pytest.mark.parametrize("mode", ["read", "write"])  # the second blocks the question, too
def test_another_dvc_that_works_here_may_end(write: Write, mode: str) -> None:
    folder = write("", outs=["out"])
    other = {"pid": os.getppid(), "cmd": "dvc repro"}
    locks = {"read": {}, "write": {}, mode: {str(folder / "out"): [other] if mode == "read" else other}}
    (folder / ".dvc" / "tmp").mkdir()
    (folder / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(locks))
    error = failed()
    assert error.kind is Failure.OUTSIDE
    assert error.exit_code == 1
    assert "is busy" in str(error)


NOTED = """
from pathlib import Path
import json
params = Path("params.yaml").read_text()
Path(".work/inputs").mkdir(parents=True, exist_ok=True)
noted = {"run": "", "params": {"params.yaml": {"seed": int(params[-2])}}, "code": {}}
Path(".work/inputs/train.json").write_text(json.dumps(noted))
Path("out").write_text(params)
if Path("edit").exists():
    Path("params.yaml").write_text(params[:-2] + "1\\n")
"""


def test_what_changed_just_before_dvc_read_it_is_not_recorded(write: Write) -> None:
    folder = write(NOTED, outs=["out"], params=["seed"])
    file = folder / "params.yaml"
    before = file.read_text() + "seed: 0\n"
    file.write_text(before)
    (folder / "edit").touch()
    error = failed()
    assert error.kind is Failure.CHANGED
    assert error.message.startswith("seed changed just as train ended; nothing was recorded: set it back")
    assert not (folder / "dvc.lock").exists()
    (folder / "edit").unlink()
    assert reproduce("train", print) == "ran"  # with the new value, not restored from DVC's cache of runs
    assert (folder / "out").read_text() == before.replace("seed: 0", "seed: 1")
    file.write_text(before)
    assert [reproduce("train", print) for _ in range(2)] == ["ran", "up to date"]


def test_what_another_pipeline_stored_in_the_same_cache_meanwhile_stays(write, tmp_path, monkeypatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_pipeline(
        other, "from pathlib import Path; Path('out').write_text('other')", deps=["mine"], outs=["out"]
    )
    (other / "mine").write_text("of the other")
    (other / ".dvc" / "config.local").write_text(f"[cache]\n    dir = {tmp_path / '.dvc' / 'cache'}\n")
    beside = (
        "import os, subprocess, sys\n"
        f"subprocess.run([sys.executable, '-m', 'dvc', 'repro'], cwd={str(other)!r}, check=True)\n"
    )
    folder = write(beside + NOTED, outs=["out"], params=["seed"])
    (folder / "params.yaml").write_text("paths: {work: .work}\nseed: 0\n")
    (folder / "edit").touch()
    assert failed().kind is Failure.CHANGED
    (stored,) = (file for file in (folder / ".dvc" / "cache" / "runs").rglob("*") if file.is_file())
    assert "mine" in stored.read_text()
    (other / "dvc.lock").unlink()
    (other / "out").unlink()
    monkeypatch.chdir(other)
    assert reproduce("train", print) == "restored"


def test_a_clock_that_is_set_back_hides_nothing(write: Write) -> None:
    old = "import os\nfor file in ('.work/inputs/train.json', 'dvc.yaml'): os.utime(file, (0, 0))\n"
    folder = write(NOTED + old, outs=["out"], params=["seed"])
    with (folder / "params.yaml").open("a") as stream:
        stream.write("seed: 0\n")
    (folder / "edit").touch()
    assert failed().kind is Failure.CHANGED
    assert not (folder / "dvc.lock").exists()
    assert not [file for file in (folder / ".dvc" / "cache" / "runs").rglob("*") if file.is_file()]


@pytest.mark.parametrize("text", ["", "paths: {", "paths:\n  raw: data\n", None])
def test_half_written_parameters_are_one_line(write: Write, text: str | None) -> None:
    file = write("") / "params.yaml"
    file.write_text(text) if text is not None else file.unlink()
    error = failed()
    assert error.kind is Failure.REFUSED
    assert error.exit_code == 2
    assert error.message.startswith("params.yaml has no paths.work or cannot be read")
