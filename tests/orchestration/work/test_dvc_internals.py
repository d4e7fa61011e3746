"""What this project uses of DVC's inside: a failure here says what a new version of DVC changed."""

import inspect
import shutil
from pathlib import Path

import pytest
from dvc.repo import Repo
from dvc.stage import cache, run
from support.tasks import write_pipeline

from perennial.orchestration.work import dvc_internals
from perennial.orchestration.work.dvc_repo import reproduce


def test_dvc_logs_what_is_looked_for() -> None:
    logged = inspect.getsource(run) + inspect.getsource(cache)
    assert all(f'"{text}"' in logged for text in dvc_internals.SHOWN)


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


def test_the_folder_of_a_damaged_database_is_the_one_that_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_pipeline(tmp_path, ""))
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    assert dvc_internals.notes_folder(ValueError()) == tmp_path / "site"
    (tmp_path / ".dvc" / "config.local").write_text(f"[core]\n    site_cache_dir = {tmp_path / 'other'}\n")
    assert dvc_internals.notes_folder(ValueError()) == tmp_path / "other"
