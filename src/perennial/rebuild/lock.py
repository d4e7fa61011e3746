"""What dvc.lock records of each stage, and two such records compared: of a rebuild, or of two revisions."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from perennial.errors import DataError
from perennial.pins import ChampionPin, WeightsPin

Kind = Literal[
    "code", "packages", "data", "parameters", "seed", "weights", "champion", "hardware", "remote", "source",
    "failure", "unknown",
]  # fmt: skip
PARAMS, ENVIRONMENT, CODE = "params.yaml", "environment/", "src/"
WEIGHTS = ("model.weights", "train.warm_start.path")


@dataclass(frozen=True)
class Difference:
    """Something that is not as it was recorded, and so a cause; None: there is none."""

    kind: Kind
    stage: str
    what: str
    recorded: object
    rebuilt: object

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: recorded {_shown(self.recorded)}, here {_shown(self.rebuilt)}"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A stage as dvc.lock describes it: digests by path, and values by file and key."""

    command: str
    deps: Mapping[str, str]
    params: Mapping[tuple[str, str], object]
    outs: Mapping[str, str]

    def inputs(self) -> tuple[object, ...]:
        """What decides the outputs."""
        return (self.command, self.deps, self.params)


def parse(text: str, name: str) -> dict[str, Entry]:
    """The stages of a dvc.lock.

    Raises:
        DataError: it is none; `name` says which.
    """
    try:
        stages = YAML(typ="safe").load(text)["stages"]
        return {stage: _entry(content) for stage, content in stages.items()}
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError, YAMLError) as error:
        raise DataError(f"{name} is not a dvc.lock that can be read; nothing was changed") from error


def ordered(stages: Mapping[str, Entry]) -> list[str]:
    """The stages, each after those whose outputs it reads."""
    makers = {out: name for name, entry in stages.items() for out in entry.outs}
    found: list[str] = []

    def add(name: str, above: tuple[str, ...] = ()) -> None:
        if name in found or name in above:
            return
        for dep in (*stages[name].deps, *(file for file, _ in stages[name].params)):
            if (maker := maker_of(dep, makers)) is not None:
                add(maker, (*above, name))
        found.append(name)

    for name in stages:
        add(name)
    return found


def above(stages: Mapping[str, Entry], path: str, *, values: bool) -> list[str]:
    """The stages that an output is made by, in their order; empty where no stage makes it.

    `values`: also stages of whose files only values are read, as parameters.
    """
    makers = {out: name for name, entry in stages.items() for out in entry.outs}
    found, queue = set[str](), [maker_of(path, makers)]
    while queue:
        name = queue.pop()
        if name is None or name in found:
            continue
        found.add(name)
        read = [*stages[name].deps, *(file for file, _ in stages[name].params if values)]
        queue += [maker_of(each, makers) for each in read]
    return [name for name in ordered(stages) if name in found]


def maker_of(path: str, makers: Mapping[str, str]) -> str | None:
    """The stage that writes a path, or the folder that it lies in."""
    parts = (path, *(parent.as_posix() for parent in PurePosixPath(path).parents))
    return next((makers[each] for each in parts if each in makers), None)


def differing_inputs(
    stage: str, recorded: Entry, rebuilt: Entry, made: Collection[str]
) -> Iterator[Difference]:
    """The inputs of a stage that differ, except for the outputs of other stages, which are `made`."""
    if recorded.command != rebuilt.command:
        yield Difference("code", stage, "cmd in dvc.yaml", recorded.command, rebuilt.command)
    makers = dict.fromkeys(made, "")
    for path in sorted(recorded.deps.keys() | rebuilt.deps.keys()):
        a, b = recorded.deps.get(path), rebuilt.deps.get(path)
        if a != b and maker_of(path, makers) is None:
            yield Difference(_kind_of_file(path), stage, path, a, b)
    for file, key in sorted(recorded.params.keys() | rebuilt.params.keys()):
        was, now = recorded.params.get((file, key)), rebuilt.params.get((file, key))
        if was != now and maker_of(file, makers) is None:
            what = key if file == PARAMS else f"{key} in {file}"
            yield Difference(_kind_of_value(file, key), stage, what, was, now)


def differing_outputs(recorded: Entry, rebuilt: Entry) -> dict[str, tuple[str | None, str | None]]:
    """The outputs that differ: the recorded and the rebuilt digest by path."""
    paths = sorted(recorded.outs.keys() | rebuilt.outs.keys())
    pairs = {path: (recorded.outs.get(path), rebuilt.outs.get(path)) for path in paths}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def _entry(content: Mapping[str, Any]) -> Entry:
    params = {
        (file, key): value
        for file, values in (content.get("params") or {}).items()
        for key, value in flat(values)
    }
    deps, outs = (_digests(content.get(name) or []) for name in ("deps", "outs"))
    return Entry(command=str(content["cmd"]), deps=deps, params=params, outs=outs)


def _digests(listed: list[Mapping[str, Any]]) -> dict[str, str]:
    return {
        str(each["path"]): str(each.get("md5") or each.get("etag") or each.get("checksum")) for each in listed
    }


def flat(values: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """The values of nested sections by keys such as `train.epochs`."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def value_at(values: object, key: str) -> Any:
    """The value of a key such as `train.epochs`, or None."""
    for part in key.split("."):
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _kind_of_file(path: str) -> Kind:
    if path == WeightsPin.FILE.as_posix():
        return "weights"
    return "code" if f"{path}/".startswith(CODE) or path.endswith(".py") else "data"


def _kind_of_value(file: str, key: str) -> Kind:
    if file.startswith(ENVIRONMENT):
        return "packages"
    if file == ChampionPin.FILE.as_posix():
        return "champion"
    if key in WEIGHTS:
        return "weights"
    return "seed" if key.rpartition(".")[2] == "seed" else "parameters"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
