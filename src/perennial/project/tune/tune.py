"""The search: trials one after another until the budget is spent, then the best settings into params.yaml."""

import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.base import config as configuration
from perennial.base import documents, files
from perennial.base.errors import ConfigError, DataError, InputsChanged, Interrupted, PerennialError, listed
from perennial.base.layout import Project
from perennial.base.params import edit_params
from perennial.base.project.pins import WeightsPin
from perennial.base.stage_state import stage_inputs
from perennial.data.records import manifest
from perennial.data.validation import integrity
from perennial.model.training import triggers
from perennial.project.tune import space, training_process
from perennial.project.tune.study import Study, Trial, naming_database

log = logging.getLogger(__name__)
FOLDER = "tune"  # in paths.work, with a folder for each search
FACTS = "search.json"  # in it: what the search depends on
TRIALS = 30  # by default
FAILURES = 5  # one after another, after which the search ends
SHOWN = 5  # differences in a message
WHERE = re.compile(r"^(parameters\.params\.yaml|present)\.")  # before a parameter in the facts of a search
# Errors of a disk, which say nothing about the settings of the trial that met them.
FULL = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EROFS)))


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How long to search: up to `trials` trials of the whole search, or until `minutes` have passed."""

    trials: int | None
    minutes: float | None
    started: float

    def left_s(self) -> float:
        """The seconds that are left."""
        return math.inf if self.minutes is None else 60 * self.minutes - (time.monotonic() - self.started)

    def allows(self, trials: int) -> bool:
        """Whether another trial may start after so many."""
        return self.left_s() > 0 and (self.trials is None or trials < self.trials)


class Search:
    """A search of a pipeline: its parameters, its dimensions and its trials."""

    @naming_database()
    def __init__(self, params: Path, texts: Iterable[str] | None) -> None:
        """Check the search, and open the study of an earlier one with the same data, code and parameters."""
        self.params = params
        self.config, self.values = configuration.load_with_values(params)
        self.dimensions = space.parse(texts or space.default(self.config), self.values)
        self.data = integrity.require_valid(self.config.paths.records, ("train", "validation"))
        if not self.data.validates or not self.data.splits["validation"].examples:
            raise ConfigError(
                "perennial tune compares settings on the validation split, and the records have no validation "
                "examples; nothing was started: set dataset.validation_fraction above 0, such as 0.1"
            )
        self.facts = self._facts(self.values)
        digest = hashlib.sha256(files.json_bytes(self.facts)).hexdigest()
        self.folder = self.config.paths.work / FOLDER / digest[:12]
        length = triggers.length(self.config.train, self.data.splits["train"].examples)
        interval = triggers.Triggers.configured(self.config, length).eval_steps or length.steps
        evaluations = math.ceil(length.steps / interval)
        self.study = Study(self.folder, self.dimensions, metric=self.metric, evaluations=evaluations)

    @property
    def metric(self) -> str:
        """The score by which trials are compared."""
        return self.config.train.stop_metric

    @property
    def present(self) -> dict[str, Any]:
        """The present values of the searched keys."""
        return space.present(self.dimensions, self.values)

    @property
    def present_trial(self) -> Trial | None:
        """The trial with the present settings, if it has started."""
        return next((each for each in self.study.trials() if each.settings == self.present), None)

    def require_unchanged(self) -> None:
        """Check that parameters, code and data are those of the beginning."""
        self.config, values = configuration.load_with_values(self.params)
        changed = _differences(
            {**self.facts, "present": self.present},
            {**self._facts(values), "present": space.present(self.dimensions, values)},
        )
        if changed:
            raise InputsChanged(
                f"{listed(changed, SHOWN)} changed during the search; params.yaml was not changed, and "
                f"all trials are kept in {self.folder}: set it back, or run again to search with what is there"
            )

    def announce(self, budget: Budget) -> None:
        """Log what the search tries, and with which earlier trials it goes on."""
        log.info("searching %s", ", ".join(f"{each.key}={each.text}" for each in self.dimensions))
        known = self.study.trials()
        unfinished = sum(each.state == "running" for each in known)
        if known:
            log.info(
                "going on after %d trials%s in %s", len(known) - unfinished,
                " and an interrupted one" if unfinished else "", self.folder,
            )  # fmt: skip
        elif others := sorted(self.folder.parent.glob(f"*/{FACTS}"), key=lambda file: file.stat().st_mtime):
            before = documents.json_object(others[-1].read_bytes())
            log.info(
                "this search is a new one, since it differs from the last one in %s; that one stays in %s",
                listed(_differences(before, self.facts), SHOWN), others[-1].parent,
            )  # fmt: skip
        if not (self.folder / FACTS).exists():
            files.write_json(self.folder / FACTS, self.facts)
        if budget.trials is not None and len(known) - unfinished >= budget.trials:
            log.info("all %d trials are there; a larger --trials adds some", budget.trials)

    def _facts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All that decides the score of a trial, besides its settings; `values` are those of params.yaml."""
        noted = stage_inputs.note("train", self.params, values)
        if not noted.listed:
            raise ConfigError(
                f"{Project.find().folder} has no dvc.yaml with a stage train; nothing was started"
            )
        searched = {f"{name}.{each.key}" for name in noted.params for each in self.dimensions}
        flat = documents.flattened(noted.params)
        return {
            "search": {each.key: each.text for each in self.dimensions},
            "parameters": {key: value for key, value in flat.items() if key not in searched},
            "metric": self.metric,
            "code": noted.code,
            "data": manifest.digest(self.config.paths.records),
            "weights": WeightsPin.read().model_dump(mode="json"),
        }


def check(params: Path, texts: Iterable[str] | None) -> None:
    """Check a search as far as it needs no data, before anything starts."""
    config, values = configuration.load_with_values(params)
    space.parse(texts or space.default(config), values)
    training_process.require_trainable(config)
    if config.dataset.validation_fraction == 0:
        raise ConfigError(
            "perennial tune compares settings on the validation split, and dataset.validation_fraction is 0; "
            "nothing was started: set it above 0, such as 0.1"
        )


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, after = documents.flattened(old), documents.flattened(new)
    changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    return [WHERE.sub("", key) for key in changed]


@naming_database()
def search(found: Search, budget: Budget, *, pinned: bool) -> None:
    """Run trials until the budget is spent, or all settings have been tried."""
    failures = 0
    while budget.allows(sum(each.state != "running" for each in found.study.trials())):
        new = found.study.next(found.present)
        if new is None:
            log.info("all settings of the search have been tried")
            break
        log.info("trial %d: %s", new.number, settings_line(new.settings))
        ended = _run(found, new, budget, pinned=pinned)
        if ended is None:
            log.info("trial %d: the time is over; it is kept, and a later search goes on with it", new.number)
            break
        failures = failures + 1 if ended.state == "failed" else 0
        if failures == FAILURES:
            raise PerennialError(
                f"{FAILURES} trials failed one after another, the last one with: {ended.reason}; all "
                f"trials are kept in {found.folder}: run again to go on"
            )
    _require_finished(found, budget)


def _require_finished(found: Search, budget: Budget) -> None:
    trials = found.study.trials()
    if any(each.state == "finished" for each in trials):
        return
    failed = [each for each in trials if each.state == "failed"]
    if failed and budget.left_s() > 0:
        raise PerennialError(
            f"no trial finished; {len(failed)} of {len(trials)} failed, the last one: {failed[-1].reason}; "
            f"all are kept in {found.folder}: remove the cause, and run again with a larger --trials"
        )
    raise Interrupted(
        "the time was over before a trial finished; what is done is kept: run again, or with more --minutes"
    )


def _run(found: Search, new: Trial, budget: Budget, *, pinned: bool) -> Trial | None:
    """Run a trial to its end; None if the time was over before."""
    values = space.with_values(found.values, new.settings)
    try:
        own = configuration.check(values)
    except ConfigError as error:
        return _failed(found, new, error.exit_code, str(error).replace("\n", "; "))
    told, stopped = 0, False
    begins_step = max(own.train.head.steps, own.train.schedule.warmup_steps)  # scores before it say little

    def goes_on(line: str) -> bool:
        nonlocal told, stopped
        evaluation, told = json.loads(line), told + 1
        if not stopped:
            score, loss = evaluation[found.metric], evaluation["loss"]
            worse = found.study.evaluated(new.number, told, score=score, loss=loss)
            stopped = worse and evaluation["stopped_by"] is None and evaluation["step"] > begins_step
        return not stopped

    folder = found.folder / "trials" / f"{new.number:04}"
    task = training_process.own(own, folder), pinned
    done = training_process.run(training_process.TRIAL, task, folder, limit_s=budget.left_s(), goes_on=goes_on)
    if done is None:
        return None
    if done.code and not stopped:
        ended = _failed(found, new, *training_process.failure(done))
    else:
        ended = _ended(found, new, task[0].paths.training, stopped=stopped)
    shutil.rmtree(folder / "work", ignore_errors=True)
    return ended


def _ended(found: Search, new: Trial, record: Path, *, stopped: bool) -> Trial:
    """Store that a trial was stopped early, or how its training ended by its record."""
    if stopped:
        found.study.stop(new.number)
    else:
        facts = documents.read_json(record)
        kept = next(each for each in facts["evaluations"] if each["step"] == facts["kept"])
        scores = {"score": kept[found.metric], "loss": kept["loss"]}
        found.study.finish(new.number, **scores, stopped_by=facts["stopped_by"])
    ended = found.study.trials()[new.number]
    how = ended.state if stopped else f"validation {found.metric} {ended.score:.4f}"
    log.info("trial %d: %s", new.number, how)
    return ended


def _failed(found: Search, new: Trial, code: int, message: str) -> Trial:
    """Store the failure of a trial; raises one that says nothing about its settings."""
    if code in {DataError.exit_code, Interrupted.exit_code}:
        raise training_process.error_of(code, f"trial {new.number}: {message}")
    if any(text in message for text in FULL):
        raise PerennialError(f"trial {new.number}: {message}; all trials are kept, and this one goes on then")
    found.study.stop(new.number, message)
    log.warning("trial %d failed: %s", new.number, message)
    return found.study.trials()[new.number]


def settings_line(settings: Mapping[str, Any]) -> str:
    """Settings in one line."""
    return ", ".join(f"{key}={space.written(value)}" for key, value in settings.items())


def choose(found: Search) -> bool:
    """Write the best settings into params.yaml if they are better than the present ones; returns whether."""
    found.require_unchanged()
    best, present = found.study.best(), found.present_trial
    if best is None or (present and present.state == "finished" and not found.study.better(best, present)):
        return False
    edit_params.change_file(found.params, values=best.settings)
    log.info("%s has the settings of trial %d: %s", found.params, best.number, settings_line(best.settings))
    return True
