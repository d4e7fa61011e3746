"""The score in office of a real history: 30 nights on the UCI digits, of which more are known each night.

A copy of this project retrains as deployed runs do: it records each run in git, pushes it, and promotes what
the gate finds better. After each night, a clone computes the score from git alone (`perennial status`). Beside
it, a count goes night by night over the test images that were in no night before, by the predictions that the
gate read. At the end, the SavedModel of each night's champion predicts these images again.

GROWTH: `split` (the source has folders for its splits), `folder` (only for classes: a hash holds images out,
and a few leave the test split again as a class grows) or `labels` (labelled images of traffic join). A history
that was cut off goes on.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray
from ruamel.yaml import YAML
from sklearn.datasets import load_digits

from benchmarks import main_job, results
from benchmarks.timing import ENVIRONMENT, PERENNIAL, ROOT

NIGHTS, FIRST, JOIN = 30, 597, 40  # images on the first night, and further ones each night
GROWTH = os.environ.get("GROWTH", "split")
TEST = 2  # the split in the index of images
VALUES: dict[str, Any] = {
    "dataset.name": "image_folder", "dataset.test_fraction": 0.3, "preprocessing.image_size": 28,
    "preprocessing.grayscale": True, "train.epochs": 3, "train.epochs_between_evals": 1,
    "train.stop_threshold": None, "gate.min_accuracy": None, "validate.severity.drift_labels": "ignore",
    "export.reference_examples": 0,
}  # fmt: skip
RETRAIN = (sys.executable, "-c", "from flows.retrain import retrain; retrain(push=True)")
PERSON = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")


def measure() -> None:
    """Retrains, counts, prints each night and writes the results."""
    folder = ROOT / ".work" / "benchmarks" / f"nights-{GROWTH}"
    file, images = folder / "nights.json", list(_images())
    project, source = folder / "project", folder / ("project/own" if GROWTH == "labels" else "source")
    if not file.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        start(project, source)
        git(folder, "clone", "-q", "origin.git", "reader")
        file.write_text("[]")
    nights = json.loads(file.read_text())
    for night in range(len(nights), NIGHTS + 1):
        git(project, "fetch", "-q", "origin")
        git(project, "reset", "-q", "--hard", "origin/main")  # as a deployed run begins
        begin, end = FIRST + (night - 1) * JOIN if night else 0, FIRST + night * JOIN
        grow(project, source, images[:end], begin, night)
        before = runs(project)
        run(RETRAIN, project)
        (made,) = runs(project) - before
        nights.append(counted(project, folder / "reader", made, nights))
        shown = {name: nights[-1][name] for name in ("champion", "accuracy", "by_git", "by_night")}
        print(f"night {night}: {shown}", flush=True)
        file.write_text(json.dumps(nights))
    last, answered = nights[-1], answers(project, nights, images)
    print(f"by git {last['by_git']}, by night {last['by_night']}, by new predictions {answered}")
    for name in ("new", "known"):
        for each in nights:
            each.pop(name, None)
    results.write("nights", growth=GROWTH, nights=nights, by_answers=answered, first=FIRST, joining=JOIN)


def counted(project: Path, reader: Path, commit: str, before: list[dict[str, Any]]) -> dict[str, Any]:
    """A night: the score by git, the count of all nights so far, and the images that were new in test."""
    made, last = Night(project, commit), before[-1] if before else {"by_night": [0, 0], "known": []}
    known = set(last["known"])
    new = [row for row in made.test if made.digests[row] not in known] if made.champion else []
    right = made.right()[[row - made.test[0] for row in new]] if new else np.zeros(0, bool)
    git(reader, "pull", "-q", "--tags")
    status = json.loads(run((*PERENNIAL, "status", "--json"), reader))["champion"]
    last.pop("known")
    return {
        "test": len(made.test), "champion": status["version"], "promoted": made.decision["promote"],
        "accuracy": made.decision["candidate"]["accuracy"], "score": status["in_office"],
        "by_git": [status["in_office"][name] for name in ("correct", "examples")],
        "by_night": [last["by_night"][0] + int(right.sum()), last["by_night"][1] + len(new)],
        "new": {(made.champion or {}).get("commit", ""): [made.digests[row] for row in new]},
        "known": sorted(known.union(made.digests)),
    }  # fmt: skip


def answers(project: Path, nights: list[dict[str, Any]], images: list[tuple[int, bytes]]) -> list[int]:
    """How many of the new images the champions' own SavedModels get right, and how many there are."""
    by_digest = {hashlib.sha256(content).hexdigest(): (of, content) for of, content in images}
    asked: dict[str, list[str]] = {}
    for each in nights:
        for commit, digests in each["new"].items():
            asked.setdefault(commit, []).extend(digests)
    found = [0, 0]
    for commit, digests in asked.items():
        if digests:
            with tempfile.TemporaryDirectory() as folder:
                Night(project, commit).checkout("models/export", Path(folder, "export"))
                files = [Path(folder, f"{number}.png") for number in range(len(digests))]
                for file, digest in zip(files, digests, strict=True):
                    file.write_bytes(by_digest[digest][1])
                peer = ROOT / "benchmarks" / "peers" / "saved_model.py"
                said = run((sys.executable, str(peer), str(Path(folder, "export")), *map(str, files)), ROOT)
            truth = [f"digit {by_digest[digest][0]}" for digest in digests]
            found[0] += sum(
                line.rpartition(" ")[0] == of for line, of in zip(said.splitlines(), truth, strict=True)
            )
            found[1] += len(digests)
    return found


def start(project: Path, source: Path) -> None:
    """A copy of this project beside a bare repository that its runs push to."""
    project.mkdir()
    main_job.copy(project)
    values = {**VALUES, "dataset.url": None if source.name == "own" else str(source)}
    yaml = YAML()
    params = yaml.load(project / "params.yaml")
    for key, value in values.items():
        section, _, name = key.rpartition(".")
        inner = params
        for each in section.split("."):
            inner = inner[each]
        inner[name] = value
    yaml.dump(params, project / "params.yaml")
    (project / "dvc.lock").unlink()
    git(project, "branch", "-M", "main")
    git(project.parent, "init", "-q", "--bare", "-b", "main", "origin.git")
    git(project, "remote", "add", "origin", "../origin.git")
    git(project, *PERSON, "commit", "-qam", "Images that grow")
    git(project, "push", "-q", "-u", "origin", "main")


def grow(project: Path, source: Path, images: list[tuple[int, bytes]], begin: int, night: int) -> None:
    """Let the images from `begin` on join."""
    if GROWTH == "labels" and night:
        label(project, images[begin:], night)
        return
    for number, (of, content) in list(enumerate(images))[begin:]:
        split = ("test" if number % 3 == 2 else "train") if GROWTH == "split" else ""
        file = source / split / f"digit {of}" / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def runs(project: Path) -> set[str]:
    """The commits of the recorded runs."""
    return set(git(project, "for-each-ref", "--format=%(objectname)", "refs/remotes/origin/run").split())


def label(project: Path, joining: list[tuple[int, bytes]], night: int) -> None:
    """Commit labels to main, as a person merges a branch of `perennial label`."""
    table, images = project / "labels" / "labels.csv", project / "labels" / "images"
    images.mkdir(parents=True, exist_ok=True)
    rows = table.read_text().splitlines() if table.exists() else ["sha256,class,reason"]
    for number, (of, content) in enumerate(joining):
        digest = hashlib.sha256(content).hexdigest()
        rows.append(f"{digest},digit {of},{'random' if number % 2 else 'margin'}")
        (images / digest).write_bytes(content)
    table.write_text("\n".join(rows) + "\n")
    git(project, "add", "labels")
    git(project, *PERSON, "commit", "-qm", f"Labels of night {night}")
    git(project, "push", "-q")


class Night:
    """What a run recorded, read from its commit and DVC's cache without the program."""

    def __init__(self, project: Path, commit: str) -> None:
        self._project, self._commit = project, commit
        index = np.load(self._objects("data/index")["images.npy"])
        self.digests = [bytes(each).hex() for each in index["sha256"]]
        self.test = np.flatnonzero(index["split"] == TEST).tolist()
        self.champion = json.loads(self._text("pins/champion.json"))
        self.champion = self.champion.get("commit") and self.champion
        self.decision = json.loads(self._only("metrics/decision.json").read_text())

    def right(self) -> NDArray[np.bool_]:
        """Whether the champion that the gate met is right on each test image, by the predictions it read."""
        own, met = np.load(self._only("metrics/predictions.npz")), self._objects("metrics/champion")
        classes = json.loads(met["champion.json"].read_text())["classes"]
        known = {name: number for number, name in enumerate(classes)}
        truth = np.array([known[own["classes"][each]] for each in own["labels"]])
        return truth == np.load(met["predictions.npz"])["predicted"]

    def checkout(self, out: str, folder: Path) -> None:
        """Copy an output that is a folder."""
        for name, file in self._objects(out).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, folder / name)

    def _text(self, file: str) -> str:
        return git(self._project, "show", f"{self._commit}:{file}")

    def _only(self, out: str) -> Path:
        return self._objects(out)[""]

    def _objects(self, out: str) -> dict[str, Path]:
        """The files of an output in DVC's cache, by their names in it."""
        stages = YAML(typ="safe").load(self._text("dvc.lock"))["stages"].values()
        (digest,) = [each["md5"] for stage in stages for each in stage["outs"] if each["path"] == out]
        listed = self._object(digest)
        if not digest.endswith(".dir"):
            return {"": listed}
        return {each["relpath"]: self._object(each["md5"]) for each in json.loads(listed.read_text())}

    def _object(self, digest: str) -> Path:
        return self._project / ".dvc" / "cache" / "files" / "md5" / digest[:2] / digest[2:]


def _images() -> Iterator[tuple[int, bytes]]:
    """The digits as PNG files, in an order of chance, equal ones once."""
    found, known = load_digits(), set[bytes]()
    for number in np.random.default_rng(0).permutation(len(found.images)):
        stream = io.BytesIO()
        PIL.Image.fromarray(np.uint8(found.images[number] * 15)).save(stream, "PNG")
        if stream.getvalue() not in known:
            known.add(stream.getvalue())
            yield int(found.target[number]), stream.getvalue()


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run(command: tuple[str, ...], folder: Path) -> str:
    """What a program of a project prints; ends the benchmark where it fails."""
    path = folder if (folder / "src").exists() else ROOT
    environment = {
        **ENVIRONMENT, "PYTHONPATH": f"{path / 'src'}:{path}", "PERENNIAL_HOME": str(folder.parent / "home")
    }  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


if __name__ == "__main__":
    measure()
