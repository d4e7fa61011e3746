"""What a flow does inside DVC, for which DVC has no public functions.

pyproject.toml bounds DVC's version because of this module; its test says what a new version changes.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dvc.config import Config
from dvc.dirs import site_cache_dir
from dvc.logger import _iter_causes
from dvc.repo import lock_repo
from dvc.stage import serialize
from dvc.utils.serialize import ParseError, dumps_yaml, parse_yaml, parse_yaml_for_update

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
    return dict(serialize.to_single_stage_lockfile(stage))


def commit(stage: Any) -> None:
    """Keep the outputs of a stage that was reproduced with `no_commit` in DVC's cache, and record it."""
    # DVC formats dvc.lock into the file itself, for half a second in which a kill leaves half of it.
    if all(out.use_cache or out.is_metric or out.is_plot for out in stage.outs):
        stage.repo.stage_cache.save(stage)
    stage.commit()
    file = Path(stage.path).with_suffix(".lock")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    files.write_bytes(file, with_entry(text, stage.name, entry(stage), file).encode())
    stage.repo.scm_context.track_file(str(file))


def with_entry(text: str, name: str, new: Mapping[str, Any], file: Path) -> str:
    """The text of dvc.lock with an entry replaced or added, as DVC writes it."""
    # DVC formats all entries again, which takes 0.4 s of CPU time. Here the others stay if possible.
    lines = dumps_yaml({"stages": {name: new}}).partition("\n")[2]
    if "&id" not in lines and "#" not in text:  # anchors are numbered over all entries, and comments moved
        old, key = parse_yaml(text, file), re.escape(lines.partition("\n")[0])
        found = re.sub(rf"^{key}\n(?: {{4}}.*\n)*|\Z", lambda _: lines, text, count=1, flags=re.MULTILINE)
        with suppress(ParseError):
            if parse_yaml(found, file) == {**old, "stages": {**old.get("stages", {}), name: new}}:
                return found
    content = parse_yaml_for_update(text, file) or {"schema": "2.0"}
    content.setdefault("stages", {})[name] = new
    return str(dumps_yaml(content))


def notes_folder(error: Exception) -> Path:
    """The folder of DVC's databases about files, one of which raised the error."""
    if directory := getattr(error, "directory", None):  # dvc_data's DiskError
        return Path(directory)
    return Path(Config.from_cwd(validate=False)["core"].get("site_cache_dir") or site_cache_dir())
