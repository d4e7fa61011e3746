"""What dvc.lock has for stages, compared with what they read when they ran here."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.checkout import start_repository
from support.parameters import change_params

from perennial.base import config, documents, files
from perennial.base.config.paths import Paths
from perennial.base.dvc import dvc_digests
from perennial.base.errors import InputsChanged
from perennial.base.stage_state import recorded, stage_inputs
from perennial.base.stage_state.stage_inputs import Inputs

PIPELINE = """\
stages:
  convert:
    cmd: python -m perennial convert
    deps: [data/raw, src/perennial/data, pins/source.json]
    params: [dataset.seed, gate]
    outs: [data/records]
"""
CODE, PIN, DATA = "src/perennial/data/png.py", "pins/source.json", "data/raw/a.tar"
FILES = {
    "dvc.yaml": PIPELINE, PIN: '{"url": null}', DATA: "a",
    "data/records/manifest.json": "{}", CODE: "A = 1\n",
}  # fmt: skip
PARAMS, LOCK, WORK = Path("params.yaml"), Path("dvc.lock"), Path(".work")
RESULT = Path("data/records/manifest.json")


@pytest.fixture
def noted(workspace: Path) -> Inputs:
    """The inputs of a stage in a small project."""
    for name, text in FILES.items():
        write(name, text)
    return note()


def note(stage: str = "convert") -> Inputs:
    return stage_inputs.note(stage, PARAMS, config.load_with_values(PARAMS)[1])


def write(name: str | Path, text: str) -> None:
    files.write_bytes(Path(name), text.encode())


LOCKED = Path(__file__).with_name("recorded.yaml").read_text(encoding="utf-8")


def test_a_stage_reads_the_parameters_of_the_stages_that_it_builds_on(noted: Inputs) -> None:
    recorded.require_as_recorded(noted)
    LOCK.write_text(LOCKED)
    recorded.require_as_recorded(noted)
    change_params(PARAMS, {"dataset.seed": 7, "dataset.name": "cifar10"})
    with pytest.raises(InputsChanged) as error:
        recorded.require_as_recorded(note())
    assert str(error.value).startswith("dataset.seed (0, now 7) changed since download ran, and convert reads ")


def test_a_stage_names_what_dvc_recorded_otherwise_than_an_earlier_one_read(noted: Inputs) -> None:
    work = WORK
    stage_inputs.require_as_first_noted(noted, work, "")
    train = replace(noted, stage="train")
    entry = {"params": {"params.yaml": {"dataset.seed": 7}}, "deps": [{"path": "source.json", "md5": "1f"}]}
    files.write_json(LOCK, {"stages": {"convert": entry}})
    with pytest.raises(InputsChanged) as error:
        recorded.require_others_as_noted(train, work, by_dvc=True)
    assert str(error.value).startswith(
        "convert was recorded with other inputs than it read: dataset.seed is 7 in dvc.lock, and convert used 0"
    )
    recorded.require_others_as_noted(noted, work, by_dvc=True)  # convert itself is about to run
    other = documents.read_json(work / "inputs" / "convert.json")
    files.write_json(work / "inputs" / "convert.json", {**other, "dvc": [1, 2]})
    recorded.require_others_as_noted(train, work, by_dvc=True)  # another DVC may have restored another result


@pytest.fixture
def run(noted: Inputs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a stage as DVC does, in a process of DVC that has ended since; then DVC records what there is."""

    def done(result: str = "{}", edit: Callable[[], object] = lambda: None) -> None:
        read = note()
        monkeypatch.setattr(stage_inputs, "dvc_process", lambda: [1, 2])
        stage_inputs.require_as_first_noted(read, WORK, "")
        write(RESULT, result)
        recorded.complete(read, Paths())
        edit()
        record()
        monkeypatch.setattr(stage_inputs, "dvc_process", lambda: [3, 4])

    return done


def record() -> None:
    """Write the entry that DVC would."""
    found = note()
    deps = {**found.document()["code"], **found.small_files(), "data/raw": dvc_digests.digest(Path("data/raw"))}
    listed: dict[str, Any] = {
        "cmd": "python -m perennial convert",
        "deps": [{"path": path, "md5": md5} for path, md5 in deps.items()],
        "params": found.params,
        "outs": [{"path": "data/records", "md5": "c.dir"}],
    }
    files.write_json(LOCK, {"schema": "2.0", "stages": {"convert": listed}})


def seed(value: int) -> Callable[[], object]:
    return lambda: change_params(PARAMS, {"dataset.seed": value})


EDITS: dict[str, tuple[Callable[[], object], str]] = {
    "a parameter": (seed(7), "dataset.seed is 7 in dvc.lock, and convert used 0"),
    "code": (lambda: write(CODE, "A = 2\n"), "the code in src/perennial/data is not what convert ran"),
    "a pin": (lambda: write(PIN, '{"url": "s3://b"}'), f"{PIN} is not what convert read"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_just_after_the_last_stage_is_named_later(run: Callable[..., None], name: str) -> None:
    edit, words = EDITS[name]
    run(edit=edit)
    wrong = recorded.wrong(WORK)
    assert wrong is not None
    assert wrong.startswith(f"convert was recorded with other inputs than it read: {words}; it changed just as")
    assert "run `dvc repro --force --single-item convert`, then run this again" in wrong


def test_a_stage_that_dvc_starts_later_refuses_and_one_by_hand_warns(run, caplog) -> None:
    run(edit=seed(7))
    train = replace(note(), stage="train", data={"data/records": {}})
    with caplog.at_level(logging.WARNING):
        recorded.require_others_as_noted(train, WORK, by_dvc=False)
        recorded.require_others_as_noted(note(), WORK, by_dvc=False)
    assert [each.message.startswith("convert was recorded with other") for each in caplog.records] == [True] * 2
    recorded.require_others_as_noted(note(), WORK, by_dvc=True)  # the remedy
    recorded.require_others_as_noted(replace(note(), stage="download", data={}, params={}), WORK, by_dvc=True)
    with pytest.raises(InputsChanged, match="convert was recorded with other inputs than it read"):
        recorded.require_others_as_noted(train, WORK, by_dvc=True)


def test_a_run_that_would_run_the_stage_again_may_start(run: Callable[..., None]) -> None:
    run(edit=seed(7))
    now = (PARAMS, config.load_with_values(PARAMS)[1])
    assert recorded.wrong(WORK, now) is not None
    seed(8)()
    assert recorded.wrong(WORK, (PARAMS, config.load_with_values(PARAMS)[1])) is None


def test_what_ran_is_no_edit(run: Callable[..., None]) -> None:
    run()
    assert recorded.wrong(WORK) is None
    seed(7)()
    run()
    assert recorded.wrong(WORK) is None
    seed(0)()
    record()  # restored from DVC's cache: the first run had made the same
    assert recorded.wrong(WORK) is None


def test_the_results_of_another_run_are_not_compared(run: Callable[..., None]) -> None:
    run()
    seed(7)()
    write(RESULT, '{"other": 1}')
    record()
    assert recorded.wrong(WORK) is None


def test_an_entry_that_git_has_may_be_of_another_clone(run: Callable[..., None]) -> None:
    run(edit=seed(7))
    start_repository(Path())
    assert recorded.wrong(WORK) is None


@pytest.mark.parametrize("text", ["{", "[]", '{"history": 7}', '{"history": [7, {}, {"made": {}}]}'])
def test_damage_to_the_notes_is_no_obstacle(run: Callable[..., None], text: str) -> None:
    run(edit=seed(7))
    (WORK / "inputs" / "convert.json").write_text(text)
    assert recorded.wrong(WORK) is None
    run()
    assert recorded.wrong(WORK) is None


@pytest.fixture
def edited(noted: Inputs, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """A function that runs a stage while something is edited, so that its result is kept."""
    monkeypatch.setenv(recorded.BY_DVC, "convert")

    def run(edit: Callable[[], object]) -> None:
        read = note()
        write(RESULT, "made")
        edit()
        with pytest.raises(InputsChanged, match="nothing was recorded, and the result is kept"):
            recorded.require_unchanged(read, Paths(), own_outputs=True)
        assert not RESULT.exists()

    return run


def take() -> bool:
    return recorded.take(Paths(), note())


Edited = Callable[[Callable[[], object]], None]


def test_the_kept_result_is_that_of_the_old_value_and_of_equal_files(edited: Edited) -> None:
    edited(seed(7))
    assert not take()
    seed(0)()
    for name in (DATA, PIN):  # written again
        write(name, FILES[name])
    assert take()
    assert RESULT.read_text() == "made"
    assert not Path(".work/kept").exists()


OTHER = (DATA, "data/raw/new.tar", PIN)
GONE = (PIN, ".work/kept/convert/inputs.json")  # the second: the result is incomplete


@pytest.mark.parametrize(
    ("name", "gone"), [*((each, False) for each in OTHER), *((each, True) for each in GONE)]
)
def test_other_or_gone_data_did_not_make_it(edited: Edited, name: str, gone: bool) -> None:
    edited(seed(7))
    seed(0)()
    Path(name).unlink() if gone else write(name, "other")
    assert not take()
    assert gone or Path(".work/kept/convert").is_dir()


def test_data_that_changed_meanwhile_and_is_back_as_the_same_file_made_it(edited: Edited) -> None:
    def move_away() -> None:
        Path(DATA).rename("old")
        write(DATA, "other")

    edited(move_away)
    assert not take()
    Path("old").replace(DATA)
    assert take()


def test_data_that_changed_meanwhile_has_no_digest_to_compare(edited: Edited) -> None:
    edited(lambda: write(DATA, "other"))
    write(DATA, FILES[DATA])
    assert not take()
    write(DATA, "other")
    assert not take()
