"""A summary of the last run in a few lines, and its details for programs."""

from dataclasses import asdict
from typing import Any

from perennial.base import layout
from perennial.base.choices import SPLITS
from perennial.base.config import Config
from perennial.base.errors import PerennialError
from perennial.base.params import advice
from perennial.base.params.advice import Advice
from perennial.data.datasets.readers.labelled import COLUMN
from perennial.data.records import manifest
from perennial.model.evaluation.results import RunResults, read_results
from perennial.release.gate import compared
from perennial.release.registry import verdict
from perennial.release.registry.access import open_registry
from perennial.release.registry.current_champion import is_champion

DRAWN_AT_RANDOM = "random"  # images of traffic that may reach test
CURVES = "curves.png"  # in paths.work: of this machine alone, as the page is


def summary(config: Config) -> dict[str, Any]:
    """Summarize the run: the name and value of each fact."""
    paths = config.paths
    results, data = read_results(paths), manifest.load(paths.records)
    training, metrics, decision = results.training, results.metrics, results.decision
    examples = ", ".join(f"{split} {data.splits[split].examples:,}" for split in SPLITS if split in data.splits)
    held_out = "none held out" if training.score is None else round(training.score, 4)
    return {
        "data set": layout.data_set(data.dataset, config.record.artifact),
        "examples": examples,
        "epochs": training.epoch,
        "stopped by": training.stopped_by,
        f"validation {metrics.score_name}": held_out,
        f"test {metrics.score_name}": round(metrics.score, 4),
        "test loss": round(metrics.loss, 4),
        **_traffic(results),
        **({"flips": flips} if (flips := verdict.flips(decision.comparison or {})) else {}),
        "decision": verdict.sentence(decision),
        **({"promise": said} if (said := compared.promise(config.gate)) else {}),
        **_champion(config, passed=decision.promote),
        "model": str(paths.export),
        "report": str(paths.report),
    }


def _traffic(results: RunResults) -> dict[str, str]:
    """The score on labelled images of traffic in the test split, beside the champion's; empty without them."""
    found = results.metrics.slices.get(COLUMN, {}).get(DRAWN_AT_RANDOM)
    if found is None:
        return {}
    text = f"{found.accuracy:.4f} on {found.examples} labelled images of the test split"
    for each in (results.decision.comparison or {}).get("slices", []):
        if each["name"] == f"{COLUMN}: {DRAWN_AT_RANDOM}":
            name = getattr(results.decision.champion, "version", None) or "the champion"
            text += f"; {name} has {each['champion']:.4f}: {each['won']} won, {each['lost']} lost"
    return {"traffic": text}


def _champion(config: Config, *, passed: bool) -> dict[str, str]:
    """The champion as this repository knows it; empty without git."""
    try:
        opened = open_registry(config, fetch=False)
    except PerennialError:
        return {}
    now = opened.registry.champion
    if now and is_champion(config, opened):
        return {"champion": f"{now.name}, which is this model"}
    how = "`perennial promote` makes it this model"
    if config.gate.approval:
        how = "a person has to approve this model"
    return {"champion": (now.name if now else "none yet") + (f"; {how}" if passed else "")}


def advised(config: Config) -> list[Advice]:
    """Advice about the run."""
    results = read_results(config.paths)
    return advice.of_run(config, results.metrics.model_dump(), results.training.score)


def details(config: Config) -> dict[str, Any]:
    """Scores of each class, the picture files that exist, advice, and where the run is sent."""
    paths = config.paths
    pictures = {
        "curves": paths.work / CURVES,
        "confusion": paths.confusion_plot,
        "reliability": paths.reliability_plot,
    }
    per_class = read_results(paths).metrics.per_class
    return {
        "per_class": {name: dict(scores) for name, scores in per_class.items()},
        "pictures": {name: str(file) for name, file in pictures.items() if file.is_file()},
        "advice": [asdict(each) for each in advised(config)],
        "sinks": list(config.logging.sinks),
    }
