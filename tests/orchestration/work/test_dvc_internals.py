"""What this project uses of DVC's inside: a failure here says what a new version of DVC changed."""

import inspect
import shutil
from pathlib import Path

import pytest
from dvc.repo import Repo
from dvc.stage import cache, run
from dvc.utils.serialize import modify_yaml, parse_yaml
from support.tasks import write_pipeline

from perennial.orchestration.work import dvc_requests
from perennial.orchestration.work.dvc_repo import reproduce


def test_dvc_logs_what_is_looked_for() -> None:
    logged = inspect.getsource(run) + inspect.getsource(cache)
    assert all(f'"{text}"' in logged for text in dvc_requests.SHOWN)


def test_what_the_flow_records_is_what_dvc_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import shutil; shutil.copytree('mine', 'out')"
    monkeypatch.chdir(write_pipeline(tmp_path, code, deps=["mine"], outs=["out"], params=["paths"]))
    Path("mine").mkdir()
    locks = []
    for how in (lambda: reproduce("train", print), lambda: Repo().reproduce("train", single_item=True)):
        for content in ("first", "second"):
            Path("mine", content).write_text(content)
            how()
        results = {file: file.read_bytes() for file in Path(".dvc/cache").rglob("*") if file.is_file()}
        locks.append((Path("dvc.lock").read_text(), results))
        Path("dvc.lock").unlink()
        Path("mine", "second").unlink()
        shutil.rmtree(".dvc/cache")
    assert locks[0] == locks[1]


ODD = {
    "cmd": "python -c 'a: b # c'  " + "word " * 40,
    "params": {"params.yaml": {"a.b": "two\n\nlines\n", "c": [1e-05, None, True, "", "null", "é☃", {"d": []}]}},
    "outs": [{"path": "a: b", "md5": "0123"}, {"path": "- c", "md5": "1e3", "nfiles": 1}],
}
HEAD = "schema: '2.0'\nstages:\n"
NAMES = ("download", "train", "gate", "new", "train@0.1", "null")
LOCKS = {
    "the project's": (Path(__file__).parents[3] / "dvc.lock").read_text(encoding="utf-8"),
    "of no stage yet": "",
    "with data sets at its end": f"{HEAD}  a:\n    cmd: b\ndatasets:\n- name: gate\n  gate:\n    c: 1\n",
    "with a comment": f"# mine\n{HEAD}  a: # b\n    cmd: c\n  gate:\n    cmd: d\n  # e\n  f:\n    cmd: g\n",
    "that was edited": "stages: {gate: {cmd: a}}\n",
    "without a last newline": f"{HEAD}  gate:\n    cmd: a",
}


@pytest.mark.fast_rows("the project's-train", *(f"{lock}-{name}" for lock in [*LOCKS][1:] for name in NAMES))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", LOCKS.values(), ids=LOCKS)
def test_an_entry_is_written_as_dvc_writes_it(tmp_path: Path, text: str, name: str) -> None:
    file = tmp_path / "dvc.lock"
    file.write_text(text, encoding="utf-8")
    shared = [1, 2]
    for new in ({"cmd": "a"}, ODD, {"cmd": "a", "params": {"b": {"c": shared, "d": shared}}}, {"cmd": "b"}):
        found = dvc_requests.with_entry(file.read_text(encoding="utf-8"), name, new, file)
        with modify_yaml(file) as content:  # as DVC's Lockfile.dump_stages
            if not content:
                content["schema"] = "2.0"
            content["stages"] = content.get("stages", {})
            content["stages"][name] = new
        assert found == file.read_text(encoding="utf-8")


def test_only_the_entry_that_changed_is_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dvc_requests, "parse_yaml_for_update")
    text = LOCKS["the project's"]
    for name, recorded in parse_yaml(text, "dvc.lock")["stages"].items():
        assert dvc_requests.with_entry(text, name, recorded, Path("dvc.lock")) == text


def test_the_folder_of_a_damaged_database_is_the_one_that_is_configured(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(write_pipeline(tmp_path, ""))
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    assert dvc_requests.notes_folder(ValueError()) == tmp_path / "site"
    (tmp_path / ".dvc" / "config.local").write_text(f"[core]\n    site_cache_dir = {tmp_path / 'other'}\n")
    assert dvc_requests.notes_folder(ValueError()) == tmp_path / "other"
