"""Scratch projects to run stages in, and what their stages left there."""

import json
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.timing import PERENNIAL, ROOT, run
from perennial.base.params import edit_params

# Photographs that come again in a repeated archive are reported, and are no reason to stop.
VALUES = {"dataset.digests": "record", "validate.severity.duplicate_across_splits": "warn"}


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk of this checkout, gone afterwards."""
    work = ROOT / ".work" / "benchmarks"
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix="scratch-") as folder:
        yield Path(folder)


def downloaded(folder: Path, dataset: str, originals: Path, values: Mapping[str, Any] | None = None) -> Path:
    """A new project in this folder, its raw files in place: this project's params.yaml with other values."""
    chosen = {"dataset.name": dataset, "dataset.base_url": originals.as_uri(), **VALUES, **(values or {})}
    run((*PERENNIAL, "download"), with_values(folder, chosen))
    return folder


def with_values(folder: Path, values: Mapping[str, Any]) -> Path:
    """A new project in this folder: this project's params.yaml with other values."""
    folder.mkdir(parents=True)
    yaml = YAML()
    params = yaml.load(ROOT / "params.yaml")
    for key, value in values.items():
        *sections, last = key.split(".")
        section = params
        for name in sections:
            section = section[name]
        section[last] = value
    yaml.dump(params, folder / "params.yaml")
    return folder


def converted(folder: Path, dataset: str, originals: Path, values: Mapping[str, Any] | None = None) -> Path:
    """A new project in this folder, its records in place."""
    run((*PERENNIAL, "convert"), downloaded(folder, dataset, originals, values))
    return folder


def preset(name: str) -> dict[str, Any]:
    """The values of a preset by their keys, such as train.schedule.name."""
    return dict(_flat(YAML(typ="safe").load(edit_params.presets()[name])))


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def records(project: Path) -> Path:
    """The record folder of a project with the paths of this project's params.yaml."""
    return project / "data" / "records"


def validation(project: Path) -> tuple[Path, ...]:
    """What validate writes, the report first."""
    return tuple(project / "data" / name for name in ("validation.json", "validation.html", "index"))


def count_records(folder: Path) -> int:
    """Records in the TFRecord files anywhere under a folder, by the lengths that they state."""
    count = 0
    for file in folder.rglob("*.tfrecord*"):
        size, at = file.stat().st_size, 0
        with file.open("rb") as stream:
            while header := stream.read(8):
                at += struct.unpack("<Q", header)[0] + 16  # length and two checksums around the record
                stream.seek(at)
                count += 1
        assert at == size, f"{file} ends at {size}, its last record at {at}"
    return count


def count_validated(project: Path) -> int:
    """Examples in the validation report, which must say that all is well."""
    report = json.loads(validation(project)[0].read_text(encoding="utf-8"))
    assert report["ok"], f"validate found problems: {report['problems'][:3]}"
    return sum(report["examples"].values())


def record_bytes(project: Path) -> int:
    """Bytes of all shards."""
    return sum(file.stat().st_size for file in records(project).glob("*.tfrecord"))
