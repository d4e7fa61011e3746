"""What a flow does inside DVC, for which DVC has no public functions.

pyproject.toml bounds DVC's version because of this module; its test says what a new version changes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvc.config import Config
from dvc.dirs import site_cache_dir
from dvc.logger import _iter_causes
from dvc.repo import lock_repo
from dvc.stage import serialize
from dvc.utils.serialize import dumps_yaml, parse_yaml_for_update

from perennial.base import files

# What DVC logs of a stage: what became of it, and its command.
RESULTS = {
    "Running stage '%s':": "ran",
    "Stage '%s' is cached - skipping run, checking out outputs": "restored",
}
SHOWN = {*RESULTS, "%s %s"}
locked = lock_repo  # for a block


def words(error: Exception) -> str:
    """An error with its causes, as DVC prints it."""
    return ": ".join(_iter_causes(error))


def entry(stage: Any) -> Mapping[str, Any]:
    """The entry of dvc.lock of a stage that DVC has run."""
    found: Mapping[str, Any] = serialize.to_single_stage_lockfile(stage)
    return found


def commit(stage: Any) -> None:
    """Keep the outputs of a stage that was reproduced with `no_commit` in DVC's cache, and record it.

    DVC formats dvc.lock into the file itself, for half a second in which a kill leaves half of it.
    """
    if all(out.use_cache or out.is_metric or out.is_plot for out in stage.outs):
        stage.repo.stage_cache.save(stage)
    stage.commit()
    file = Path(stage.path).with_suffix(".lock")
    content = parse_yaml_for_update(file.read_text(encoding="utf-8") if file.exists() else "", file)
    if not content:
        content["schema"] = "2.0"
    content["stages"] = content.get("stages", {})
    content["stages"][stage.name] = entry(stage)
    files.write_bytes(file, dumps_yaml(content).encode())
    stage.repo.scm_context.track_file(str(file))


def notes_folder(error: Exception) -> Path:
    """The folder of DVC's databases about files, one of which raised the error."""
    if directory := getattr(error, "directory", None):  # dvc_data's DiskError
        return Path(directory)
    return Path(Config.from_cwd(validate=False)["core"].get("site_cache_dir") or site_cache_dir())
