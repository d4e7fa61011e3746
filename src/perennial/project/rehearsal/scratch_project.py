"""The user's pipeline on a small part of its data: a scratch checkout with its own remotes and images."""

import logging
import os
import re
import shutil
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from perennial.base import config, documents, files, layout
from perennial.base.config import Config
from perennial.base.dvc import dvc_digests, dvc_lock, repro
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.layout import Project as Layout
from perennial.base.params.edit_params import set_values
from perennial.base.processes import programs
from perennial.base.processes.programs import Finished
from perennial.base.project import git, pins
from perennial.base.project.stage_table import STAGES
from perennial.base.stage_state import outputs
from perennial.data.records import manifest, random_access

log = logging.getLogger(__name__)
ORDER = tuple(STAGES)
LAST = ORDER[-1]
ARCHIVE = "images.zip"
EXAMPLES, LEAST, MOST = 300, 8, 40  # of all classes together, about; of each class
STEPS = 24
LIMIT_S = 900.0  # for a command; a busy machine takes long
DROPPED = ("PREFECT_", "PERENNIAL_", "AWS_", "DVC_", "GIT_", "RAY_", "TF_CONFIG", "PYTHON")
# The remote lies beside the checkout; what DVC shares between checkouts stays in the scratch, too.
DVC_CONFIG = """\
[core]
    analytics = false
    check_update = false
    site_cache_dir = {site}
    remote = rehearsal
['remote "rehearsal"']
    url = ../../remote
    verify = true
"""
NOT_COPIED = (".work", "tmp", "runs", "report.html")


@dataclass(frozen=True)
class ScratchProject:
    """The scratch project. Everything that a rehearsal makes is in `base`."""

    base: Path

    @property
    def home(self) -> Path:
        """HOME of every program."""
        return self.base / "home"

    @property
    def reference(self) -> Path:
        """The checkout of the reference run, which no fault disturbs."""
        return self.base / "reference" / "project"

    def environment(self, checkout: Path) -> dict[str, str]:
        """The environment of a program, without the user's server, remotes and folders."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(DROPPED)}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
            "PYTHONPATH": repro.python_path(Path(sys.executable), checkout),
            "PERENNIAL_HOME": str(self.home / "perennial"), "PREFECT_HOME": str(self.home / "prefect"),
            "PYTHONUNBUFFERED": "1", "DO_NOT_TRACK": "1", "COLUMNS": "500",  # Prefect wraps its log lines
        }  # fmt: skip

    def run(self, checkout: Path, *command: str, limit_s: float = LIMIT_S) -> Finished:
        """Run a module in a checkout to its end; after the limit it is killed without grace."""
        found = [sys.executable, "-m", *command]
        return programs.run(
            found, limit_s=limit_s, grace_s=0, cwd=checkout, env=self.environment(checkout), merged=True
        )

    def git(self, checkout: Path, *arguments: str) -> None:
        """Run git in a checkout."""
        who = ("-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost")
        env = self.environment(checkout)
        ended = programs.run(["git", *who, *arguments], limit_s=LIMIT_S, cwd=checkout, env=env)
        if ended.code:
            raise PerennialError(f"git {arguments[0]} failed in {checkout}: {ended.last_lines(3)}")

    def commit(self, checkout: Path) -> None:
        """Commit everything in a checkout."""
        self.git(checkout, "add", "--all")
        self.git(checkout, "commit", "--quiet", "--allow-empty", "--message=Rehearsal")

    def run_unbroken(self) -> None:
        """Make the run that all others are compared with."""
        ended = self.run(self.reference, "flows.retrain")
        if ended.code:
            failed = PerennialError(f"the pipeline fails without any fault: {ended.last_lines(8)}")
            failed.exit_code = max(ended.code, 1)  # a signal's is negative
            raise failed
        if missing := [stage for stage in STAGES if stage not in self.locked(self.reference)]:
            raise PerennialError(f"the unbroken run made no {', '.join(missing)}; nothing can be rehearsed")

    def seconds(self, stage: str) -> float:
        """The seconds that a stage took in the unbroken run."""
        timings = self.reference / self.config().paths.work / "timings"
        return float(documents.read_json(timings / f"{stage}.json")["seconds"])

    def config(self) -> Config:
        """The parameters of the scratch checkout."""
        return config.load(self.reference / "params.yaml")

    def outs(self, stage: str) -> list[Path]:
        """The outputs of a stage, relative to its checkout."""
        return [getattr(self.config().paths, name) for name in STAGES[stage].outputs]

    def locked(self, checkout: Path) -> dict[str, str]:
        """The text of each stage in a dvc.lock, byte for byte."""
        file = checkout / dvc_lock.FILE
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        parts = re.split(r"^  (\w[\w-]*):\n", text.partition("\nstages:\n")[2], flags=re.MULTILINE)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    def digests(self, checkout: Path, stage: str) -> dict[str, str]:
        """DVC's digest of each existing output of a stage."""
        found = {out: checkout / out for out in self.outs(stage)}
        return {str(out): dvc_digests.digest(path) for out, path in found.items() if path.exists()}

    def differences(self, checkout: Path, last: str) -> list[str]:
        """List differences from the reference run up to a stage: entries of dvc.lock, and outputs."""
        mine, theirs = self.locked(checkout), self.locked(self.reference)
        found = []
        for stage in ORDER[: ORDER.index(last) + 1]:
            if mine.get(stage) != theirs[stage]:
                found.append(f"dvc.lock has another entry of {stage}" if stage in mine else f"no {stage}")
            wanted, got = self.digests(self.reference, stage), self.digests(checkout, stage)
            found += [f"{out} differs" for out in wanted if wanted[out] != got.get(out)]
        return found

    def copy(self, folder: Path, before: str | None = None) -> None:
        """Copy the checkout of the reference run as it was before a stage ran, by default after the last."""
        checkout = folder / "project"
        shutil.copytree(self.reference, checkout, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        shutil.rmtree(checkout / ".dvc" / "cache" / "runs", ignore_errors=True)  # DVC would restore the stage
        if before is not None:
            self._cut(checkout, before)

    def remove_outs(self, checkout: Path, first: str | None = None) -> None:
        """Remove the outputs of a checkout's stages from `first` on."""
        for stage in ORDER[ORDER.index(first) if first else 0 :]:
            for out in self.outs(stage):
                outputs.remove(checkout / out)

    def _cut(self, checkout: Path, before: str) -> None:
        self.remove_outs(checkout, before)
        blocks = self.locked(checkout)
        kept = [name for name in blocks if ORDER.index(name) < ORDER.index(before)]
        text = "".join(f"  {name}:\n{blocks[name]}" for name in kept)
        lock = checkout / dvc_lock.FILE
        head = lock.read_text(encoding="utf-8").partition("\nstages:\n")[0]
        lock.write_text(f"{head}\nstages:\n{text}", encoding="utf-8") if kept else lock.unlink()


def make(checked: Config, base: Path) -> ScratchProject:
    """Create the scratch project from the pipeline in this directory, with an archive of some of its images."""
    project = ScratchProject(base)
    checkout = project.reference
    _copy_checkout(checkout)
    project.home.mkdir()
    (checkout / dvc_lock.FILE).unlink(missing_ok=True)
    dvc_folder = checkout / ".dvc"
    dvc_folder.mkdir(exist_ok=True)
    (dvc_folder / "config").write_text(DVC_CONFIG.format(site=base / "site"), encoding="utf-8")
    for name in ("config.local", "cache"):
        (dvc_folder / name).unlink(missing_ok=True)
    params = checkout / "params.yaml"
    original = params.read_text(encoding="utf-8")
    records, index = _records(checked, project)
    per_class = _write_images(records, index, base / ARCHIVE)
    for name in (*(each for stage in STAGES.values() for each in stage.outputs), "work", "runs"):
        outputs.remove(checkout / getattr(checked.paths, name))
    shutil.rmtree(dvc_folder / "tmp", ignore_errors=True)
    change = set_values(original, _values(checked, base / ARCHIVE))
    params.write_text(change.text, encoding="utf-8")
    for file in (*pins.FILES, checked.paths.baseline):
        if (checkout / file).is_file():  # it refers to the user's own data, weights and versions
            files.write_json(checkout / file, dict.fromkeys(documents.read_json(checkout / file)))
    project.git(checkout, "init", "--quiet", "--initial-branch=main")
    project.commit(checkout)
    origin = str(base / "origin.git")
    project.git(checkout, "clone", "--quiet", "--bare", ".", origin)
    project.git(checkout, "remote", "add", "origin", origin)
    span = " to ".join(dict.fromkeys(str(pick(per_class.values())) for pick in (min, max)))
    log.info("%s images of each of %d classes in %s", span, len(per_class), base)
    return project


def _copy_checkout(checkout: Path) -> None:
    """Copy what git tracks or would track: the files that pipelines share, and those of this one to the top."""
    found = Layout.find()
    arguments = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listed = list(filter(None, git.repository(found.root).run(*arguments).split("\0")))
    own = found.folder.relative_to(found.root).as_posix() + "/"
    others = set(found.of_others(listed))
    for name in sorted(each for each in listed if each not in others):
        source, target = found.root / name, checkout / name.removeprefix(own)
        if source.is_file() and not source.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    if found.name:
        stages, above = checkout / layout.STAGES, f"{found.shared('').as_posix()}/"
        stages.write_text(stages.read_text(encoding="utf-8").replace(above, ""), encoding="utf-8")
    for needed in ("flows/retrain.py", layout.STAGES, layout.PARAMS):
        if not (checkout / needed).is_file():
            raise ConfigError(f"{needed} is not here: a rehearsal runs the flow and the code of a checkout")


def _records(checked: Config, project: ScratchProject) -> tuple[Path, Path]:
    """The records of the user's checkout, or else those that the first stages make in the scratch folder."""
    if (checked.paths.records / manifest.FILE).is_file():
        return checked.paths.records, checked.paths.index
    log.info("%s has no records yet; making them in the scratch folder", checked.paths.records)
    params = project.base / "params-of-user.yaml"
    text = Path("params.yaml").read_text(encoding="utf-8")
    own = {"dataset.path": str(checked.dataset.path.absolute()), "compute.engine": "processes"}
    params.write_text(set_values(text, own).text, encoding="utf-8")
    for command in (["pin", "source"], ["download"], ["convert"]):
        ended = project.run(project.reference, "perennial", *command, "--params", str(params))
        if ended.code:
            raise PerennialError(f"no records to take images from: {ended.last_lines()}")
    return project.reference / checked.paths.records, project.reference / checked.paths.index


def _write_images(folder: Path, index: Path, archive: Path) -> Counter[str]:
    """Write an archive with the first images of each class, in one folder per class."""
    records = random_access.Records(folder, index)
    found = records.manifest
    most = max(LEAST, min(MOST, EXAMPLES // len(found.classes)))
    counts: Counter[str] = Counter()
    total = sum(split.examples for split in found.splits.values())
    with zipfile.ZipFile(archive, "w") as images:
        for number in range(total):
            record = records.record(number)
            if record.fields is None or record.encoded is None or record.damage:
                continue
            name = found.classes[record.fields.label].replace("/", "_")
            if counts[name] < most:
                counts[name] += 1
                kind = "jpg" if record.fields.format in {"jpg", "jpeg"} else "png"
                entry = zipfile.ZipInfo(f"{name}/{counts[name]:04d}.{kind}")  # without a time
                images.writestr(entry, record.encoded)
            if len(counts) == len(found.classes) and min(counts.values()) == most:
                break
    return counts


def _values(checked: Config, archive: Path) -> dict[str, object]:
    """The parameters that make a pipeline small, repeatable and independent of outside services."""
    severities = {f"validate.severity.{key}": "warn" for key in type(checked.validation.severity).model_fields}
    return {
        "dataset.name": "image_folder", "dataset.url": str(archive), "dataset.base_url": None,
        "dataset.shards": 2, "dataset.layout": "perennial", "dataset.validation_fraction": 0.1,
        "dataset.test_fraction": 0.1,
        **severities, "compute.engine": "processes", "compute.processes": 2,
        "model.weights": None, "train.warm_start.path": None, "train.teacher": None, "train.epochs": None,
        "train.max_steps": STEPS, "train.epochs_between_evals": 1, "train.steps_between_evals": STEPS // 3,
        "train.stop_threshold": None, "train.patience": None, "train.head.steps": 0,
        "train.batch_size": min(checked.train.batch_size, 16), "train.deterministic": True,
        "train.xla": False, "checkpoints.interval_s": None, "checkpoints.interval_steps": 3,
        "checkpoints.remote": None, "gate.min_accuracy": 0.0, "gate.min_class_recall": None,
        "gate.max_calibration_error": None, "gate.max_model_mb": None, "gate.max_latency_ms": None,
        "record.remote": "origin", "record.branch": "fast-forward", "publish.url": "../published",
    }  # fmt: skip
