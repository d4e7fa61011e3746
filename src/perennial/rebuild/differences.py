"""Two records of a stage in dvc.lock compared: of a rebuild, or of two revisions."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from perennial.dvc_lock import Entry, maker_of
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
