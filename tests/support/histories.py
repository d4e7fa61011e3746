"""Histories made by hand: commits with dvc.lock, records, scores and predictions, without a training."""

import copy
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from ruamel.yaml import YAML
from support.git import IDENTITY
from support.parameters import change_params
from support.pipelines import ROOT
from support.records import datum, write_folder

from perennial.base.dvc import dvc_digests
from perennial.base.project.git import Repository
from perennial.data.records import manifest
from perennial.model.evaluation.predictions import Predictions

PIPELINE = """\
stages:
  download: {cmd: d, deps: [photos], params: [dataset.path], outs: [data/raw]}
  convert: {cmd: c, deps: [data/raw, src/convert.py], params: [dataset.seed], outs: [data/records]}
  train: {cmd: t, deps: [data/records, src/model], outs: [models/weights],
    params: [train.learning_rate, train.seed, "requirements/train.yaml:"]}
  evaluate: {cmd: e, deps: [models/weights, data/records], params: [evaluate.batch_size],
    outs: [metrics/metrics.json, metrics/predictions.npz]}
  gate: {cmd: g, deps: [metrics/metrics.json], params: [gate.min_gain], outs: [metrics/decision.json]}
"""
CLASSES = ("cat", "dog")
TEST = 8  # images
GOOD = [True] * TEST
BAD = [True] * 5 + [False] * 3


@dataclass
class Hand:
    """A repository, with what its stages would have made."""

    folder: Path
    labels: list[int] = field(default_factory=lambda: [0, 1] * 10)  # of the images of train, by number
    several: bool = False  # labels an image in predictions

    def __post_init__(self) -> None:
        self.git = Repository(self.folder)
        for name in ("src/model", "photos", "requirements", ".dvc"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(ROOT / "params.yaml", self.folder)
        self.params({"dataset.path": "photos"})
        texts = {"dvc.yaml": PIPELINE, "src/convert.py": "1\n", "src/model/a.py": "1\n", "photos/list": "1\n",
                 ".gitignore": "/data/\n/models/\n/metrics/\n/.dvc/\n",
                 "requirements/train.yaml": "packages: {numpy: '2'}\n"}  # fmt: skip
        for name, text in texts.items():
            self.write(name, text)
        (self.folder / ".dvc" / "config").touch()
        self.git.run("init", "-q", "-b", "main")
        self.stages = YAML(typ="safe").load(PIPELINE)["stages"]

    def without_source(self, perennial: str, **digests: str) -> None:
        """Become a project whose code.yaml names the code: a version of perennial, and digests of stages."""
        if (self.folder / "src").is_dir():
            shutil.rmtree(self.folder / "src")
        for name, stage in self.stages.items():
            stage["deps"] = [dep for dep in stage["deps"] if not dep.startswith("src")]
            if name in digests and isinstance(stage["params"][-1], str):
                stage["params"] = [*stage["params"], {"code.yaml": [f"stages.{name}"]}]
        with (self.folder / "dvc.yaml").open("w") as stream:
            YAML(typ="safe").dump({"stages": self.stages}, stream)
        listed = "".join(f'  {name}: "{digest * 64}"\n' for name, digest in digests.items())
        self.write("code.yaml", f'perennial: "{perennial}"\nstages:\n{listed}')

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def params(self, values: Mapping[str, object]) -> None:
        change_params(self.folder / "params.yaml", values)

    def commit(self) -> str:
        self.git.run("add", ".")
        self.git.run(*IDENTITY, "commit", "-q", "--allow-empty", "-m", "Change")
        return self.git.run("rev-parse", "HEAD")

    def run(self, right: Sequence[bool], used: Mapping[str, object] | None = None) -> str:
        """What `dvc repro` and a commit leave: the model classifies these test images correctly.

        `used`: the parameters that the training wrote into its record.
        """
        for name in ("data", "models", "metrics"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self._make(right)
        stages = copy.deepcopy(self.stages)
        if used is not None:
            inputs = {
                "params": {"params.yaml": used},
                "code": {"src/model": dvc_digests.digest(self.folder / "src/model")},
            }
            (self.folder / "metrics/training.json").write_text(json.dumps({"inputs": inputs}))
            stages["train"]["outs"].append("metrics/training.json")
        lock = {name: self._entry(stage) for name, stage in stages.items()}
        with (self.folder / "dvc.lock").open("w") as stream:
            YAML().dump({"schema": "2.0", "stages": lock}, stream)
        return self.commit()

    def cached(self, path: str) -> Path:
        """The object of an output, or of a file in it, in DVC's cache."""
        name = hashlib.md5((self.folder / path).read_bytes(), usedforsecurity=False).hexdigest()
        return self.folder / ".dvc/cache/files/md5" / name[:2] / name[2:]

    def _make(self, right: Sequence[bool]) -> None:
        photos = (self.folder / "photos/list").read_text()
        made = {"data/raw/archive": photos, "models/weights": repr(right), "metrics/decision.json": "{}"}
        for name, text in made.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        images = [np.full((4, 4, 1), number, np.uint8) for number in range(len(self.labels) + TEST)]
        train = [datum(images[n], label) for n, label in enumerate(self.labels)]
        labels = np.arange(len(images))[-TEST:] % 2
        test = [datum(image, int(label)) for image, label in zip(images[-TEST:], labels, strict=True)]
        write_folder(
            self.folder / "data/records", {"train": [train], "validation": [], "test": [test]}, CLASSES
        )
        predicted = np.where(right, labels, 1 - labels)
        data = manifest.load(self.folder / "data/records")
        scores = {"accuracy": float(np.mean(right)), "examples": TEST}
        (self.folder / "metrics/metrics.json").write_text(json.dumps(scores))
        Predictions(
            labels=np.eye(2, dtype=np.int8)[labels] if self.several else labels,
            thresholds=np.full(2, 0.5, np.float32) if self.several else None,
            probabilities=np.eye(2, dtype=np.float32)[predicted], classes=CLASSES, split="test",
            data="d", split_digest=data.split_digest("test"), model=repr(right),
        ).write(self.folder / "metrics/predictions.npz")  # fmt: skip

    def _entry(self, stage: Mapping[str, Sequence[str]]) -> dict[str, object]:
        values = YAML(typ="safe").load(self.folder / "params.yaml")
        keys = [key for key in stage["params"] if isinstance(key, str)]
        own = {key: values[key.split(".")[0]][key.split(".")[1]] for key in keys if ":" not in key}
        params: dict[str, object] = {"params.yaml": own}
        for named in (each for each in stage["params"] if isinstance(each, dict)):
            code = YAML(typ="safe").load(self.folder / "code.yaml")["stages"]
            params["code.yaml"] = {key: code[key.split(".")[1]] for key in named["code.yaml"]}
        if len(own) < len(keys):
            params["requirements/train.yaml"] = YAML(typ="safe").load(self.folder / "requirements/train.yaml")
        deps = [
            {"path": path, "hash": "md5", "md5": dvc_digests.digest(self.folder / path)}
            for path in stage["deps"]
        ]
        return {
            "cmd": stage["cmd"],
            "deps": deps,
            "params": params,
            "outs": [*map(self._stored, stage["outs"])],
        }

    def _stored(self, path: str) -> dict[str, object]:
        """An output, of which DVC's cache gets a copy."""
        place = self.folder / path
        found = dvc_digests.files_of(place)
        for file in found.values():
            self._store(file.read_bytes(), dvc_digests.digest(file))
        digest = dvc_digests.digest(place)
        if place.is_dir():
            listed = [
                {"md5": dvc_digests.digest(file), "relpath": name} for name, file in sorted(found.items())
            ]
            self._store(json.dumps(listed).encode(), digest)
        return {"path": path, "hash": "md5", "md5": digest}

    def _store(self, content: bytes, digest: str) -> None:
        file = self.folder / ".dvc/cache/files/md5" / digest[:2] / digest[2:]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_dvc: None) -> Hand:
    """An empty history, which is the working directory."""
    folder = tmp_path / "a project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Hand(folder)
