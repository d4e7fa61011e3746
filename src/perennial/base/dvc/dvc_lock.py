"""Read dvc.lock: what DVC recorded for each stage, and how stages depend on each other's outputs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from perennial.base import documents
from perennial.base.errors import DataError

FILE = Path("dvc.lock")
DESCRIBED = ("training", "decision")  # paths of the records in which stages write what they used
SHOWN = 200  # characters of a value in a message


@dataclass(frozen=True)
class Size:
    """The size of an output, as DVC counted it."""

    bytes: int
    files: int  # 1 of a file


@dataclass(frozen=True, kw_only=True)
class LockedStage:
    """A stage as dvc.lock describes it: digests by path, and values by file and key."""

    command: str
    deps: Mapping[str, str]
    params: Mapping[tuple[str, str], object]
    outs: Mapping[str, str]
    sizes: Mapping[str, Size] = field(default_factory=dict)  # of outputs

    def inputs(self) -> tuple[object, ...]:
        """The command, dependencies and parameters, which determine the outputs."""
        return (self.command, self.deps, self.params)


def parse(text: str | bytes, name: str) -> dict[str, LockedStage]:
    """Parse the stages of a dvc.lock."""
    try:
        return {stage: _entry(content) for stage, content in sections(text).items()}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(f"{name} is not a dvc.lock that can be read; nothing was changed") from error


def sections(text: str | bytes) -> dict[str, Any]:
    """Parse the stages of a dvc.lock as plain values."""
    stages: dict[str, Any] = documents.parse_yaml(text)["stages"]
    return stages


def entries(text: str | bytes | None) -> dict[str, LockedStage]:
    """Parse the stages of a dvc.lock; empty if it is not valid."""
    try:
        return parse(text or "", FILE.name)
    except DataError:
        return {}


def here(folder: Path = Path()) -> dict[str, LockedStage]:
    """Read the stages of a checkout's dvc.lock; empty if there is no valid one."""
    file = folder / FILE
    return entries(file.read_bytes() if file.is_file() else None)


def digest(stages: Mapping[str, LockedStage], path: PurePath | str) -> str | None:
    """The digest of an output; None if no stage has it."""
    name = PurePath(path).as_posix()
    return next((entry.outs[name] for entry in stages.values() if name in entry.outs), None) or None


def size(stages: Mapping[str, LockedStage], path: PurePath | str) -> Size | None:
    """The size of an output; None if no stage has it or DVC did not record it."""
    name = PurePath(path).as_posix()
    return next((entry.sizes[name] for entry in stages.values() if name in entry.sizes), None)


def sources(stages: Mapping[str, LockedStage]) -> list[str]:
    """The files and folders that stages depend on, but no stage writes."""
    written = {path for entry in stages.values() for path in entry.outs}
    return sorted({path for entry in stages.values() for path in entry.deps} - written)


def ordered(stages: Mapping[str, LockedStage]) -> list[str]:
    """Sort the stages topologically, each after those whose outputs it reads."""
    makers = {out: name for name, entry in stages.items() for out in entry.outs}
    found: list[str] = []

    def add(name: str, above: tuple[str, ...] = ()) -> None:
        if name in found or name in above:
            return
        for dep in (*stages[name].deps, *dict.fromkeys(file for file, _ in stages[name].params)):
            if (maker := maker_of(dep, makers)) is not None:
                add(maker, (*above, name))
        found.append(name)

    for name in stages:
        add(name)
    return found


def above(stages: Mapping[str, LockedStage], path: str, *, values: bool) -> list[str]:
    """The stages that lead to an output, in order; `values`: also by files that are read as parameters."""
    makers = {out: name for name, entry in stages.items() for out in entry.outs}
    found, queue = set[str](), [maker_of(path, makers)]
    while queue:
        name = queue.pop()
        if name is None or name in found:
            continue
        found.add(name)
        read = [*stages[name].deps, *{file for file, _ in stages[name].params if values}]
        queue += [maker_of(each, makers) for each in read]
    return [name for name in ordered(stages) if name in found]


def contradictions(stages: Mapping[str, LockedStage], path: PurePath | str, content: bytes) -> list[str]:
    """How dvc.lock contradicts what a stage wrote about itself in its record, an output at this path."""
    stage, used = maker(stages, path), documents.json_object(content).get("inputs")
    return differences(stages[stage], stage, used) if stage and isinstance(used, Mapping) else []


def differences(entry: LockedStage, stage: str, used: Mapping[str, Any]) -> list[str]:
    """How the entry of a stage in dvc.lock differs from the parameters and the code that it used."""
    who = "the training" if stage == "train" else stage
    found = [
        f"{key}{'' if file == 'params.yaml' else f' in {file}'} is {_shown(entry.params[file, key])} in "
        f"dvc.lock, and {who} used {_shown(value)}"
        for (file, key), value in _by_key(used.get("params") or {}).items()
        if (file, key) in entry.params and entry.params[file, key] != value
    ]
    code = dict(used.get("code") or {})
    return found + [
        f"the code in {path} is not what {who} ran"
        for path, digest in code.items()
        if path in entry.deps and entry.deps[path] != digest
    ]


def maker(stages: Mapping[str, LockedStage], path: PurePath | str) -> str | None:
    """The stage that has an output at exactly this path."""
    name = PurePath(path).as_posix()
    return next((stage for stage, entry in stages.items() if name in entry.outs), None)


def maker_of(path: str, makers: Mapping[str, str]) -> str | None:
    """The stage that writes a path or one of its parent folders."""
    while path not in makers and "/" in path:
        path = path.rpartition("/")[0]
    return makers.get(path)


def value_at(values: object, key: str) -> Any:
    """The value of a key such as `train.epochs`, or None."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _entry(content: Mapping[str, Any]) -> LockedStage:
    outs = content.get("outs") or []
    return LockedStage(
        command=str(content.get("cmd", "")),
        deps=_digests(content.get("deps") or []),
        params=_by_key(content.get("params") or {}),
        outs=_digests(outs),
        sizes={_path(out): Size(int(out["size"]), int(out.get("nfiles", 1))) for out in outs if "size" in out},
    )


def _by_key(params: Mapping[str, Any]) -> dict[tuple[str, str], object]:
    return {
        (file, key): value
        for file, values in params.items()
        for key, value in documents.flattened(values).items()
    }


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _digests(listed: list[Mapping[str, Any]]) -> dict[str, str]:
    kinds = ("md5", "etag", "checksum")
    return {_path(each): next((str(each[kind]) for kind in kinds if each.get(kind)), "") for each in listed}


def _path(listed: Mapping[str, Any]) -> str:
    return PurePosixPath(str(listed["path"])).as_posix()
