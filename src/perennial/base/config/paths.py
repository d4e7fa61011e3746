"""Where the files of a pipeline stand, and where data, outputs and publications must not lie."""

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from perennial.base.choices import is_bucket
from perennial.base.config.fields import AnyPath, Section, option

# Stages replace the folders that they write, so no output may be one of these or be inside one.
SOURCES = {
    "src", "flows", "tasks", "tests", "infra", "benchmarks", "requirements", "docs", "own",
    ".git", ".github", ".dvc", ".ci", ".venv", "venv", ".gitignore", ".gitattributes", ".dvcignore",
    ".pre-commit-config.yaml", ".mailmap", "params.yaml", "pins", "dvc.yaml", "dvc.lock", "prefect.yaml",
    "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE",
    "LICENSES", "REUSE.toml", "code.yaml", "components", "pipelines", ".perennial",
}  # fmt: skip
BASELINE = Path("pins/baseline.json")
SYSTEM = tuple(map(Path, ("/bin", "/boot", "/etc", "/lib", "/lib64", "/opt", "/proc", "/sbin", "/sys", "/usr")))
WITHOUT_DVC = {"report", "runs", "work", "digests", "baseline"}
# A link that DVC made, to an object in its cache. The object may be gone, so its name has to say it.
CACHED_OBJECT = re.compile(r"/[0-9a-f]{2}/[0-9a-f]{30}")
EXAMPLE = "name a folder used for nothing else, such as /srv/models/digits"


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Where the files of a pipeline stand, relative to its folder; params.yaml chooses only `work`."""

    raw: Path = Path("data/raw")  # downloaded files
    records: Path = Path("data/records")  # TFRecord files and their manifest
    validation: Path = Path("data/validation.json")
    validation_page: Path = Path("data/validation.html")
    index: Path = Path("data/index")  # offset and length of each record
    initial_weights: Path = Path("data/initial_weights")
    model: Path = Path("models/weights")  # weights of the run
    training: Path = Path("metrics/training.json")  # summary of the training run
    curves: Path = Path("metrics/curves")
    scores: Path = Path("metrics/scores.json")  # the scores that DVC compares
    metrics: Path = Path("metrics/metrics.json")  # all scores on the test split
    confusion: Path = Path("metrics/confusion.csv")
    confusion_plot: Path = Path("metrics/confusion.png")
    reliability: Path = Path("metrics/reliability.csv")
    reliability_plot: Path = Path("metrics/reliability.png")
    predictions: Path = Path("metrics/predictions.npz")
    label_errors: Path = Path("metrics/label_errors.json")
    export: Path = Path("models/export")  # the SavedModel
    champion: Path = Path("metrics/champion")  # the model in use, and its predictions
    decision: Path = Path("metrics/decision.json")  # of the gate
    report: Path = Path("report.html")
    runs: Path = Path("runs")
    work: Path = Path(".work")
    digests: Path = Path("digests.json")  # recorded digests of downloads
    baseline: Path = BASELINE  # statistics of the previous version of the data

    def require_safe(self) -> None:
        """Check that no stage would replace files of the project or of others, also through links."""
        paths, here = asdict(self), Path.cwd()
        home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() fails for a user without one
        resolved = {name: _written(path) for name, path in paths.items()}
        for name, path in paths.items():
            real, where = resolved[name], _key(name, path)
            if here.is_relative_to(real):
                raise ValueError(f"{where} must not hold the project, got {real}")
            system = not real.is_relative_to(here) and any(real.is_relative_to(folder) for folder in SYSTEM)
            if system or home.is_relative_to(real):
                raise ValueError(f"{where} must not be a system folder or your home, got {real}")
            own = name == "baseline" and real == here / BASELINE
            if not own and real.is_relative_to(here) and (top := real.relative_to(here).parts[0]) in SOURCES:
                raise ValueError(f"{where} must not lie in {top}, got {real}")
            above = {real, *real.parents}
            for other, folder in resolved.items():
                if other != name and folder in above:
                    raise ValueError(f"{where} must not lie in {_key(other, paths[other])}, got {real}")
            # An output may itself be a link into DVC's cache; a link above it must not leave the project.
            place = path.parent.resolve() / path.name
            if name not in WITHOUT_DVC and not place.is_relative_to(here):
                raise ValueError(
                    f"{where} must lie in the project: DVC versions nothing outside it; got {place}; to use "
                    "another disk, move DVC's cache there (dvc cache dir)"
                )


FIXED = {name: path.as_posix() for name, path in asdict(Paths()).items()}  # in every revision, but for `work`


class PathsConfig(Section):
    """Only work can be chosen; others are for programs that look here; `perennial docs files` lists all."""

    work: AnyPath = option(Paths.work, "checkpoints, partial downloads and locks; may lie on another disk")
    records: Literal["data/records"] = option("data/records", "fixed; for other programs")
    metrics: Literal["metrics/metrics.json"] = option("metrics/metrics.json", "fixed; for other programs")


def _key(name: str, path: Path) -> str:
    """A path as a message names it: by its key in params.yaml if it can be chosen."""
    return "paths.work" if name == "work" else str(path)


def _written(path: Path) -> Path:
    """Where a stage that is given this path writes: in place of a link to a file, and in a linked folder."""
    real = path.resolve()
    if real.is_file() or (CACHED_OBJECT.search(str(real)) and not real.exists()):
        return path.parent.resolve() / path.name
    return real


def require_own_data_apart(key: str, own: Path, paths: Paths) -> None:
    """Refuse a dataset.path or dataset.url that a stage could replace."""
    real = own.resolve()
    for name, path in asdict(paths).items():
        if real.is_relative_to(_written(path)) or _written(path).is_relative_to(real):
            raise ValueError(f"{key} must not lie in {_key(name, path)} or hold it, got {own}")


def publish_target(url: str, paths: Paths, own: Path) -> str:
    """The folder or URL of a bucket that `publish.url`, `checkpoints.remote` or the command line names."""
    if is_bucket(url) and re.fullmatch(r"s3://[^/@?#:\s]+(/[^?#]*)?", url):
        return url
    if "://" in url:
        raise ValueError("must be a folder, or s3://bucket/prefix, without user, password and query")
    if not url:
        raise ValueError("must name a folder, or s3://bucket/prefix, and is empty")
    if url.startswith("~"):
        raise ValueError("must be a folder written in full; ~ is not expanded")
    _require_outside(Path(url).resolve(), paths, own)
    return url


def _require_outside(real: Path, paths: Paths, own: Path) -> None:
    """Refuse a folder of the project, or one that a run may replace."""
    here = Path.cwd()
    if here.is_relative_to(real):
        raise ValueError(f"must not hold the project; {EXAMPLE}")
    replaced = {_key(name, path): _written(path) for name, path in asdict(paths).items()}
    for name, path in replaced.items():
        if real.is_relative_to(path):
            raise ValueError(f"must not lie in {name}, which a run may replace; {EXAMPLE}")
    if real.is_relative_to(here):
        top = real.relative_to(here).parts[0]
        # `make clean` removes the folders above outputs, such as data; hidden folders are the tools'.
        if (
            top.startswith(".")
            or top in SOURCES
            or any(path.is_relative_to(here / top) for path in replaced.values())
        ):
            raise ValueError(f"must not lie in {top}, which belongs to the project; {EXAMPLE}")
    if real.is_relative_to(own.resolve()) or own.resolve().is_relative_to(real):
        raise ValueError(f"must not be dataset.path, lie in it or hold it; {EXAMPLE}")
