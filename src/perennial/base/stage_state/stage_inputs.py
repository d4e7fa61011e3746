"""What a stage reads: noted at its start, and compared at its end.

After a command, DVC hashes its dependencies and reads its parameters again, and records those. A parameter, a
line of code or a file that changed while the stage ran would be recorded as if the stage had used it. DVC, not
this module, decides which stages are stale.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from perennial.base import documents, files
from perennial.base.config.fields import shown
from perennial.base.dvc import dvc_digests, dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import InputsChanged, listed
from perennial.base.layout import Project
from perennial.base.processes import process
from perennial.base.project import code_digests, own_components, source_code

PIPELINE, PARAMS, CODE = Path("dvc.yaml"), "params.yaml", ("src/", own_components.FOLDER)
BY_RUN = "inputs"  # folder in paths.work: what the stages of the last run read
SHOWN = 5  # changes in a message
REFERENCE = re.compile(r"\$\{\s*([^}]+?)\s*\}")  # to a parameter, in dvc.yaml
SMALL_BYTES = 16 << 20  # up to here, a file that is a dependency by itself is compared by content
Signature = list[int | str]  # of a file: differs once the file was written or replaced
Params = dict[str, dict[str, Any]]  # values by file and key


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of a stage that dvc.yaml lists; nothing where there is no dvc.yaml with this stage."""

    stage: str
    file: Path  # that it read as params.yaml
    params: Params
    code: dict[str, dict[str, str]]  # MD5 of each file, by dependency
    data: dict[str, dict[str, Signature]]  # of each file, by dependency; hashing takes as long as reading them

    @property
    def listed(self) -> bool:
        """Whether dvc.yaml has the stage."""
        return bool(self.params or self.code or self.data)

    def document(self) -> dict[str, Any]:
        """Parameters and code in the form of dvc.lock, equal on every machine."""
        code = {path: members.get("") or dvc_digests.digest_of(members) for path, members in self.code.items()}
        return {"params": self.params, "code": code}

    def small_files(self) -> dict[str, str]:
        """The MD5 of each dependency that is a small file by itself, such as a pin."""
        return {
            path: md5
            for path, members in self.data.items()
            if len(signature := members.get("", [])) == 1 and isinstance(md5 := signature[0], str)
        }

    def has_data(self, path: str) -> bool:
        """Whether the files of a dependency are still those that were noted."""
        return dict(_signatures(path)) == self.data[path]

    def changes(self) -> list[str]:
        """Describe what differs now."""
        found = []
        for name, before in self.params.items():
            file = self.file if name == PARAMS else Path(name)
            read = _read if before else _present
            try:
                found += differing(file, before, _chosen(read(file), list(before)))
            except (OSError, ValueError):
                found.append(f"{file} (cannot be read now)")
        for path, members in self.code.items():
            found += _files(path, members, _digests(path), "saved")
        for path, signatures in self.data.items():
            found += _files(path, signatures, dict(_signatures(path)), "written or replaced")
        return found


def note(stage: str, file: Path, values: Mapping[str, Any]) -> Inputs:
    """Note what a stage reads; `values` are the parameters that this process has read from `file`."""
    deps, params = _listed(stage, values)
    project = Project.find()
    own_components.require(values, project.root)
    code = [path for path in deps if project.from_root(path).startswith(CODE)]
    noted = Inputs(
        stage=stage,
        file=file,
        params={
            name: _chosen(values if name == PARAMS else _present(Path(name)), keys)
            for name, keys in params.items()
        },
        code={path: _digests(path) for path in code},
        data={path: dict(_signatures(path)) for path in deps if path not in code},
    )
    source_code.require_unchanged()
    return noted


def require_as_first_noted(noted: Inputs, work: Path, run: str) -> None:
    """Check that a stage of a run reads the parameters and code of its first start; notes them."""
    file = note_file(noted.stage, work)
    before = documents.json_object(file.read_bytes()) if file.is_file() else {}
    now = {"run": run, "dvc": dvc_process(), **noted.document(), "files": noted.small_files()}
    if run and before.get("run") == run:
        changed = [
            each
            for name, values in noted.params.items()
            if name == PARAMS or Path(name).name == code_digests.FILE
            for each in differing(
                noted.file if name == PARAMS else Path(name), before["params"].get(name, {}), values
            )
        ]
        changed += _files("", before["code"], now["code"], "saved")
        if changed:
            raise InputsChanged(
                f"{listed(changed, SHOWN)} changed since this run started {noted.stage} for the first time; "
                "nothing was started: set it back, or start a new run, which uses what is there now"
            )
    files.write_json(file, {**before, **now})


def built_on(noted: Inputs, stages: Mapping[str, LockedStage]) -> set[str]:
    """The stages in dvc.lock whose results a stage reads, and those that these are made from."""
    read = (*noted.data, *noted.params)
    found = {stage for path in read for stage in dvc_lock.above(stages, path, values=True)}
    return found - {noted.stage}


def note_file(stage: str, work: Path) -> Path:
    """Where a stage that DVC or a run starts notes what it reads."""
    return work / BY_RUN / f"{stage}.json"


def dvc_process() -> list[int]:
    """The process of DVC that started this one, and when it started; empty where that is not known."""
    try:
        words = Path(f"/proc/{process.PARENT}/cmdline").read_bytes().split(b"\0")
        shell = b"-c" in words and b"perennial" in words[-2]  # of the stage's command
        found = int(_status(process.PARENT)[1]) if shell else process.PARENT
        return [found, int(_status(found)[19])]
    except (OSError, ValueError, IndexError):
        return []


def _status(number: int) -> list[str]:
    """The state of a process and what follows it in /proc."""
    return Path(f"/proc/{number}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()


def _listed(stage: str, values: Mapping[str, Any]) -> tuple[list[str], dict[str, list[str] | None]]:
    """The dependencies of a stage in dvc.yaml, and its parameters: keys by file, None for all of a file."""
    found = dvc_lock.value_at(_present(PIPELINE), f"stages.{stage}")
    if not isinstance(found, Mapping):
        return [], {}

    def resolved(text: str) -> str:
        return REFERENCE.sub(lambda key: str(dvc_lock.value_at(values, key[1])), text)

    params: dict[str, list[str] | None] = {}
    for each in found.get("params", []):
        for name, keys in (each if isinstance(each, Mapping) else {PARAMS: [each]}).items():
            params[resolved(name)] = [*(params.get(resolved(name)) or []), *keys] if keys else None
    return [resolved(path) for path in found.get("deps", [])], params


def _chosen(values: Mapping[str, Any], keys: Iterable[str] | None) -> dict[str, Any]:
    if keys is None:
        return dict(values)
    chosen = {key: dvc_lock.value_at(values, key) for key in keys}
    return {key: value for key, value in chosen.items() if value is not None or _has(values, key)}


def _has(values: Mapping[str, Any], key: str) -> bool:
    above, _, name = key.rpartition(".")
    section = dvc_lock.value_at(values, above) if above else values
    return isinstance(section, Mapping) and name in section


def _present(file: Path) -> dict[str, Any]:
    """The values in a YAML or JSON file; none if it does not exist, which a stage itself reports."""
    return _read(file) if file.exists() else {}


def _read(file: Path) -> dict[str, Any]:
    """The values in a YAML or JSON file."""
    content = file.read_bytes()
    return documents.json_object(content) if file.suffix == ".json" else documents.yaml_object(content)


def _digests(path: str) -> dict[str, str]:
    return _digests_of(path, tuple(source_code.signatures(path)))


@cache
def _digests_of(path: str, _signatures: tuple[object, ...]) -> dict[str, str]:
    return {name: files.md5(file) for name, file in dvc_digests.files_of(Path(path)).items() if file.is_file()}


def _signatures(path: str) -> Iterator[tuple[str, Signature]]:
    """The files at or below a path, by relative path."""
    if not os.path.isdir(path):  # noqa: PTH112 - folders of images can be large, and pathlib is slow
        if (found := source_code.signature(path)) is not None:
            yield "", [files.md5(Path(path))] if found[0] <= SMALL_BYTES else list(found)
        return
    ignored = dvc_digests.ignored_names(Path(path))
    for folder, below, names in os.walk(path):
        below[:] = [name for name in below if not ignored.match(name)]
        for name in names:
            if ignored.match(name):
                continue
            file = os.path.join(folder, name)  # noqa: PTH118
            yield os.path.relpath(file, path), list(source_code.signature(file) or ())


def differing(file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describe the keys with other values."""
    where, missing = "" if file.name == PARAMS else f" in {file}", object()
    a, b = documents.flattened(before), documents.flattened(now)
    found = []
    for key in sorted(a.keys() | b.keys()):
        if (old := a.get(key, missing)) != (new := b.get(key, missing)):
            was, is_now = ("not set" if value is missing else shown(value) for value in (old, new))
            # Long texts and passwords are not shown.
            found.append(f"{key}{where} ({was}, now {is_now if is_now != was else 'another one'})")
    return found


def _files(path: str, before: Mapping[str, Any], now: Mapping[str, Any], how: str) -> list[str]:
    """Describe the files below a path that were added, removed or changed."""
    return [
        f"{os.path.join(path, name) if name else path} "  # noqa: PTH118 - keeps a path as dvc.yaml has it
        f"({'added' if name not in before else 'gone' if name not in now else how})"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
