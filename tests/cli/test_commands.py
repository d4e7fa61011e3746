"""The command line: exit codes, output, log, written files, imports."""

import json
import os
import re
from pathlib import Path

import pytest
from support import finished, forks
from support.edits import edit
from typer.testing import CliRunner

from perennial.base import documents, files
from perennial.base.project.stage_table import STAGES
from perennial.cli import PANELS, all_commands, app, version_commands

ROOT = Path(__file__).parents[2]
REPORT_IMPORTS = """
import atexit, sys
from pathlib import Path
atexit.register(lambda: Path("imported").write_text("\\n".join(sys.modules)))
"""
ENDS = """
import atexit, sys, perennial.__main__ as program
class Held:
    def __del__(self): print("torn down")
held = Held()
atexit.register(print, "cleaned up")
sys.modules["tensorflow"] = sys
sys.argv[1:] = {arguments}
program.main()
"""
WITHOUT_TENSORFLOW = {
    "--help": "sys.argv[1:] = ['--help']; from perennial.cli import main; main()",
    "validate": "sys.argv[1:] = ['validate']; from perennial.cli import main; main()",
    "flows and tasks": "import flows.retrain, flows.approve, tasks.deploy, tasks.worker",
}


def python(*arguments):
    return forks.run(*arguments, PREFECT_HOME=str(Path.cwd() / "prefect"))


def perennial(*arguments):
    return python("-m", "perennial", *arguments)


def everything_in(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def gated(load):
    """A workspace in which every stage left its results."""
    finished.leave(load(), ["cat", "dog"], each=2)


def test_help_lists_every_command_in_its_panel_and_cuts_no_line(workspace):
    shown = perennial("--help")
    assert shown.returncode == 0
    listed, place = {}, ""
    for line in shown.stdout.splitlines():
        if heading := re.fullmatch(r"(\w.*):", line):
            place = heading[1]
        elif (row := re.match(r"  ([a-z-]+)  ", line)) and place in PANELS:
            listed.setdefault(place, []).append(row[1])
    assert listed == {panel: list(commands) for panel, commands in PANELS.items()}
    assert sum(map(len, listed.values())) - len(STAGES) - 2 <= 36  # without pin and record
    assert set(STAGES) < set(listed["Stages, for scripts"])
    assert re.search(r"\w\.\.\.$", shown.stdout, re.MULTILINE) is None


@pytest.mark.fast_rows("train")
@pytest.mark.parametrize("stage", STAGES)
def test_the_help_of_a_stage_has_a_page_and_an_example_that_is_valid(workspace, stage):
    words = " ".join(perennial(stage, "--help").stdout.split())
    page, example = re.search(r"`perennial docs (\S+)`", words)[1], re.search(r"--set ([a-z][^`]*)`", words)[1]
    assert (ROOT / "docs" / "how-to" / f"{page}.md").is_file()
    assert perennial("config", "--set", example).returncode == 0


def test_a_command_outside_of_a_project_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = perennial("validate")
    told = "params.yaml does not exist; change to the folder of your project, or name a file with --params"
    assert (done.returncode, done.stderr) == (2, f"perennial validate: {told}\n")


@pytest.mark.parametrize(("typed", "meant"), [("epochs", "epochs"), ("train.lr", "learning_rate")])
def test_a_key_without_its_section_or_with_its_short_name_is_found(workspace, typed, meant):
    done = perennial("train", "--set", f"{typed}=3")
    assert done.returncode == 2
    assert f"{typed} is not a key; did you mean train.{meant}?" in done.stderr


@pytest.mark.parametrize(
    ("typed", "how"),
    [
        ("train --learning-rate=0.1", "--set"),
        ("train train.lr=0.1", "--set"),
        ("run nightly --epochs 3", "--set"),
        ("predict --image-size 64", "perennial config --set"),
    ],
)
def test_an_unknown_option_is_answered_with_how_a_key_is_set(typed, how):
    refused = perennial(*typed.split())
    assert refused.returncode == 2, refused
    assert f"A key of params.yaml is set by `{how} KEY=VALUE`" in refused.stderr, refused


@pytest.mark.parametrize(
    ("typed", "told"),
    [("versionss", "Did you mean 'versions'?"), ("train --claen", "(Possible options: --clean)")],
)
def test_a_mistyped_command_or_option_is_answered_with_the_nearest(typed, told):
    refused = perennial(*typed.split())
    assert (refused.returncode, told in refused.stderr) == (2, True), refused


def test_every_command_works_without_another_one_loaded_before_it():
    assert all(command.name == name for name, command in all_commands().items())
    for name in all_commands():
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


def test_help_imports_no_command(workspace):
    shown = python("-X", "importtime", "-m", "perennial", "--help")
    assert {"pydantic", "ruamel.yaml", "rich", "perennial.cli.command"} & set(
        re.findall(r"\| +([\w.]+)$", shown.stderr, re.MULTILINE)
    ) == set()


@pytest.mark.parametrize(
    ("typed", "told"),
    [("downlaod", "(?s).*Did you mean.*"), ("convert", ".*convert: params.yaml: train.batch_size .*\n")],
)
def test_after_an_invalid_command_or_parameter_nothing_is_written(workspace, typed, told):
    edit(Path("params.yaml"), "batch_size: 64", "batch_size: 0")
    before = everything_in(workspace)
    shown = perennial(typed)
    assert (shown.returncode, shown.stdout, bool(re.fullmatch(told, shown.stderr))) == (2, "", True), shown
    assert everything_in(workspace) == before


@pytest.mark.parametrize("debug", [False, True])
def test_bad_data_exit_with_3_a_message_for_the_task_and_a_traceback_only_for_debug(workspace, debug):
    shown = perennial("convert", *["--debug"] * debug)
    *traceback, line = shown.stderr.splitlines()
    assert shown.returncode == 3
    assert bool(traceback) == debug
    assert line.startswith("perennial convert: data/raw/digits.csv.gz does not exist")
    failure = documents.read_json(Path(".work/failure.json"))
    assert (failure["stage"], failure["code"]) == ("convert", 3)
    assert line == f"perennial convert: {failure['message']}"


@pytest.mark.parametrize(("signal", "name"), [("SIGTERM", "SIGTERM"), ("SIGINT", "Ctrl-C")])
def test_a_signal_before_a_stage_begins_ends_with_75_and_its_name(workspace, signal, name):
    ended = python("-c", f"import os, signal, perennial.__main__; os.kill(os.getpid(), signal.{signal})")
    assert (ended.returncode, ended.stderr) == (75, f"perennial: {name} ended it; run it again\n")


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["download", "--parms"], 2)])
def test_a_process_with_tensorflow_cleans_up_but_is_not_torn_down(workspace, arguments, code):
    ended = python("-c", ENDS.format(arguments=arguments))
    assert ended.returncode == code
    assert ended.stdout.splitlines()[-1] == "cleaned up"


@pytest.mark.parametrize("by_flow", [False, True])
def test_lines_of_a_stage_carry_the_time_unless_a_flow_adds_it(workspace, monkeypatch, by_flow):
    monkeypatch.delenv("PERENNIAL_STARTED_BY", raising=False)
    if by_flow:
        monkeypatch.setenv("PERENNIAL_STARTED_BY", str(os.getpid()))
    time = "" if by_flow else r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    assert re.match(f"{time}download: ", perennial("download").stderr)


def test_an_unexpected_error_is_left_for_the_task_with_code_1(workspace):
    shown = python(
        "-c",
        "import sys, types; from perennial.cli import main; sys.argv[1:] = ['gate']; "
        "sys.modules['perennial.stages.gate'] = types.SimpleNamespace(gate=lambda _: {}['x']); main()",
    )
    failure = documents.read_json(Path(".work/failure.json"))
    assert shown.returncode == 1
    assert failure["code"] == 1
    assert (failure["message"][:9], failure["kind"]) == ("KeyError:", "bug")


def test_a_stage_that_works_takes_an_older_failure_away(workspace):
    files.write_json(Path(".work/failure.json"), {"stage": "download", "code": 3, "message": "old"})
    assert perennial("download").returncode == 0
    assert not Path(".work/failure.json").exists()


def test_one_of_several_workers_notes_how_long_a_stage_took(workspace, monkeypatch):
    took, among = Path(".work/timings/download.json"), {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
    for index, notes in ((1, False), (0, True)):
        monkeypatch.setenv(
            "TF_CONFIG", json.dumps({"cluster": among, "task": {"type": "worker", "index": index}})
        )
        assert perennial("download").returncode == 0
        assert took.exists() == notes


def test_a_stage_reads_the_file_that_params_names(workspace):
    other = Path("params.yaml").rename("other.yaml")
    edit(other, "work: .work", "work: elsewhere")
    perennial("download", "--params", "other.yaml")
    assert Path("elsewhere/downloads").is_dir()


def test_config_shows_the_file_as_it_is_and_the_checked_parameters_as_json(workspace):
    assert perennial("config").stdout == Path("params.yaml").read_text()
    shown = json.loads(perennial("config", "--json").stdout)
    assert shown["train"]["learning_rate"] == 0.001
    assert shown["paths"]["work"] == ".work"


def test_report_gives_one_json_document_or_a_summary_and_the_page(gated):
    shown = CliRunner().invoke(app, ["report", "--json"])
    assert json.loads(shown.stdout)["decision"] == "passed the gate: good; better"
    shown = CliRunner().invoke(app, ["report"])
    assert re.search("^decision +passed the gate: good; better$", shown.stdout, re.MULTILINE) is not None
    assert shown.stderr == ""
    assert "<h1>Passed the gate</h1>" in Path("report.html").read_text(encoding="utf-8")


def test_scores_on_a_split_before_the_first_run_name_the_missing_model(workspace):
    shown = perennial("evaluate", "--split", "test")
    assert (shown.returncode, shown.stderr.partition(";")[0]) == (
        2,
        "perennial evaluate: models/weights does not exist",
    )


@pytest.mark.fast_rows("validate")
@pytest.mark.parametrize("code", WITHOUT_TENSORFLOW.values(), ids=WITHOUT_TENSORFLOW)
def test_tensorflow_is_imported_only_where_it_is_needed(workspace, code):
    shown = python("-c", REPORT_IMPORTS + code)
    assert Path("imported").exists(), shown.stderr
    imported = set(Path("imported").read_text().splitlines())
    assert "Error" not in shown.stderr
    assert imported & {"tensorflow", "keras"} == set()


def test_the_configuration_brings_no_runner_with_it(workspace):
    python("-c", REPORT_IMPORTS + "import perennial.base.config, perennial.cli")
    imported = set(Path("imported").read_text().splitlines())
    assert "perennial.base.config" in imported
    assert imported & {"prefect", "dvc", "boto3", "numpy", "httpx"} == set()


def test_the_version_is_that_of_the_package(workspace):
    shown = perennial("--version")
    assert shown.returncode == 0
    assert re.fullmatch(r"perennial \d+\.\d+\.\d+\n", shown.stdout) is not None


def test_another_value_for_one_command_leaves_the_parameters_as_they_are(workspace):
    before = Path("params.yaml").read_bytes()
    shown = perennial("download", "--set", "paths.work=elsewhere")
    assert shown.returncode == 0
    assert Path("elsewhere").is_dir()
    assert not Path(".work/downloads").exists()
    assert Path("params.yaml").read_bytes() == before
    refused = perennial("download", "--set", "paths.wrk=elsewhere")
    assert refused.returncode == 2
    assert "--set: paths.wrk is not a key" in refused.stderr


@pytest.mark.parametrize(
    ("share", "shown"), [(None, "0.9731  champion"), (0.012, "0.9731  1.20 % negative flips")]
)
def test_a_version_shows_its_negative_flips_where_they_are_known(share: float | None, shown: str) -> None:
    version = {"version": "v0.0.2", "commit": "c" * 40, "date": "2026-11-22", "accuracy": 0.9731}
    row = version_commands._row(version | {"champion": True, "only_here": False, "negative_flips": share}, ())
    assert shown in row
