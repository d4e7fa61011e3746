"""The trials of a search in an Optuna study: which settings come next, which trials stop early, what is best.

The study is an SQLite file, so every finished trial and evaluation outlives a killed search. The settings of a
trial follow from its number and the finished trials, so an interrupted search continues as an unbroken one.
"""

import json
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import StorageInternalError
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from perennial.base.errors import PerennialError
from perennial.project.tune.space import Dimension

DATABASE, NAME = "study.db", "tune"
FIRST_RUNG = 9  # after this part of a training's evaluations
REDUCTION = 3  # the next rung is so many times as far
PART = 2  # of so many trials that reach a rung, one goes on
RANDOM = 10  # trials before the sampler learns from others
FEW = 6  # finished trials, with fewer an importance would say nothing
ASKS = 50  # draws of the sampler for settings that no trial has had
SETTINGS, PRESENT, LOSS, LOSSES, REASON, BY = "settings", "present", "loss", "losses", "reason", "stopped_by"
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A trial as people and programs read it."""

    number: int
    settings: dict[str, Any]  # value by key of params.yaml
    before: bool  # it has the settings that params.yaml had before the search
    state: str  # running, finished, stopped early or failed
    score: float | None  # train.stop_metric on validation, of the weights that the training keeps
    loss: float | None  # of the same evaluation
    evaluations: list[float]  # train.stop_metric after each evaluation
    losses: list[float]  # after each evaluation
    stopped_by: str | None  # what ended a training that finished
    reason: str | None  # of a failure


@contextmanager
def naming_database() -> Iterator[None]:
    """Turn an error of the database into one that says so, such as a full disk or a damaged file."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        raise PerennialError(
            f"the search's {DATABASE} cannot be used: {getattr(cause, 'orig', cause)}; stored trials are kept: "
            "free space or repair the disk, and run again; if the file is damaged, remove the search's folder "
            "in .work/tune to start again"
        ) from error


class Study:
    """A search that is stored in a folder."""

    def __init__(self, folder: Path, dimensions: Sequence[Dimension], *, metric: str, evaluations: int) -> None:
        """`evaluations`: of a whole training."""
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        folder.mkdir(parents=True, exist_ok=True)
        self._sign = 1 if metric == "loss" else -1  # of scores, so that lower ones are better
        self._first_rung = math.ceil(evaluations / FIRST_RUNG)
        self._keys = {each.key: each for each in dimensions}
        self._distributions = {each.key: _distribution(each) for each in dimensions}
        self._storage = optuna.storages.get_storage(f"sqlite:///{(folder / DATABASE).resolve()}")
        self._study = optuna.create_study(
            storage=self._storage, study_name=NAME, load_if_exists=True,
            direction="minimize" if metric == "loss" else "maximize",
        )  # fmt: skip

    def trials(self) -> list[Trial]:
        """All trials, by number."""
        return [self._trial(each) for each in self._study.get_trials(deepcopy=False)]

    def next(self, present: Mapping[str, Any]) -> Trial | None:
        """The trial to run: an interrupted one, the present settings, or new ones; None if all were tried."""
        known = self.trials()
        if running := [each for each in known if each.state == "running"]:
            return running[0]
        tried = [each.settings for each in known]
        if dict(present) not in tried:
            return self._add(present, present=True)
        drawn = self._draw(tried)
        return None if drawn is None else self._add(drawn)

    def evaluated(self, number: int, evaluation: int, *, score: float, loss: float) -> bool:
        """Store the scores of an evaluation of a trial, counted from 1; returns whether it is to stop early.

        Successive halving as in ASHA (Li et al. 2020), but milder: a trial goes on after a rung if its score or
        its loss is among the best half of those that reached it. A score alone is coarse where validation is
        small: of 15 images, one decided who stops. Unlike Optuna's pruners, this needs only the stored scores,
        so a search that is killed here decides the same again. The trial with the present settings never stops.
        """
        trial = self._running(number)
        known = self.trials()[number]
        if evaluation > len(known.losses):
            trial.set_user_attr(LOSSES, [*known.losses, loss])
        if evaluation > len(known.evaluations):
            trial.report(score, evaluation)
        if PRESENT in trial.user_attrs or not self._is_rung(evaluation):
            return False
        reached = [each for each in self.trials() if len(each.evaluations) >= evaluation]
        scores = [self._sign * each.evaluations[evaluation - 1] for each in reached]
        losses = [each.losses[evaluation - 1] for each in reached]
        return not (_among_better(self._sign * score, scores) or _among_better(loss, losses))

    def _is_rung(self, evaluation: int) -> bool:
        while evaluation > self._first_rung and evaluation % REDUCTION == 0:
            evaluation //= REDUCTION
        return evaluation == self._first_rung

    def finish(self, number: int, *, score: float, loss: float, stopped_by: str) -> None:
        """Store that a trial finished, with the scores of the weights that it keeps."""
        trial = self._running(number)
        trial.set_user_attr(LOSS, loss)
        trial.set_user_attr(BY, stopped_by)
        self._study.tell(trial, score)

    def stop(self, number: int, reason: str | None = None) -> None:
        """Store that a trial was stopped early, or failed for a reason; both count as bad settings."""
        trial = self._running(number)
        if reason is not None:
            trial.set_user_attr(REASON, reason)
        self._study.tell(trial, state=TrialState.PRUNED)

    def best(self) -> Trial | None:
        """The finished trial with the best score, of several the one with the lowest loss, then the first."""
        finished = [each for each in self.trials() if each.state == "finished"]
        return min(finished, key=lambda each: (self._worth(each), each.loss, each.number), default=None)

    def better(self, one: Trial, other: Trial) -> bool:
        """Whether the score of a finished trial is better than that of another one."""
        return self._worth(one) < self._worth(other)

    def _worth(self, trial: Trial) -> float:
        return self._sign * (trial.score or 0)

    def importance(self) -> dict[str, float]:
        """The share of each key in the differences between the scores of finished trials, largest first."""
        finished = [
            each for each in self._study.get_trials(deepcopy=False) if each.state == TrialState.COMPLETE
        ]
        whole = [each for each in finished if set(each.params) == set(self._keys)]
        if len(self._keys) < 2 or len(whole) < FEW or len({each.value for each in whole}) < 2:
            return {}
        study = _in_memory(self._study.direction, whole)
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        try:
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
        except (RuntimeError, ValueError) as error:  # scores that differ by too little
            log.info("no importance of settings: %s", error)
            return {}
        return {key: float(share) for key, share in found.items() if math.isfinite(share)}

    def _trial(self, stored: FrozenTrial) -> Trial:
        facts = stored.user_attrs
        reason, finished = facts.get(REASON), stored.state == TrialState.COMPLETE
        state = "finished" if finished else "failed" if reason is not None else "stopped early"
        return Trial(
            number=stored.number, settings=json.loads(facts[SETTINGS]), before=PRESENT in facts,
            state="running" if stored.state == TrialState.RUNNING else state, reason=reason,
            score=stored.value if finished else None, loss=facts.get(LOSS), losses=facts.get(LOSSES, []),
            evaluations=[stored.intermediate_values[step] for step in sorted(stored.intermediate_values)],
            stopped_by=facts.get(BY),
        )  # fmt: skip

    def _running(self, number: int) -> optuna.Trial:
        study = self._storage.get_study_id_from_name(NAME)
        return optuna.Trial(self._study, self._storage.get_trial_id_from_study_id_trial_number(study, number))

    def _add(self, settings: Mapping[str, Any], *, present: bool = False) -> Trial:
        """Store a running trial, at once as a whole."""
        params = {key: self._keys[key].drawn(value) for key, value in settings.items()}
        params = {key: value for key, value in params.items() if value is not None}
        new = create_trial(
            state=TrialState.RUNNING, params=params,
            distributions={key: self._distributions[key] for key in params},
            user_attrs={SETTINGS: json.dumps(dict(settings)), **({PRESENT: True} if present else {})},
        )  # fmt: skip
        self._study.add_trial(new)
        return self.trials()[-1]

    def _draw(self, tried: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Settings that no trial has had; in a copy of the study, so that nothing half drawn is stored."""
        known = self._study.get_trials(deepcopy=False)
        for ask in range(ASKS):
            seed = len(known) * ASKS + ask
            sampler: BaseSampler = RandomSampler(seed=seed)  # for another draw after one that was tried already
            if ask == 0:
                sampler = TPESampler(seed=seed, n_startup_trials=RANDOM, multivariate=True)
            study = _in_memory(self._study.direction, known, sampler)
            params = study.ask(self._distributions).params
            settings = {key: each.value(params[key]) for key, each in self._keys.items()}
            if settings not in tried:
                return settings
        return None


def _among_better(value: float, values: Sequence[float]) -> bool:
    """Whether a value is in the lower half of values that it is one of; a lone best one always is."""
    return value <= sorted(values)[max(len(values) // PART, 1) - 1]


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.choices:
        return CategoricalDistribution(dimension.choices)
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def _in_memory(
    direction: Any, trials: Sequence[FrozenTrial], sampler: BaseSampler | None = None
) -> optuna.Study:
    study = optuna.create_study(direction=direction.name.lower(), sampler=sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study.add_trials(trials)
    return study
