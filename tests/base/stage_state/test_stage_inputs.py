"""What a stage reads: noted at its start, compared at its end."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.parameters import change_params

from perennial.base import config, documents
from perennial.base.errors import InputsChanged
from perennial.base.stage_state import stage_inputs
from perennial.base.stage_state.stage_inputs import Inputs

PIPELINE = Path(__file__).with_name("stage_inputs.yaml").read_text(encoding="utf-8")
IMAGES, PINS = "src/perennial/data/images", "src/perennial/base/project/pins.py"
CODE, VERSIONS = f"{IMAGES}/png.py", "requirements/data.yaml"
EXCLUDED = '{"digests": ["1f"], "reasons": {}}'
FILES = {
    "dvc.yaml": PIPELINE,
    ".dvcignore": "# names\n__pycache__\n.DS_*\n/docs\n",
    VERSIONS: 'packages:\n  numpy: "2.3" # a comment\n',
    "exclusions.json": '{"digests": [], "reasons": {}}',
    "source.json": '{"url": null}',
    "data/raw/a.tar": "a",
    "data/raw/b/c.tar": "c",
    CODE: "A = 1\n",
    PINS: "B = 1\n",
}
PARAMS, WORK = Path("params.yaml"), Path(".work")


@pytest.fixture
def noted(workspace: Path) -> Inputs:
    """The inputs of a stage in a small project."""
    for name, text in FILES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    return note()


def note() -> Inputs:
    _, values = config.load_with_values(PARAMS)
    return stage_inputs.note("convert", PARAMS, values)


def written(name: str, text: str) -> Callable[[], object]:
    def write() -> None:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")

    return write


def replaced_by_equal_bytes() -> None:
    Path("new").write_text(FILES["data/raw/a.tar"])
    Path("new").replace("data/raw/a.tar")


def linked() -> None:
    PARAMS.rename("mine.yaml")
    PARAMS.symlink_to("mine.yaml")


def parameter(key: str, value: object) -> Callable[[], object]:
    return lambda: change_params(PARAMS, {key: value})


CHANGES: dict[str, tuple[Callable[[], object], list[str]]] = {
    "a key": (parameter("dataset.seed", 7), ["dataset.seed (0, now 7)"]),
    "a key of a section": (parameter("gate.min_gain", 0.1), ["gate.min_gain (0.005, now 0.1)"]),
    "another key": (parameter("train.seed", 7), []),
    "the parameters are gone": (PARAMS.unlink, ["params.yaml (cannot be read now)"]),
    "the parameters are not YAML": (written("params.yaml", "a: ["), ["params.yaml (cannot be read now)"]),
    "the parameters are empty": (written("params.yaml", ""), ["dataset.seed (0, now not set)"]),
    "a package": (
        written(VERSIONS, "packages: {numpy: '2.4'}"),
        [f"packages.numpy in {VERSIONS} ('2.3', now '2.4')"],
    ),
    "a comment about a package": (written(VERSIONS, "packages: {numpy: '2.3'}"), []),
    "an exclusion": (written("exclusions.json", EXCLUDED), ["digests in exclusions.json ([], now ['1f'])"]),
    "a reason": (written("exclusions.json", '{"digests": [], "reasons": {"1f": {}}}'), []),
    "a pin": (written("source.json", "{}"), ["source.json (written or replaced)"]),
    "a pin that is saved again": (written("source.json", FILES["source.json"]), []),
    "the parameters as a link to equal ones": (linked, []),
    "a file of code": (written(CODE, "A = 1 \n"), [f"{CODE} (saved)"]),
    "code with the same content": (written(PINS, "B = 1\n"), []),
    "a new file of code": (written(f"{IMAGES}/new/a.py", ""), [f"{IMAGES}/new/a.py (added)"]),
    "a removed file of code": (Path(PINS).unlink, [f"{PINS} (gone)"]),
    "bytecode": (written(f"{IMAGES}/__pycache__/png.pyc", ""), []),
    "what a file manager writes": (written("data/raw/b/.DS_Store", ""), []),
    "a folder that DVC ignores": (written("data/raw/__pycache__/x", ""), []),
    "other code": (written("src/perennial/other.py", ""), []),
    "data": (written("data/raw/b/c.tar", "C"), ["data/raw/b/c.tar (written or replaced)"]),
    "data that were replaced": (replaced_by_equal_bytes, ["data/raw/a.tar (written or replaced)"]),
    "new data": (written("data/raw/new", ""), ["data/raw/new (added)"]),
    "removed data": (Path("data/raw/a.tar").unlink, ["data/raw/a.tar (gone)"]),
    "the pipeline": (written("dvc.yaml", "stages: {}"), []),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_if_the_stage_reads_it(noted: Inputs, name: str) -> None:
    edit, expected = CHANGES[name]
    assert noted.changes() == []
    edit()
    assert noted.changes()[: max(len(expected), 1)] == expected


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("https://me:old@host/", "https://me:new@host/", "'https://***@host/'"),
        ("a" * 2000, "b" * 2000, "2002 characters"),
    ],
)
def test_a_change_that_cannot_be_shown_is_named(noted: Inputs, old: str, new: str, shown: str) -> None:
    written(VERSIONS, f"packages: {{numpy: '{old}'}}")()
    found = note()
    written(VERSIONS, f"packages: {{numpy: '{new}'}}")()
    assert found.changes() == [f"packages.numpy in requirements/data.yaml ({shown}, now another one)"]


def test_what_is_noted_is_what_this_process_read_not_what_the_file_has_now(noted: Inputs) -> None:
    _, values = config.load_with_values(PARAMS)
    change_params(PARAMS, {"dataset.seed": 7})
    assert stage_inputs.note("convert", PARAMS, values).changes() == ["dataset.seed (0, now 7)"]


def test_with_other_parameters_their_file_is_compared(noted: Inputs) -> None:
    other = Path("other.yaml")
    other.write_bytes(PARAMS.read_bytes())
    _, values = config.load_with_values(other)
    found = stage_inputs.note("convert", other, values)
    change_params(PARAMS, {"dataset.seed": 7})
    assert found.changes() == []
    change_params(other, {"dataset.seed": 7})
    assert found.changes() == ["dataset.seed in other.yaml (0, now 7)"]


def test_the_document_has_no_facts_of_this_machine(noted: Inputs) -> None:
    first = noted.document()
    for name in FILES:
        Path(name).with_name("copy").write_bytes(Path(name).read_bytes())
        Path(name).with_name("copy").replace(name)
    assert note().document() == first
    assert note().data != noted.data


@pytest.mark.usefixtures("workspace")
def test_without_a_pipeline_there_is_nothing_to_note() -> None:
    found = note()
    assert (found.params, found.code, found.data) == ({}, {}, {})


def test_a_missing_file_of_parameters_is_left_to_the_stage(noted: Inputs) -> None:
    Path("exclusions.json").unlink()
    assert note().params == {**noted.params, "exclusions.json": {}}


def test_a_run_starts_a_stage_again_only_with_what_it_first_read(noted: Inputs) -> None:
    stage_inputs.require_as_first_noted(noted, WORK, "night-1")
    stage_inputs.require_as_first_noted(note(), WORK, "night-1")
    change_params(PARAMS, {"dataset.seed": 7})
    written(PINS, "B = 2\n")()
    said = rf"dataset.seed \(0, now 7\), {PINS} \(saved\) changed since this run"
    with pytest.raises(InputsChanged, match=said):
        stage_inputs.require_as_first_noted(note(), WORK, "night-1")
    stage_inputs.require_as_first_noted(note(), WORK, "night-2")


def test_a_run_may_pin_again(noted: Inputs) -> None:
    stage_inputs.require_as_first_noted(noted, WORK, "night-1")
    written("source.json", '{"url": "s3://bucket"}')()
    written("exclusions.json", EXCLUDED)()
    stage_inputs.require_as_first_noted(note(), WORK, "night-1")


def test_damage_to_what_a_run_noted_is_no_obstacle(noted: Inputs) -> None:
    stage_inputs.require_as_first_noted(noted, WORK, "night-1")
    (file,) = Path(".work/inputs").iterdir()
    file.write_text("{")
    stage_inputs.require_as_first_noted(noted, WORK, "night-1")
    assert documents.read_json(file)["run"] == "night-1"


def test_a_run_that_starts_a_stage_again_with_other_code_is_refused(noted: Inputs) -> None:
    digest = "      - gate\n      - code.yaml:\n          - stages.convert\n"
    written("dvc.yaml", PIPELINE.replace("      - gate\n", digest))()
    for convert, train in (("aa", "bb"), ("aa", "cc")):
        written("code.yaml", f'stages:\n  convert: "{convert}"\n  train: "{train}"\n')()
        stage_inputs.require_as_first_noted(note(), WORK, "night-1")
    written("code.yaml", 'stages:\n  convert: "dd"\n  train: "cc"\n')()
    with pytest.raises(InputsChanged, match=r"stages\.convert in code\.yaml .* changed since this run started"):
        stage_inputs.require_as_first_noted(note(), WORK, "night-1")
    stage_inputs.require_as_first_noted(note(), WORK, "night-2")
