"""A flow as a command."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from prefect.utilities.callables import parameter_schema
from ruamel.yaml import YAML

from flows.retrain import retrain
from perennial.base.config import Config
from perennial.base.config import load as load_config
from perennial.base.errors import SIGNALS
from perennial.orchestration.engine import this_run
from perennial.orchestration.terminal import flow_command
from perennial.orchestration.work import parameters
from perennial.orchestration.work.parameters import check_parameters
from perennial.orchestration.work.stage_failures import StageFailed

pytestmark = pytest.mark.timing


@pytest.fixture(autouse=True)
def unchecked() -> None:
    """A process that has not checked its parameters."""
    parameters._checked.cache_clear()


def python(*arguments: str, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a module, or code, of this repository."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (folder, ROOT, ROOT / "src"))),
        **variables,
    }
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_an_interruption_while_a_flow_imports_its_modules_has_no_traceback() -> None:
    code = "import os, signal, sys; sys.argv[0] = '-m'; import flows; os.kill(os.getpid(), signal.SIGINT)"
    ended = python("-c", code)
    assert (ended.returncode, ended.stderr) == (75, "")


def test_other_code_is_refused(workspace: Path) -> None:
    (workspace / "code.yaml").touch()
    with pytest.raises(StageFailed, match=r"code\.yaml") as failed:
        check_parameters()
    assert failed.value.exit_code == 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"overrides": {"train.epochs": 2}}, "`perennial config --set KEY=VALUE` changes params.yaml"),
        ({"rev": "main"}, "`git switch` chooses the revision"),
        ({"pipeline": "pets"}, "to retrain pets, but record.artifact in params.yaml is classifier"),
        ({"publish_to": "src"}, "publish_to must not lie in src"),
        ({"publish_to": "s3://me:secret@bucket/x"}, "publish_to must be a folder, or s3://bucket/prefix"),
    ],
)
def test_a_run_that_cannot_be_as_asked_is_refused_before_anything_starts(workspace, asked, message) -> None:
    before = (workspace / "params.yaml").read_bytes()
    with pytest.raises(StageFailed) as failed:
        check_parameters(**asked)
    assert failed.value.exit_code == 2
    assert (message in failed.value.message, "secret" in failed.value.message) == (True, False)
    assert (workspace / "params.yaml").read_bytes() == before


def test_a_deployed_run_writes_its_overrides_once_and_refuses_wrong_ones(workspace, monkeypatch) -> None:
    monkeypatch.setattr(this_run, "is_deployed", lambda: True)
    for _ in range(2):  # the second as in a run that starts again
        check_parameters({"train.epochs": 2, "record.git_name": "Ada"}, rev="main", pipeline="classifier")
    config = load_config(workspace / "params.yaml")
    assert (config.train.epochs, config.record.git_name) == (2, "Ada")
    with pytest.raises(StageFailed, match=r"did you mean train\.epochs\?") as failed:
        check_parameters({"train.epoch": 3})
    assert failed.value.exit_code == 2


def test_every_parameter_of_the_flow_has_a_type_and_a_description() -> None:
    schema = parameter_schema(retrain).properties
    assert list(schema) == ["overrides", "rev", "pipeline", "push", "publish_to", "reason", "when_busy"]
    for name, each in schema.items():
        assert each["description"].strip().endswith("."), name
        assert {"type", "anyOf"} & each.keys(), name
    assert schema["rev"]["anyOf"][0]["pattern"] == "^[A-Za-z0-9][A-Za-z0-9._/+-]*$"
    assert (parameter_schema(retrain).required, schema["when_busy"]["enum"]) == ([], ["end", "wait"])


def test_parameters_are_checked_once_in_a_process(load: Callable[..., Config], workspace: Path) -> None:
    (workspace / "data").mkdir()
    (workspace / "data" / "raw").mkdir()
    check_parameters()
    (workspace / "data" / "raw" / "mine.jpg").touch()  # would be refused
    check_parameters()


@pytest.mark.fast_rows("--epochs=2-2")
@pytest.mark.parametrize(("option", "code"), [("--help", 0), ("--epochs=2", 2)])
def test_options_are_parsed_before_anything_runs(tmp_path: Path, option: str, code: int) -> None:
    done = python("-m", "flows.retrain", option, folder=tmp_path)
    shown = done.stdout + done.stderr
    assert (done.returncode, "usage:" in shown) == (code, True)
    assert ("is set by `--set KEY=VALUE`" in shown) == (code == 2), shown


def test_credentials_in_the_repository_s_address_are_not_deployed(tmp_path: Path) -> None:
    repository = "https://me:a/gh_secret@host.example/project.git"
    nobody = {"PREFECT_API_URL": "http://127.0.0.1:1/api", "PERENNIAL_REPOSITORY": repository}
    done = python("-m", "tasks.deploy", folder=tmp_path, **nobody)
    assert (done.returncode, "gh_secret" in done.stdout + done.stderr) == (2, False)


def test_an_interrupt_in_code_from_a_string_ends_with_the_code_of_the_program(tmp_path: Path) -> None:
    # After KeyboardInterrupt itself, Python would end by SIGINT. Dataclasses run such code on import.
    (tmp_path / "program.py").write_text(
        "import signal\n"
        "from perennial.orchestration.terminal import flow_command\n"
        "signal.signal(signal.SIGINT, flow_command._interrupt)\n"
        "try:\n"
        "    exec('import signal\\nwhile True: signal.raise_signal(signal.SIGINT)')\n"
        "except KeyboardInterrupt:\n"
        "    pass\n"
        "raise SystemExit(75)\n"
    )
    assert python("-m", "program", folder=tmp_path).returncode == 75


def test_values_of_the_command_are_written_into_params_yaml_and_checked(workspace: Path) -> None:
    parameters.set_parameters(["train.epochs=2 'train.averages.decay=0.5'", "dataset.name='mnist'"])
    written = YAML(typ="safe").load(workspace / "params.yaml")
    assert (written["train"]["epochs"], written["dataset"]["name"]) == (2, "mnist")
    before = (workspace / "params.yaml").read_text()
    for text in ("train.epochs=never", "train.epochs='2"):
        with pytest.raises(StageFailed) as refused:
            parameters.set_parameters([text])
        assert refused.value.exit_code == 2
    assert (workspace / "params.yaml").read_text() == before


@pytest.mark.parametrize("flow", ["retrain", "monitor"])
def test_a_repository_without_a_commit_is_refused(flow, workspace, capsys, monkeypatch) -> None:
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    monkeypatch.setattr("sys.argv", [flow])
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with pytest.raises(SystemExit) as refused:
        (flow_command.run if flow == "retrain" else flow_command.run_plain)(retrain)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert refused.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "this git repository has no commit yet; commit the project first"
