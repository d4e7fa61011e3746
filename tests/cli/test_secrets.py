"""No command shows or writes the password in an address that it gets, from an argument or the environment."""

import logging
import sys
from pathlib import Path

import pytest
from support.git import git
from typer.testing import CliRunner

from perennial import cli
from perennial.base import logs
from perennial.base.processes import programs
from perennial.cli import app, run_commands

HTTP, S3 = "https://bob:planted@127.0.0.1:1/x", "s3://AKIA:planted@bucket/x"
SIGNED = "https://127.0.0.1:1/x.zip?X-Amz-Signature=planted"
COMMANDS = [
    *(("fetch", url, "--to", "here") for url in (HTTP, S3, SIGNED)), ("verify", HTTP), ("label", S3),
    ("start", SIGNED), *(("publish", "--to", url) for url in (HTTP, S3, SIGNED)),
    ("forget", "params.yaml", "--because", "asked", "--kept", S3),
    *(("config", "--set", f"dataset.url={url}") for url in (HTTP, S3, SIGNED)),
    ("new", "shop", "--data", SIGNED), ("versions", "--fetch"), ("evaluate", "--split", "test", "--model", S3),
    ("status",), ("run", "nightly"),
]  # fmt: skip


def written() -> str:
    """All that is in the folder, but for git's own settings."""
    files = [file for file in Path().rglob("*") if file.is_file() and ".git" not in file.parts]
    return "".join(f"{file} {file.read_bytes()!r}" for file in files)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_password_in_an_address_is_neither_shown_nor_written(workspace, monkeypatch, command):
    monkeypatch.setenv("PREFECT_API_URL", "http://bob:planted@127.0.0.1:1/api")
    monkeypatch.setattr(run_commands, "TERMINAL_PAUSES_S", ())
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["remote", "add", "origin", HTTP]):
        git(*words)
    done = CliRunner().invoke(app, list(command))
    assert "planted" not in done.output
    assert "planted" not in written()


def test_log_lines_and_lines_of_other_programs_have_no_password(capfd):
    said: list[str] = []
    programs.run([sys.executable, "-c", f"print('see {HTTP}')"], limit_s=60, to=said.append)
    record = logging.LogRecord("x", logging.INFO, "", 0, "at %s", (S3,), None)
    assert (said, logs.Lines().format(record)) == (["see https://***@127.0.0.1:1/x"], "at s3://***@bucket/x")


def test_the_traceback_of_a_bug_has_no_password(monkeypatch, capsys):
    def fail(**_: object) -> None:
        raise RuntimeError(f"cannot parse {HTTP}")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert (ended.value.code, "planted" in said, "RuntimeError: cannot parse https://***@" in said) == (
        1,
        False,
        True,
    )
