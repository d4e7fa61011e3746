"""What a flow reads and changes of DVC's own files, for which DVC has no public functions.

pyproject.toml bounds DVC's version because of this module; its test says what a new version changes.
"""

import importlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dvc.config import Config
from dvc.dirs import site_cache_dir
from dvc.utils import dict_sha256

from perennial.base.processes.process import is_alive


def forget_run(results: Path, entry: Mapping[str, Any]) -> None:
    """Remove the entry of DVC's run cache, the folder `results`, that equals an entry of dvc.lock."""
    file = run_entry(results, entry)
    file.unlink(missing_ok=True)
    with suppress(OSError):  # it has other results; DVC fails on an empty folder
        file.parent.rmdir()


def run_entry(results: Path, entry: Mapping[str, Any]) -> Path:
    """The file of the run cache in which DVC keeps an entry of dvc.lock, as `dvc.stage.cache` names it."""
    inputs = {**entry, "outs": [out["path"] for out in entry.get("outs", [])]}
    key, value = (dict_sha256(each, exclude=["size", "nfiles"]) for each in (inputs, entry))
    return Path(results, key[:2], key, value)


def notes_folder(error: Exception) -> Path:
    """The folder of DVC's databases about files, one of which raised the error."""
    if directory := getattr(error, "directory", None):  # dvc_data's DiskError
        return Path(directory)
    return Path(Config.from_cwd(validate=False)["core"].get("site_cache_dir") or site_cache_dir())


def remove_broken_list_of_locks(repo: Any) -> None:
    """Remove the list that a DVC which was killed left half written: every later DVC would fail on it."""
    rwlock = importlib.import_module("dvc.rwlock")
    file = Path(repo.tmp_dir or "", rwlock.RWLOCK_FILE)
    guard = str(file.with_name(rwlock.RWLOCK_LOCK))
    try:
        json.loads(file.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:  # or another DVC is writing it: then the guard is taken until it has
        with rwlock.make_lock(guard, tmp_dir=repo.tmp_dir, hardlink_lock=_hardlink(repo)):
            with suppress(ValueError, FileNotFoundError):
                json.loads(file.read_bytes())
                return
            file.unlink(missing_ok=True)


def release_locks_of_the_dead(repo: Any) -> None:
    """Remove the locks of stopped DVC processes; each later DVC command would warn about every one."""
    rwlock = importlib.import_module("dvc.rwlock")
    if not Path(repo.tmp_dir or "", rwlock.RWLOCK_FILE).exists():
        return
    with rwlock._edit_rwlock(repo.tmp_dir, repo.fs, _hardlink(repo)) as locks:  # noqa: SLF001
        for path, readers in list(locks["read"].items()):
            locks["read"][path] = [reader for reader in readers if is_alive(reader["pid"])]
            if not locks["read"][path]:
                del locks["read"][path]
        for path, writer in list(locks["write"].items()):
            if not is_alive(writer["pid"]):
                del locks["write"][path]


def _hardlink(repo: Any) -> bool:
    return bool(repo.config["core"].get("hardlink_lock", False))
