"""Tags and records that anyone with push access can write: a damaged one is named and left out."""

import json
import subprocess
from pathlib import Path

import pytest
from support.pipelines import Project

from perennial.release.registry import run_records

DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture
def project(recorded_once: Project, tmp_path: Path) -> Project:
    """A copy of it with a remote of its own."""
    return recorded_once.copied(tmp_path / "copy")


def write_tag(project: Project, name: str, tagger: bytes, message: bytes) -> None:
    """Write a tag as another program may, without git's checks."""
    remote = project.git("remote", "get-url", "origin")
    head = project.git("rev-parse", "HEAD~1").encode()
    content = b"object %s\ntype commit\ntag %s\n%s\n%s" % (head, name.encode(), tagger, message)
    command = ["git", "-C", remote, "hash-object", "-t", "tag", "-w", "--literally", "--stdin"]
    tag = subprocess.run(command, input=content, capture_output=True, check=True).stdout.decode().strip()
    project.git("-C", remote, "update-ref", f"refs/tags/{name}", tag)


BY = b"tagger x <x@x> 1700000000 +0000\n"
TAGS: dict[str, tuple[bytes, bytes]] = {
    "no tagger": (b"", b"subject\n\n{}"),
    "a date before 1970": (b"tagger x <x@x> -1700000000 +0000\n", b"subject"),
    "a date that no clock has": (b"tagger x <x@x> 99999999999999999999999 +0000\n", b"subject"),
    "no date": (b"tagger x <x@x>\n", b"subject"),
    "a control character": (BY, b'subject\n\n{"accuracy": 0.5}\x01\x02'),
    "quotes and a carriage return": (BY, b"it's\r\n\r\n\\'{\"accuracy\": 0.5}'\\"),
    "not UTF-8": (BY, b'\xff\xfe\n\n{"run": "\xff\xfe"}'),
    "half a surrogate pair": (BY, b'subject\n\n{"data": "\\ud800"}'),
    "deep nesting": (BY, b"subject\n\n" + DEEP),
    "a huge number": (BY, b'subject\n\n{"accuracy": ' + b"9" * 5000 + b"}"),
    "no finite number": (BY, b'subject\n\n{"accuracy": NaN, "loss": Infinity}'),
    "wrong types": (
        BY,
        b'subject\n\n{"accuracy": "high", "data": [], "decision": 7, "run": {}, "machine": "m"}',
    ),
    "a list": (BY, b"subject\n\n[1, 2]"),
}


QUIET = ("quotes and a carriage return", "a control character", "a list")  # valid tags of other programs


def test_damaged_tags_end_no_command_and_are_named(project: Project) -> None:
    tags = {name: f"classifier@v0.0.{number}" for number, name in enumerate(TAGS, start=2)}
    for name, tag in tags.items():
        write_tag(project, tag, *TAGS[name])
    remote, head = project.git("remote", "get-url", "origin"), project.git("rev-parse", "HEAD~1")
    project.git("-C", remote, "tag", "classifier@v0.0.15", head)
    project.git("-C", remote, "tag", "-a", "-m", "x", "classifier@v0.0.16", f"{head}^{{tree}}")
    project.git("-C", remote, "tag", "-a", "-m", "x", "classifier#champion#2", f"{head}^{{tree}}")
    for command in (("versions", "--fetch"), ("status",)):
        done = project.run("perennial", *command)
        for name, what in {"@v0.0.15": "lightweight tag", "@v0.0.16": "tag of a tree"}.items():
            assert f"the tag classifier{name} is left out: it is a {what}" in done.stderr
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        assert [
            tag for name, tag in tags.items() if name not in QUIET and f"tag {tag} " not in done.stderr
        ] == []
    listed = {each["version"]: each for each in project.perennial("versions")}
    assert listed["v0.0.1"]["champion"]
    assert not {tags[name][11:] for name in ("no tagger", "no date", "a date before 1970")} & listed.keys()
    project.data("0.9 second")
    project.reproduce()
    assert project.perennial("record", "night-2")["version"] == "v0.0.17"  # no name is used twice


VALID = {"run": "bad", "started": "2026-11-24T02:00:00.000+00:00", "stages": []}
RECORDS: dict[str, bytes] = {
    "empty": b"",
    "cut": b'{"run": "bad", "stages": [',
    "not UTF-8": b'{"run": "\xff"}',
    "deep nesting": DEEP,
    "half a surrogate pair": rb'{"run": "\ud800", "started": "2026"}',
    "a list": b"[]",
    "a huge number": b'{"run": "bad", "decision": {"promote": true, "accuracy": ' + b"9" * 5000 + b"}}",
    "no decision": json.dumps({**VALID, "decision": 7}).encode(),
    "an accuracy in words": json.dumps({**VALID, "decision": {"promote": True, "accuracy": "high"}}).encode(),
    "stages of another type": json.dumps({**VALID, "stages": "all"}).encode(),
    "a stage without a name": json.dumps({**VALID, "stages": [{}]}).encode(),
    "a number that is none": b'{"run": "bad", "decision": {"promote": true, "accuracy": NaN}}',
    "a run of numbers": json.dumps({**VALID, "run": 7, "version": 2}).encode(),
    "more than a record has": json.dumps({**VALID, "message": "x" * run_records.MOST_BYTES}).encode(),
    "a run without a name": json.dumps({"started": "2026"}).encode(),
}


def test_damaged_records_are_named_and_left_out(project: Project) -> None:
    project.git("checkout", "-qb", "run/worse")
    for number, content in enumerate(RECORDS.values()):
        for run in (f"bad-{number}", f"worse-{number}"):
            file = project.folder / "runs" / run / "run.json"
            file.parent.mkdir()
            file.write_bytes(content)
        project.git("add", "-f", f"runs/worse-{number}")
        project.git("commit", "-qm", f"Record of run worse-{number}: waits for approval")
        project.git("branch", f"run/worse-{number}")
    project.git("checkout", "-q", "main")
    project.git("branch", "-D", "-q", "run/worse")
    for command in (("runs",), ("approve",), ("runs", "show", "night-1")):
        done = project.run("perennial", *command)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
    done = project.run("perennial", "runs", "--json", "--last", "1")
    assert [each["run"] for each in json.loads(done.stdout)] == ["night-1"]
    for number in range(len(RECORDS)):
        assert f"runs/bad-{number}/run.json" in done.stderr
        assert f"of run/worse-{number}" in done.stderr
    project.refused(2, "runs", "show", "bad-1")


@pytest.mark.slow
def test_a_run_whose_own_record_is_damaged_is_recorded_without_it(project: Project) -> None:
    project.data("0.9 second")
    project.reproduce()
    file = project.folder / "runs" / "night-2" / "run.json"
    file.parent.mkdir()
    file.write_bytes(RECORDS["cut"])
    assert project.perennial("record", "night-2")["version"] == "v0.0.2"
    assert file.read_bytes() == RECORDS["cut"]


def test_what_others_add_to_a_record_during_a_stage_stays(load, monkeypatch) -> None:
    config = load()
    run_records.start(config, "one")
    monkeypatch.setenv(run_records.RUN, "one")
    with run_records.stage(config, "train"):
        run_records.add(config, "one", message="its worker was stopped")
        with run_records.stage(config, "evaluate"):
            pass
    record = run_records.read(run_records.record_file(config, "one"))
    assert record is not None
    assert record["message"] == "its worker was stopped"
    assert {each["stage"]: each["exit_code"] for each in record["stages"]} == {"train": 0, "evaluate": 0}
