"""The training loop: updates, evaluations, checkpoints, and the rule that ends them."""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import tensorflow as tf

from perennial.config import Config
from perennial.errors import Interrupted
from perennial.evaluation.scoring import NonFinite, Scores
from perennial.models.saved import Description
from perennial.runtime import cluster, process
from perennial.runtime.cluster import Worker
from perennial.training import checkpoints, stopping
from perennial.training.agreement import LOST, Agreement
from perennial.training.checkpoints import Checkpoints
from perennial.training.history import Evaluation, History, Row
from perennial.training.input import Input
from perennial.training.pace import Pace
from perennial.training.plan import Plan
from perennial.training.progress import Progress
from perennial.training.stopping import StoppedBy
from perennial.training.summaries import Summaries
from perennial.training.trainer import Steps, Trainer

log = logging.getLogger(__name__)


@dataclass
class State:
    """How far a training is, apart from its variables."""

    step: int = 0  # updates done
    evaluations: list[Evaluation] = field(default_factory=list)
    best_step: int | None = None  # of the evaluation with the best stop_metric
    stopped_by: StoppedBy | None = None

    @property
    def evaluated(self) -> bool:
        """Whether the weights as they are have been evaluated."""
        return bool(self.evaluations) and self.evaluations[-1].step == self.step


@dataclass(kw_only=True)
class Run:
    """A training under way: what it works with, and what it does at each step."""

    config: Config
    trainer: Trainer
    plan: Plan
    input: Input
    score: Callable[[], Scores]  # of the model as it is, on validation
    folder: Path  # of the checkpoints
    checkpoints: Checkpoints
    history: History
    progress: Progress
    summaries: Summaries
    worker: Worker | None
    description: Description  # of the model, for readers of a checkpoint

    def __post_init__(self) -> None:
        keeps_best = self.config.train.keep == "best"
        weights = self.trainer.model.weights if keeps_best else []
        self.best = [tf.Variable(tf.zeros_like(weight.value), name=weight.path) for weight in weights]
        self.pace = Pace()
        self.agreement = Agreement(self.trainer.strategy, self.worker)
        self.whole = True  # whether variables and State belong to the same step
        self._iterator: tf.data.Iterator | None = None
        self._saved_at, self._saved_step = time.monotonic(), 0

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return self.worker is None or self.worker.is_chief

    @property
    def variables(self) -> dict[str, Sequence[tf.Variable]]:
        """All that a checkpoint holds."""
        return {**self.trainer.state, "best": self.best}

    @property
    def last_saved(self) -> int | None:
        """The step of the newest checkpoint."""
        return max(checkpoints.steps(self.folder), default=None)

    def resume(self) -> State:
        """The state of the newest sound checkpoint, or that of a beginning."""
        found = self.checkpoints.restore(self.variables)
        state = State()
        if found is not None:
            state = State(
                step=found.step,
                evaluations=[Evaluation(**evaluation) for evaluation in found.facts["evaluations"]],
                best_step=found.facts["best_step"],
                stopped_by=found.facts["stopped_by"],
            )
            log.info("resumed from step %d%s", state.step, ", where it had ended" if state.stopped_by else "")
            if self.config.train.warm_start.path or self.config.model.imagenet_weights:
                log.info(
                    "train.warm_start and model.imagenet_weights are ignored: "
                    "this training has a checkpoint of its own"
                )
        self._saved_step = state.step
        self.agreement.require_same(state.step, self.folder.name)
        if self.writes:
            self.progress.replay(self.history.resume(state.step, state.evaluations), state.evaluations)
            self.progress.profile.resume(state.step)
            self.summaries.resume(state.step)
        return state

    def save(self, state: State, *, wait: bool = False) -> None:
        """Writes a checkpoint, unless this step has one already."""
        if self.writes and state.step != self._saved_step:
            sums = {weight.path: tf.reduce_sum(weight.value) for weight in self.trainer.model.weights}
            self._refuse(state.step, [name for name, total in sums.items() if not np.isfinite(total)])
            facts = {**asdict(state), "model": self.description.model_dump(mode="json")}
            self.checkpoints.save(state.step, self.variables, facts)
        if wait:
            self.checkpoints.wait()
        self._saved_at, self._saved_step = time.monotonic(), state.step

    def save_is_due(self, step: int) -> bool:
        """Whether it is time for a checkpoint, by steps, by the clock or before another phase."""
        if step == self._saved_step:
            return False
        interval_s = self.config.checkpoints.interval_s
        by_clock = interval_s is not None and time.monotonic() - self._saved_at >= interval_s
        return by_clock or self.plan.saves(step) or step == self.plan.head_steps > 0

    def evaluate(self, state: State) -> None:
        """Scores the weights as they are, keeps them if they are the best, and decides whether that was all."""
        train = self.config.train
        with self.trainer.averages.swapped():
            accuracy, loss, recall_at_5 = self._scores(state.step)
            new = Evaluation(
                epoch=-(-state.step // self.plan.length.steps_per_epoch),
                step=state.step,
                accuracy=accuracy,
                loss=loss,
                recall_at_5=recall_at_5,
            )
            every = [*state.evaluations, new]
            values = [getattr(each, train.stop_metric) for each in every]
            if stopping.best(train.stop_metric, values) == len(values) - 1:
                state.best_step = state.step
                for kept, weight in zip(self.best, self.trainer.model.weights, strict=False):
                    kept.assign(weight.value)
        length = self.plan.length
        limit = length.limit if state.step == length.steps else None
        of_head = sum(each.step <= self.plan.head_steps for each in every)
        with process.signals_held():  # a checkpoint has an evaluation and what it decided, or neither
            state.evaluations.append(new)
            state.stopped_by = stopping.decide(train, values, of_head=of_head, limit=limit)
            if self.writes:
                self.history.evaluation(new)
                self.progress.evaluation(new, self.pace)

    def _scores(self, step: int) -> list[float]:
        """Accuracy, loss and recall at 5, as the chief finds them: others' last digits may differ."""
        found = (0.0, 0.0, 0.0)
        if self.writes:
            try:
                scores = self.score()
            except NonFinite:
                self._refuse(step, ["logits on validation"])
                raise
            found = scores.accuracy, scores.loss, scores.recall_at_5
        chiefs: list[float] = self.agreement.told(*found)[0].tolist()
        return chiefs

    def final_weights(self) -> contextlib.AbstractContextManager[None]:
        """Gives the model the run's weights: the last or the best, averaged where averages are kept."""
        if not self.best:
            return self.trainer.averages.swapped()
        for weight, kept in zip(self.trainer.model.weights, self.best, strict=True):
            weight.assign(kept)
        return contextlib.nullcontext()

    def advance(self, state: State) -> None:
        """Runs some updates: as many as one call should, up to the next thing that happens."""
        step = state.step
        self.checkpoints.check()
        if self._iterator is None:
            self._iterator = self.input.iterator(self.trainer.strategy, *self.plan.epoch(step))
        stops = [*self.summaries.stops(step), *self.progress.profile.stops(step)]
        steps = min(self.pace.steps_a_call, *(stop - step for stop in (self.plan.next_event(step), *stops)))
        # Compiling takes longer than a signal may wait; what it interrupts there is only the first update.
        held = process.signals_held() if self.trainer.is_compiled(step) else contextlib.nullcontext()
        with held:
            steps = int(self.agreement.told(steps).min())  # each worker has a pace of its own
            self.whole = False
            self.pace.start()
            profiled = self.progress.profile.watching(step) if self.writes else contextlib.nullcontext()
            with self.input.naming_shards(), profiled:
                result = self.trainer.run(self._iterator, step, steps)
            self.pace.done(steps=steps, examples=result.examples, waited_s=result.waited_s)
            self._refuse_non_finite(result, step)
            state.step += steps
            if self.writes:
                rows = self._rows(result, step)
                self.history.steps(rows)
                self.progress.steps(rows, self.pace, examples=result.examples)
            self.whole = True

    def interrupted(self, state: State, cause: str) -> Interrupted:
        """Saves what is whole; the error to end with."""
        self.trainer.averages.restore()
        if self.whole:
            self.save(state, wait=True)
        saved = f"; saved at step {self.last_saved or 0}" if self.writes else ""
        again = "start all workers again" if self.worker else "run it again"
        return Interrupted(f"{cause} ended the training{saved}; {again} to resume from there")

    def _rows(self, result: Steps, step: int) -> list[Row]:
        return [
            Row(
                step=step + index + 1,
                loss=float(loss),
                total_loss=float(total),
                learning_rate=self.trainer.learning_rate(step + index),
            )
            for index, (loss, total) in enumerate(zip(result.loss, result.total_loss, strict=True))
        ]

    def _refuse_non_finite(self, result: Steps, step: int) -> None:
        finite = np.isfinite(result.sums)
        if self.trainer.may_overflow(step):
            finite = finite[:, :2]  # of logits and loss
        if not finite.all():
            row = int(np.argmin(finite.all(axis=1)))
            bad = [name for name, good in zip(self.trainer.watched, finite[row], strict=False) if not good]
            self._refuse(step + row + 1, bad)

    def _refuse(self, step: int, tensors: Sequence[str]) -> None:
        self.checkpoints.wait()
        stopping.refuse_non_finite(step, tensors, last_good=self.last_saved)


def fit(run: Run) -> State:
    """Trains until the stop rule or the last step; the last weights are always evaluated.

    Raises:
        PerennialError: a loss, logit or gradient is not finite, or a checkpoint cannot be written.
        Interrupted: a signal came, and all updates done are saved; or another worker was lost.
    """
    state = run.resume()
    try:
        while not state.stopped_by:
            if run.writes and run.summaries.due(state.step):
                run.summaries.write(state.step, run.trainer)
            elif run.plan.evaluates(state.step) and not state.evaluated:
                run.evaluate(state)
            elif run.save_is_due(state.step):
                run.save(state)
            else:
                run.advance(state)
        run.save(state, wait=True)
    except process.Signalled as signalled:
        raise run.interrupted(state, str(signalled)) from None
    except LOST as error:
        if run.worker is None:
            raise
        raise run.interrupted(state, f"the loss of {cluster.unreachable(run.worker)}") from error
    return state
