"""The section `paths` of params.yaml, and where data, outputs and publications must not lie."""

import os
import re
from pathlib import Path
from typing import Self

from pydantic import model_validator

from perennial.base.choices import is_bucket
from perennial.base.config.fields import AnyPath, Section, option

# Stages replace the folders that they write, so no output may be one of these or be inside one.
SOURCES = {
    "src", "flows", "tasks", "tests", "infra", "benchmarks", "requirements", "environment", "docs", "own",
    "params", ".git", ".github", ".dvc", ".ci", ".venv", "venv", ".gitignore", ".gitattributes", ".dvcignore",
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


class PathsConfig(Section):
    """Files and folders, relative to the project. DVC versions all but the last five."""

    raw: AnyPath = option(Path("data/raw"), "downloaded files")
    records: AnyPath = option(Path("data/records"), "TFRecord files and their manifest")
    validation: AnyPath = option(Path("data/validation.json"), "result of validate")
    validation_page: AnyPath = option(Path("data/validation.html"), "the result of validate as an HTML page")
    index: AnyPath = option(Path("data/index"), "offset and length of each record")
    initial_weights: AnyPath = option(
        Path("data/initial_weights"), "copy of the weights from which training starts"
    )
    model: AnyPath = option(Path("models/weights"), "weights of the run")
    training: AnyPath = option(Path("metrics/training.json"), "summary of the training run")
    curves: AnyPath = option(Path("metrics/curves"), "training and validation curves")
    scores: AnyPath = option(Path("metrics/scores.json"), "the scores that DVC compares; kept in git")
    metrics: AnyPath = option(Path("metrics/metrics.json"), "all scores on the test split")
    confusion: AnyPath = option(Path("metrics/confusion.csv"), "labels and predictions")
    confusion_plot: AnyPath = option(Path("metrics/confusion.png"), "confusion matrix")
    reliability: AnyPath = option(Path("metrics/reliability.csv"), "accuracy by confidence")
    reliability_plot: AnyPath = option(Path("metrics/reliability.png"), "reliability diagram")
    predictions: AnyPath = option(
        Path("metrics/predictions.npz"), "labels and predicted probabilities of each test example"
    )
    label_errors: AnyPath = option(Path("metrics/label_errors.json"), "likely label errors of the test split")
    export: AnyPath = option(Path("models/export"), "the SavedModel")
    champion: AnyPath = option(Path("metrics/champion"), "the model in use, and its predictions")
    decision: AnyPath = option(Path("metrics/decision.json"), "decision of the gate")
    report: AnyPath = option(Path("report.html"), "page about the last run; not versioned")
    runs: AnyPath = option(Path("runs"), "records of runs; not versioned")
    work: AnyPath = option(Path(".work"), "checkpoints, partial downloads and locks; not versioned")
    digests: AnyPath = option(Path("digests.json"), "recorded digests of downloads; kept in git")
    baseline: AnyPath = option(BASELINE, "statistics of the previous version of the data; kept in git")

    @model_validator(mode="after")
    def _safe_to_replace(self) -> Self:
        paths, here = self.by_name(), Path.cwd()
        home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() fails for a user without one
        resolved = {name: _written(path) for name, path in paths.items()}
        for name, path in paths.items():
            real = resolved[name]
            if here.is_relative_to(real):
                raise ValueError(f"paths.{name} must not hold the project, got {path}")
            system = not real.is_relative_to(here) and any(real.is_relative_to(folder) for folder in SYSTEM)
            if system or home.is_relative_to(real):
                raise ValueError(f"paths.{name} must not be a system folder or your home, got {path}")
            own = name == "baseline" and real == here / BASELINE
            if not own and real.is_relative_to(here) and (top := real.relative_to(here).parts[0]) in SOURCES:
                raise ValueError(f"paths.{name} must not lie in {top}, got {path}")
            above = {real, *real.parents}
            for other, folder in resolved.items():
                if other != name and folder in above:
                    raise ValueError(
                        f"paths.{name} must not lie in paths.{other}, got {path} and {paths[other]}"
                    )
            # An output may itself be a link into DVC's cache; a link above it must not leave the project.
            place = path.parent.resolve() / path.name
            if name not in WITHOUT_DVC and not place.is_relative_to(here):
                raise ValueError(
                    f"paths.{name} must lie in the project: DVC versions nothing outside it; got {path}, "
                    f"which is {place}; to use another disk, move DVC's cache there (dvc cache dir)"
                )
        return self

    def by_name(self) -> dict[str, Path]:
        """Each path by its key."""
        return {name: getattr(self, name) for name in type(self).model_fields}


def _written(path: Path) -> Path:
    """Where a stage that is given this path writes: in place of a link to a file, and in a linked folder."""
    real = path.resolve()
    if real.is_file() or (CACHED_OBJECT.search(str(real)) and not real.exists()):
        return path.parent.resolve() / path.name
    return real


def require_own_data_apart(key: str, own: Path, paths: PathsConfig) -> None:
    """Refuse a dataset.path or dataset.url that a stage could replace."""
    real = own.resolve()
    for name, path in paths.by_name().items():
        if real.is_relative_to(_written(path)) or _written(path).is_relative_to(real):
            raise ValueError(f"{key} must not lie in paths.{name} or hold it, got {own} and {path}")


def publish_target(url: str, paths: PathsConfig, own: Path) -> str:
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


def _require_outside(real: Path, paths: PathsConfig, own: Path) -> None:
    """Refuse a folder of the project, or one that a run may replace."""
    here = Path.cwd()
    if here.is_relative_to(real):
        raise ValueError(f"must not hold the project; {EXAMPLE}")
    replaced = {name: _written(path) for name, path in paths.by_name().items()}
    for name, path in replaced.items():
        if real.is_relative_to(path):
            raise ValueError(f"must not lie in paths.{name}, which a run may replace; {EXAMPLE}")
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
