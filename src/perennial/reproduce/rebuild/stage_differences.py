"""Compare two records of a stage in dvc.lock; explain why outputs differ although inputs are equal."""

import logging
import platform
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal

from packaging.utils import canonicalize_name

from perennial.base.config import Config
from perennial.base.devices import processor
from perennial.base.dvc.dvc_lock import LockedStage, maker_of
from perennial.base.errors import PerennialError
from perennial.base.project import code_digests, own_components
from perennial.base.project.pins import ChampionPin, WeightsPin
from perennial.base.project.source_code import DISTRIBUTION
from perennial.release.registry import run_records
from perennial.release.registry.versions import Version

log = logging.getLogger(__name__)
Kind = Literal[
    "code", "packages", "data", "parameters", "seed", "weights", "champion", "hardware", "remote", "source",
    "record", "failure", "unknown",
]  # fmt: skip
PARAMS, CODE = "params.yaml", ("src/", f"{own_components.FOLDER}/")
PACKAGES = "requirements/"
CODE_OF = "code of "  # a stage, by its digest in code.yaml
WEIGHTS = ("model.weights", "train.warm_start.path", "train.teacher")
RUNS = 200  # maximum records to check
NOTHING = "nothing that was recorded differs: the stage may not be deterministic"
OWN = {"perennial", DISTRIBUTION}  # excluded: digests in src/ or code.yaml say which code runs
FACTS = ("processor", "instruction_sets", "cores", "gpus", "settings")


@dataclass(frozen=True)
class Difference:
    """Something that differs from what was recorded, and so may be a cause; a value of None: it is missing."""

    kind: Kind
    stage: str
    what: str
    recorded: object
    rebuilt: object

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: recorded {_shown(self.recorded)}, here {_shown(self.rebuilt)}"


def differing_inputs(
    stage: str, recorded: LockedStage, rebuilt: LockedStage, made: Collection[str]
) -> Iterator[Difference]:
    """Yield the inputs of a stage that differ, except outputs of other stages (`made`)."""
    if recorded.command != rebuilt.command:
        yield Difference("code", stage, "cmd in dvc.yaml", recorded.command, rebuilt.command)
    makers = dict.fromkeys(made, "")
    before, after = recorded.deps, rebuilt.deps
    for path in sorted(before.keys() | after.keys()):
        a, b = before.get(path), after.get(path)
        if a != b and maker_of(path, makers) is None:
            yield Difference(_kind_of_file(path), stage, path, a, b)
    for file, key in sorted(recorded.params.keys() | rebuilt.params.keys()):
        was, now = recorded.params.get((file, key)), rebuilt.params.get((file, key))
        if was != now and maker_of(file, makers) is None:
            what = key if file == PARAMS else f"{key} in {file}"
            code = code_of(file, key)
            yield Difference(_kind_of_value(file, key), stage, code or what, was, now)


def outputs(recorded: LockedStage, rebuilt: LockedStage) -> dict[str, tuple[str | None, str | None]]:
    """The recorded and the rebuilt digest of each output, by path."""
    paths = sorted(recorded.outs.keys() | rebuilt.outs.keys())
    return {path: (recorded.outs.get(path), rebuilt.outs.get(path)) for path in paths}


def _kind_of_file(path: str) -> Kind:
    if path == WeightsPin.FILE.as_posix():
        return "weights"
    return "code" if f"{_from_top(path)}/".startswith(CODE) or path.endswith(".py") else "data"


def _from_top(path: str) -> str:
    """A path in dvc.lock as from the project's top folder, which lies two above that of a further pipeline."""
    return path.removeprefix("../../")


def lists_packages(file: str) -> bool:
    """Whether a file of parameters lists the versions of packages."""
    return _from_top(file).startswith(PACKAGES)


def code_of(file: str, key: str) -> str | None:
    """What a digest in code.yaml is of, such as `code of train`; None for any other parameter."""
    is_digest = PurePosixPath(file).name == code_digests.FILE and key.startswith("stages.")
    return CODE_OF + key.removeprefix("stages.") if is_digest else None


def _kind_of_value(file: str, key: str) -> Kind:
    if code_of(file, key):
        return "code"
    if lists_packages(file):
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


@dataclass(frozen=True, kw_only=True)
class Made:
    """Facts about the run that made a version; empty if none is known."""

    machine: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None


def facts_of_run(config: Config, version: Version | None, lock_sha256: str) -> Made:
    """Facts from the record of the run with this dvc.lock, or from the tag of the version."""
    try:
        found = [each for each in run_records.listing(config, RUNS) if each.get("lock") == lock_sha256]
    except PerennialError as error:
        log.warning("the records of runs cannot be read: %s", error)
        found = []
    # Among runs with the same result, prefer the one that trained instead of using DVC's cache.
    found.sort(key=lambda each: "train" not in [stage.get("stage") for stage in each.get("stages", [])])
    record: Mapping[str, Any] = found[0] if found else {}
    environment = record.get("environment", {})
    tagged = version.facts.get("machine") if version else None
    return Made(
        machine=record.get("machine") or tagged or {},
        packages=environment.get("packages", {}),
        python=environment.get("python"),
    )


def explain(stage: str, entry: LockedStage, run: Made, packages: Mapping[str, str]) -> Iterator[Difference]:
    """Yield possible causes of different outputs of a stage; at least one."""
    found = [*_packages(stage, run, packages), *_hardware(stage, run)]
    if entry.params.get((PARAMS, "train.deterministic")) is False:
        what = "train.deterministic, without which two trainings differ"
        found.append(Difference("parameters", stage, what, False, False))
    if not found and run.machine.get("instruction_sets") is None:
        what = "the machine of the run, which no record names: perhaps another kind of processor"
        found.append(Difference("hardware", stage, what, None, processor.facts()))
    yield from found or [Difference("unknown", stage, NOTHING, None, None)]


def _packages(stage: str, run: Made, packages: Mapping[str, str]) -> Iterator[Difference]:
    recorded = {str(canonicalize_name(name)): version for name, version in run.packages.items()}
    for name in sorted(recorded.keys() & packages.keys() - OWN):
        if recorded[name] != packages[name]:
            yield Difference("packages", stage, name, recorded[name], packages[name])
    here = platform.python_version()
    if run.python and run.python.split(".")[:2] != here.split(".")[:2]:
        yield Difference("packages", stage, "Python", run.python, here)


def _hardware(stage: str, run: Made) -> Iterator[Difference]:
    here, unknown = processor.facts(), "not recorded"
    for name in filter(run.machine.__contains__, FACTS):
        recorded, now = run.machine[name], here[name]
        if recorded != now and name != "settings":
            yield Difference("hardware", stage, f"{name.replace('_', ' ')} of the machine", recorded, now)
    recorded, now = run.machine.get("settings"), here["settings"]
    then = recorded if isinstance(recorded, dict) else dict.fromkeys(now, unknown)
    for key in sorted(then.keys() | now.keys()):
        if then.get(key) != now.get(key):
            yield Difference("hardware", stage, key, then.get(key), now.get(key))
