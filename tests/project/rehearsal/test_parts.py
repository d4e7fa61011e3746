"""The parts of a rehearsal: damage, lost servers, traces, processes by their mark, and what is reported."""

import json
import os
import signal
import subprocess
import sys
import time
from http.client import IncompleteRead
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from perennial.base import config
from perennial.base.errors import ConfigError
from perennial.data.tfrecord import framing
from perennial.project.rehearsal import faults, marked_programs, rehearsal_result, rehearse
from perennial.project.rehearsal.fault_trial import ATOMIC_PUBLISH, ERRORS_REPORTED, SAME_RESULT, Check
from perennial.project.rehearsal.marked_programs import MARK, Program, TooLate, chance
from perennial.project.rehearsal.rehearse import Rehearsal, Tried
from perennial.project.rehearsal.services import ImageServer


def test_damage_changes_a_file_and_is_the_same_for_a_seed(tmp_path):
    file, kinds = tmp_path / "file", set()
    for seed in range(40):
        results = []
        for _ in range(2):
            file.write_bytes(bytes(range(256)))
            kinds.add(faults.damage(file, chance(seed)))
            results.append(file.read_bytes())
        assert results[0] == results[1] != bytes(range(256))
    assert len(kinds) == 4


def test_damage_of_whole_records_leaves_checksums_right(tmp_path):
    shard, kinds = tmp_path / "shard", set()
    content = b"".join(framing.frame(bytes([number]) * 10) for number in range(5))
    for seed in range(20):
        shard.write_bytes(content)
        kinds.add(faults.damage_shard(shard, chance(seed)))
        with shard.open("rb") as stream:
            spans, fault = framing.scan(stream, shard.stat().st_size)
        assert fault is None
        assert framing.valid_data(shard.read_bytes(), spans).all()
        assert len(spans) in {4, 6}
    assert len(kinds) == 2


def test_a_source_is_lost_after_some_bytes_and_comes_back(tmp_path):
    (tmp_path / "images.zip").write_bytes(bytes(20_000))
    source = ImageServer(tmp_path)
    url = f"{source.address}/images.zip"
    source.cut_after = 9_000
    with pytest.raises((IncompleteRead, OSError)), urlopen(url) as response:
        response.read()
    assert source.lost.wait(60)
    with pytest.raises(URLError):
        urlopen(url)
    source.back()
    with urlopen(url) as response:
        assert response.read() == bytes(20_000)
    source.lose()


def trace(*lines):
    return "".join(f"12 {line}\n" for line in lines)


WRITE, FLUSH = "write(3</p/.a.tmp>, ..., 5) = 5", "fsync(3</p/.a.tmp>) = 0"
RENAME, FLUSH_FOLDER = 'rename("/p/.a.tmp", "/p/a") = 0', "fsync(4</p>) = 0"


@pytest.mark.parametrize(
    ("lines", "lost"),
    [
        ((WRITE, FLUSH, RENAME, FLUSH_FOLDER), 0),
        ((WRITE, RENAME, FLUSH_FOLDER), 1),
        ((WRITE, FLUSH, RENAME), 1),
        ((WRITE, FLUSH, 'rename(".a.tmp", "a") = 0', FLUSH_FOLDER), 0),
        (("fsync(3</p/a>) = 0", "write(3</p/a>, ..., 5) = 5"), 1),
    ],
)
def test_a_trace_shows_what_was_not_flushed_before_it_got_its_name(tmp_path, lines, lost):
    file = tmp_path / "trace"
    file.write_text(trace(*lines))
    assert marked_programs.unsynced(file, [Path("/p/a")], Path("/p")) == [Path("/p/a")] * lost


def test_processes_are_found_by_their_mark_with_all_that_they_started(tmp_path):
    environment = {**os.environ, MARK: str(tmp_path / "trial")}
    command = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '600'])"]
    program = Program(command, tmp_path, environment)
    child = marked_programs.wait_for(lambda: marked_programs.find(tmp_path, "sleep", "600"), program, 60)
    assert set(marked_programs.marked(tmp_path / "trial")) == {program.pid, child}
    assert marked_programs.marked(tmp_path / "tri") == {}
    marked_programs.kill_marked(tmp_path)
    assert marked_programs.marked(tmp_path) == {}
    assert program.wait().code == -signal.SIGKILL
    with pytest.raises(TooLate):
        marked_programs.send(program.pid, signal.SIGTERM)


def test_a_handler_of_a_signal_is_seen_from_outside():
    text = "import signal, sys; signal.signal(signal.SIGTERM, print); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        assert marked_programs.catches(process.pid, signal.SIGTERM)
        assert not marked_programs.catches(process.pid, signal.SIGUSR2)
        process.kill()


def result(folder=None):
    whole, lost = Check(SAME_RESULT), Check(ERRORS_REPORTED, "exit code 0")
    good = Tried("killed stage", 1, ("a copy", "a signal"), (whole, Check(ATOMIC_PUBLISH)), 9, None)
    bad = Tried("SIGTERM", 2, ("SIGTERM to <train>",), (lost, whole), 9, folder)
    tried = [good, good, *([bad] if folder else [])]
    return Rehearsal(7, 20, 60, tried, {"clock jumps": "needs libfaketime"}, folder)


def test_the_document_counts_tries_by_guarantee_and_by_fault(tmp_path):
    found = rehearsal_result.document(result(tmp_path))
    counts = {each["name"]: (each["held"], each["tries"]) for each in found["promises"]}
    assert counts == {
        SAME_RESULT: (3, 3), ERRORS_REPORTED: (0, 1), ATOMIC_PUBLISH: (2, 2),
        "no orphans": (0, 0), "correct state": (0, 0), "durable writes": (0, 0),
    }  # fmt: skip
    assert [(each["name"], each["tries"], each["held"], each["skipped"]) for each in found["faults"]] == [
        ("killed stage", 2, 2, None), ("SIGTERM", 1, 0, None), ("clock jumps", 0, 0, "needs libfaketime"),
    ]  # fmt: skip
    assert (found["ok"], found["folder"], found["failures"][0]["broken"]) == (
        False, str(tmp_path), [{"promise": ERRORS_REPORTED, "seen": "exit code 0"}],
    )  # fmt: skip
    json.dumps(found, allow_nan=False)


def test_the_table_has_a_row_for_each_fault_and_says_what_broke(tmp_path):
    text = "\n".join(rehearsal_result.lines(result(tmp_path)))
    assert "SIGTERM                    1          1/1              0/1" in text
    assert "clock jumps                -  skipped: needs libfaketime" in text
    assert "  errors reported: exit code 0" in text
    assert "  nothing" not in "\n".join(list(rehearsal_result.lines(result()))[1:])


def test_an_unknown_fault_is_refused_with_the_known_ones(tmp_path, monkeypatch):
    checked = config.load(Path(__file__).parents[3] / "params.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="killed flow"):
        rehearse.rehearse(checked, minutes=1, seed=0, only=["kill"])
    assert list(tmp_path.iterdir()) == []


def test_a_fault_that_cannot_be_put_in_is_refused_before_anything_runs(tmp_path, monkeypatch):
    checked = config.load(Path(__file__).parents[3] / "params.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    marked_programs.no_trace.cache_clear()
    with pytest.raises(ConfigError, match="power cut needs strace"):
        rehearse.rehearse(checked, minutes=1, seed=0, only=["power cut"])
    marked_programs.no_trace.cache_clear()


def test_programs_do_not_outlive_a_rehearsal_that_is_killed(tmp_path):
    text = (
        "import os, sys, time; from pathlib import Path\n"
        "from perennial.project.rehearsal import marked_programs as programs\n"
        f"base = Path({str(tmp_path)!r})\n"
        "with programs.nothing_outlives(base):\n"
        "    programs.Program(['sleep', '600'], base, {**os.environ, programs.MARK: str(base / 'a')})\n"
        "    print(flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert marked_programs.find(tmp_path, "sleep", "600")
        process.kill()
    deadline = time.monotonic() + 60
    while marked_programs.marked(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.05)
