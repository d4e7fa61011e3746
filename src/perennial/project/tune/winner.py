"""Write the best settings into params.yaml, and run the pipeline once with them, as an experiment of DVC."""

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perennial.base import config as configuration
from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.dvc import dvc_program, repro
from perennial.base.errors import ERRORS, PerennialError
from perennial.base.params import edit_params
from perennial.base.project.git import repository
from perennial.model.evaluation.results import read_results
from perennial.project.tune import space
from perennial.project.tune.study import Trial
from perennial.project.tune.tune import Search, settings_line
from perennial.release.registry import run_records

log = logging.getLogger(__name__)
FILE = "experiment.json"  # in the folder of a search: the experiment with its best settings, once it ended


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The run of the pipeline with the best settings."""

    name: str  # in `dvc exp show`
    trial: int
    score: float  # on validation, of the weights that it kept
    repeats: bool  # its score is that of the trial
    test_accuracy: float
    test_interval: list[float] | None  # of the accuracy, at evaluate.confidence_level


def prepare_data(config: Config) -> None:
    """Bring the data and initial weights up to date with DVC, as all trials read them."""
    run_dvc("repro", "validate", "initialize", work=config.paths.work)


def author(config: Config) -> Mapping[str, str]:
    """The author of an experiment's commit, as variables; git's own where it has one."""
    return repository(Path(), config.record.git_name, config.record.git_email).identity


def run_dvc(*arguments: str, work: Path, identity: Mapping[str, str] | None = None) -> None:
    """Run a command of DVC in this pipeline, and log what it prints."""
    python = Path(sys.executable)
    ended = repro.run(
        python, *arguments, folder=Path.cwd(), work=work, to=lambda line: log.info("%s", line),
        variables={**repro.environment(python, Path.cwd()), **(identity or {})},
    )  # fmt: skip
    if ended.failure:
        kind = next((each for each in ERRORS if each.exit_code == ended.failure["code"]), PerennialError)
        raise kind(f"{ended.failure['stage']}: {ended.failure['message']}")
    if ended.code:
        lines = [line for line in ended.lines if dvc_program.NOISE not in line][-dvc_program.LINES :]
        raise PerennialError(f"`dvc {' '.join(arguments)}` failed: {' '.join(lines)}")


def choose(found: Search) -> bool:
    """Write the best settings into params.yaml if they are better on validation than the present ones.

    Returns whether they were written.
    """
    found.require_unchanged()
    best, present = found.study.best(), found.present_trial
    if best is None or (present and present.state == "finished" and not found.study.better(best, present)):
        return False
    edit_params.change_file(found.params, values=best.settings)
    log.info("%s has the settings of trial %d: %s", found.params, best.number, settings_line(best.settings))
    return True


def run_experiment(found: Search) -> Experiment | None:
    """Run the pipeline with the best settings, once, as an experiment of DVC; None if they are not in use.

    An experiment that ended is not run again, and one that was interrupted goes on.
    """
    best = found.study.best()
    config, values = configuration.load_with_values(found.params)
    if best is None or best.before or space.present(found.dimensions, values) != best.settings:
        return None
    file = found.folder / FILE
    done = documents.json_object(file.read_bytes()) if file.is_file() else {}
    if done.get("trial") == best.number:
        log.info("experiment %s has run already", done["name"])
        return Experiment(**done)
    name = f"tune-{found.folder.name[:7]}-{best.number}"
    log.info("running the pipeline with these settings, as experiment %s", name)
    try:
        run_dvc("exp", "run", "--name", name, "--force", work=config.paths.work, identity=author(config))
    except PerennialError as error:
        raise type(error)(
            f"{error}; the best settings stay in {found.params}, and all trials in {found.folder}: "
            "run again to go on with the experiment"
        ) from error
    made = _read(config, name, best)
    files.write_json(file, asdict(made))
    return made


def record(config: Config, document: Mapping[str, Any]) -> None:
    """Add what was chosen to the record of the run that this search belongs to, if any."""
    if run := os.environ.get(run_records.RUN):
        best = next((each for each in document["trials"] if each["number"] == document["best"]), None)
        kept = ("search", "metric", "best", "present", "written", "folder")
        facts = {
            **{key: document[key] for key in kept},
            "trials": len(document["trials"]),
            "settings": best and best["settings"],
            "score": best and best["score"],
        }
        run_records.add(config, run, tune=facts)


def _read(config: Config, name: str, best: Trial) -> Experiment:
    results = read_results(config.paths)
    training, metric = results.training, config.train.stop_metric
    score = next(getattr(each, metric) for each in training.evaluations if each.step == training.kept)
    if score != best.score:
        not_repeated = "it ran on other devices, or packages changed since"
        why = not_repeated if config.train.deterministic else "train.deterministic is false"
        text = "the experiment has validation %s %.6f, but trial %d had %.6f: %s"
        log.warning(text, metric, score, best.number, best.score, why)
    between = results.metrics.intervals.get("accuracy")
    return Experiment(
        name=name,
        trial=best.number,
        score=score,
        repeats=score == best.score,
        test_accuracy=results.metrics.accuracy,
        test_interval=None if between is None else [between.low, between.high],
    )
