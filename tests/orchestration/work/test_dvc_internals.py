"""What this project uses of DVC's inside: a failure here says what a new version of DVC changed."""

import inspect
from pathlib import Path

import pytest
from dvc import rwlock
from dvc.repo import Repo
from dvc.utils.serialize import load_yaml
from support.tasks import write_pipeline

from perennial.orchestration.work import dvc_internals
from perennial.orchestration.work.dvc_repo import reproduce


def test_dvc_has_the_functions_that_edit_its_locks() -> None:
    assert list(inspect.signature(rwlock._edit_rwlock).parameters) == ["lock_dir", "fs", "hardlink"]
    assert {"tmp_dir", "hardlink_lock"} <= inspect.signature(rwlock.make_lock).parameters.keys()
    assert (rwlock.RWLOCK_FILE, rwlock.RWLOCK_LOCK) == ("rwlock", "rwlock.lock")


def test_an_entry_of_the_run_cache_is_found_by_that_of_the_lock_file_and_alone_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import shutil; shutil.copy('mine', 'out')"
    monkeypatch.chdir(write_pipeline(tmp_path, code, deps=["mine"], outs=["out"]))
    entries = []
    for content in ("first", "second"):
        Path("mine").write_text(content)
        assert reproduce("train", print) == "ran"
        entries.append(load_yaml("dvc.lock")["stages"]["train"])
    results = Path(Repo().stage_cache.cache_dir)
    first, second = (dvc_internals.run_entry(results, entry) for entry in entries)
    assert {file for file in results.rglob("*") if file.is_file()} == {first, second}
    dvc_internals.forget_run(results, entries[0])
    assert (first.parent.exists(), second.exists()) == (False, True)


def test_the_folder_of_a_damaged_database_is_the_one_that_is_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write_pipeline(tmp_path, ""))
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    assert dvc_internals.notes_folder(ValueError()) == tmp_path / "site"
    (tmp_path / ".dvc" / "config.local").write_text(f"[core]\n    site_cache_dir = {tmp_path / 'other'}\n")
    assert dvc_internals.notes_folder(ValueError()) == tmp_path / "other"
