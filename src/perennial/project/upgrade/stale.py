"""Which stages run again after files of a project have changed, found without running DVC."""

import posixpath
from collections.abc import Callable, Mapping
from typing import Any

from perennial.base import documents
from perennial.base.dvc import dvc_lock
from perennial.base.layout import PARAMS, STAGES
from perennial.base.stage_state.stage_inputs import REFERENCE

Read = Callable[[str], bytes | None]  # gives the content of a file by its path from the project's root


def run_again(before: Read, after: Read, folder: str = "") -> list[str]:
    """The stages of the pipeline in `folder` that other contents of files make stale, in order."""
    old, new = _stages(before, folder), _stages(after, folder)
    found = {name for name, stage in new.items() if stage != old.get(name)}
    while True:
        made = [out for name in found for out in new[name]["outs"]]
        more = {
            name for name, stage in new.items() if any(_below(read, made) for read in stage["reads"])
        } - found
        if not more:
            return [name for name in new if name in found]
        found |= more


def _stages(read: Read, folder: str) -> dict[str, dict[str, Any]]:
    """What DVC compares of each stage of a pipeline."""
    values = _yaml(read(posixpath.join(folder, PARAMS)))
    stages = _yaml(read(posixpath.join(folder, STAGES))).get("stages") or {}
    return {name: _stage(stage, values, read, folder) for name, stage in stages.items()}


def _stage(stage: Mapping[str, Any], values: Mapping[str, Any], read: Read, folder: str) -> dict[str, Any]:
    def resolved(text: object) -> str:
        return REFERENCE.sub(lambda key: str(dvc_lock.value_at(values, key[1])), str(text))

    outs = [
        resolved(next(iter(each)) if isinstance(each, Mapping) else each)
        for kind in ("outs", "metrics", "plots")
        for each in stage.get(kind) or []
    ]
    deps = sorted(map(resolved, stage.get("deps") or []))
    params: dict[str, Any] = {}
    for each in stage.get("params") or []:
        for name, keys in (each if isinstance(each, Mapping) else {PARAMS: [each]}).items():
            file = resolved(name)
            content = (
                values if file == PARAMS else _yaml(read(posixpath.normpath(posixpath.join(folder, file))))
            )
            chosen = content if not keys else {key: dvc_lock.value_at(content, key) for key in keys}
            params[file] = {**params.get(file, {}), **chosen}
    return {
        "command": stage.get("cmd"),
        "deps": deps,
        "outs": sorted(outs),
        "params": params,
        "reads": sorted({*deps, *params}),
    }


def _below(path: str, made: list[str]) -> bool:
    return any(path == out or path.startswith(f"{out}/") for out in made)


def _yaml(content: bytes | None) -> dict[str, Any]:
    try:
        return documents.yaml_object(content or b"")
    except ValueError:  # results of stages, or conflicts
        return {}
