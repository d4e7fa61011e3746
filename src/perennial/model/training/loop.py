"""The training loop: steps, evaluations and checkpoints, until a stop rule or the last step ends it."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields

import numpy as np
import tensorflow as tf

from perennial.base.config.training import TrainConfig
from perennial.base.devices import cluster
from perennial.base.errors import Failure, Interrupted, PerennialError
from perennial.base.processes import process
from perennial.model.evaluation.scoring import NonFinite, Scores
from perennial.model.models.model_folder import Description
from perennial.model.training import triggers
from perennial.model.training.checkpoints import Checkpoints
from perennial.model.training.distributed import LOST, Peers
from perennial.model.training.input import Input
from perennial.model.training.progress import Pace, Progress
from perennial.model.training.remote import FetchedCheckpoint
from perennial.model.training.tensorboard import Profile, Summaries
from perennial.model.training.train_step import METRICS, Phase, StepResults, Trainer
from perennial.model.training.training_history import EVALUATIONS, Evaluation, History, Row, TrainingState
from perennial.model.training.triggers import Length, StoppedBy, Triggers

log = logging.getLogger(__name__)
# Called after each evaluation, with what it stops the training by, if anything; its error ends the training.
Follower = Callable[[Evaluation, StoppedBy | None], None]


class Diverged(PerennialError):
    """A loss, gradient or weight is not finite; another try computes the same."""

    kind = Failure.REFUSED


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Records a training: curves, progress, summaries and profile; only the chief has one."""

    history: History
    progress: Progress
    summaries: Summaries
    profile: Profile

    @contextlib.contextmanager
    def resume(self, state: TrainingState) -> Iterator[None]:
        """Drop everything after the step of the state, and record while the block runs."""
        self.progress.resume(state.step, self.history.resume(state.step, state.evaluations))
        self.summaries.resume(state.step)
        self.profile.resume(state.step)
        try:
            with self.progress.bar:
                yield
            self.history.flush()
        finally:
            self.profile.stop()

    def add_steps(self, rows: Sequence[Row], pace: Pace) -> None:
        """Record some steps."""
        self.history.add_steps(rows)
        self.progress.add_steps(rows, pace)

    def add_evaluation(self, evaluation: Evaluation, pace: Pace) -> None:
        """Record an evaluation."""
        self.history.add_evaluation(evaluation)
        self.progress.add_evaluation(evaluation, pace)


class Evaluator:
    """Scores the weights of a trainer, and keeps the best ones with `train.keep: best`."""

    def __init__(
        self,
        trainer: Trainer,
        score: Callable[[int], Scores] | None,
        config: TrainConfig,
        length: Length,
        peers: Peers,
        kind: type[Evaluation],
    ) -> None:
        """`score(step)` scores the model on validation; None: no such split, and only the last step ends it."""
        self._trainer, self._score, self._config, self._kind = trainer, score, config, kind
        self._length, self._peers = length, peers
        weights = trainer.model.weights if config.keep == "best" else []
        self.best = [tf.Variable(tf.zeros_like(weight.value), name=weight.path) for weight in weights]

    @property
    def validates(self) -> bool:
        """Whether there is a validation split."""
        return self._score is not None

    def epoch(self, state: TrainingState) -> int:
        """Epochs started."""
        return -(-state.step // self._length.steps_per_epoch)

    def evaluate(self, state: TrainingState) -> Evaluation:
        """Score the current weights, and keep them if they are the best."""
        with self._trainer.averages.swapped():
            new = self._kind(epoch=self.epoch(state), step=state.step, **self._scores(state.step))
            metric, scores = self._config.stop_metric, self._of_metric([*state.evaluations, new])
            if triggers.best(metric, scores) == len(scores) - 1:
                state.best_step = state.step
                for kept, weight in zip(self.best, self._trainer.model.weights, strict=False):
                    kept.assign(weight.value)
        return new

    def decide(self, state: TrainingState) -> None:
        """Decide from the evaluations so far whether to stop."""
        limit = self._length.limit if state.step == self._length.steps else None
        if not self.validates or not self._length.steps:
            state.stopped_by = limit
            return
        of_head = sum(each.step <= self._config.head.steps for each in state.evaluations)
        scores = self._of_metric(state.evaluations)
        state.stopped_by = triggers.stopped_by(self._config, scores, of_head=of_head, limit=limit)

    def final_weights(self) -> contextlib.AbstractContextManager[None]:
        """Assign the final weights to the model: the last or the best, averaged if configured."""
        if not self.best:
            return self._trainer.averages.swapped()
        for weight, kept in zip(self._trainer.model.weights, self.best, strict=True):
            weight.assign(kept)
        return contextlib.nullcontext()

    def _of_metric(self, evaluations: Sequence[Evaluation]) -> list[float]:
        return [getattr(each, self._config.stop_metric) for each in evaluations]

    def _scores(self, step: int) -> dict[str, float]:
        """The scores as the chief computes them; others may round."""
        found = dict.fromkeys([each.name for each in fields(self._kind)[2:]], 0.0)  # after epoch and step
        if self._peers.is_chief and self._score is not None:
            found = self._score(step).summary
        return dict(zip(found, self._peers.all_gather(*found.values())[0].tolist(), strict=True))


class Saver:
    """Saves and restores the variables and the state of a training."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        trainer: Trainer,
        evaluator: Evaluator,
        description: Description,
        fetched: FetchedCheckpoint | None = None,
    ) -> None:
        """`description` is stored in checkpoints for their readers; `fetched` came from another machine."""
        self.checkpoints, self._trainer, self._description = checkpoints, trainer, description
        self._fetched = fetched
        self._variables: dict[str, Sequence[tf.Variable]] = {**trainer.variables, "best": evaluator.best}
        self.step, self._time = 0, time.monotonic()  # the last save

    @property
    def seconds(self) -> float:
        """Seconds since the last save."""
        return time.monotonic() - self._time

    def resume(self) -> TrainingState:
        """Restore the newest valid checkpoint and return its state; without one, the state of step 0."""
        found = self.checkpoints.restore(self._variables)
        state = TrainingState()
        if found is not None:
            kind = EVALUATIONS[self._description.task]
            evaluations = [kind(**evaluation) for evaluation in found.facts["evaluations"]]
            facts = {name: found.facts[name] for name in ("best_step", "stopped_by")}
            state = TrainingState(step=found.step, evaluations=evaluations, **facts)
            finished = ", where it had finished" if state.stopped_by else ""
            fetched = self._fetched
            source = f", which was fetched from {fetched.url}" if fetched and fetched.step == state.step else ""
            log.info("resumed from step %d%s%s", state.step, finished, source)
        self.step = state.step
        return state

    def save(self, state: TrainingState, *, writes: bool) -> None:
        """Write a checkpoint, unless this step has one; Diverged: a weight is not finite."""
        if writes and state.step != self.step:
            sums = {weight.path: tf.reduce_sum(weight.value) for weight in self._trainer.model.weights}
            self.require_finite(state.step, [name for name, total in sums.items() if not np.isfinite(total)])
            facts = {**asdict(state), "model": self._description.model_dump(mode="json")}
            self.checkpoints.save(state.step, self._variables, facts)
        self.step, self._time = state.step, time.monotonic()

    def require_finite(self, step: int, non_finite: Sequence[str]) -> None:
        """Raise if a tensor holds NaN or infinity; `non_finite` names such tensors, the cause first."""
        if not non_finite:
            return
        self.checkpoints.wait()
        newest = self.checkpoints.newest_step
        kept = "no checkpoint" if newest is None else f"the checkpoint of step {newest}, the last good one,"
        first, others = non_finite[0], len(non_finite) - 1
        raise Diverged(
            f"the {first} {'are' if first.startswith('logits') else 'is'} NaN or infinite at step {step}"
            + (f" (and {others} other tensors after it)" if others else "")
            + f"; no model was written, {kept} was kept; lower train.learning_rate, or set train.clip_norm"
        )


@dataclass
class Loop:
    """A training in progress."""

    trainer: Trainer
    input: Input
    triggers: Triggers
    evaluator: Evaluator
    saver: Saver
    recorder: Recorder | None  # of the chief
    peers: Peers
    follower: Follower | None = None
    pace: Pace = field(default_factory=Pace)
    _consistent: bool = True  # whether variables and state belong to the same step
    _iterator: tf.data.Iterator | None = None
    _phase: Phase | None = None  # the phase of the iterator

    def run(self) -> TrainingState:
        """Train until a stop rule or the last step; returns the last state, evaluated if there is a split."""
        state = self.saver.resume()
        self.peers.require_same(state.step, self.saver.checkpoints.folder.name)
        for each in state.evaluations:  # a training that was killed may not have told of its last ones
            self._follow(each, state.stopped_by if each.step == state.step else None)
        with self.recorder.resume(state) if self.recorder else contextlib.nullcontext():
            try:
                self._run(state)
            except process.Signalled as signalled:
                raise self._interrupted(state, str(signalled)) from None
            except LOST as error:
                if self.peers.worker is None:
                    raise
                lost = cluster.unreachable(self.peers.worker)
                raise self._interrupted(state, f"the loss of {lost}") from error
        return state

    def _run(self, state: TrainingState) -> None:
        while not state.stopped_by:
            step, saver = state.step, self.saver
            if self.recorder and self.recorder.summaries.due(step):
                self.recorder.summaries.write(step, self.trainer)
            elif self.triggers.evaluate(step) and not state.evaluated:
                if self.evaluator.validates:
                    self._evaluate(state)
                else:
                    self.evaluator.decide(state)
            elif self.triggers.save(step, saved=saver.step, seconds=saver.seconds):
                saver.save(state, writes=self.peers.is_chief)
            else:
                self.advance(state)
        self._save_and_wait(state)

    def advance(self, state: TrainingState) -> None:
        """Run the steps of one call, at most up to the next event."""
        step = state.step
        self.saver.checkpoints.check()
        self._begin_batches(step)
        end = self.triggers.next_event(step)
        steps = min(self.pace.steps_per_call, int(end) - step)
        # Compiling takes longer than a signal may wait, so a signal can interrupt the first step, and only that
        # one.
        held = process.signals_held() if self.trainer.is_compiled(step) else contextlib.nullcontext()
        with held:
            steps = int(self.peers.all_gather(steps).min())  # each worker has its own pace
            self._consistent = False
            results = self._call(step, steps)
            with process.signals_held():  # even after the first step: count and record it, or neither
                self._require_finite(results, step)
                state.step += steps
                if self.recorder:
                    self.recorder.add_steps(self._rows(results, step), self.pace)
                self._consistent = True

    def _begin_batches(self, step: int) -> None:
        """Begin the batches of a phase, of images or of features, at any step: after a resume, too."""
        phase = self.trainer.phase(step)
        if phase is not self._phase:
            self._iterator = None  # free what the previous phase kept
            features = phase.frozen.table(self.input) if phase.frozen else None
            self._iterator = self.input.iterator(self.trainer.strategy, *self.triggers.position(step), features)
            self._phase = phase

    def _call(self, step: int, steps: int) -> StepResults:
        profiled = self.recorder.profile.recording(step) if self.recorder else contextlib.nullcontext()
        started = time.monotonic()
        with self.input.naming_shards(), profiled:
            results = self.trainer.run(self._iterator, step, steps)
        seconds = time.monotonic() - started
        self.pace.add(steps=steps, examples=results.examples, seconds=seconds, waited_s=results.waited_s)
        return results

    def _rows(self, results: StepResults, first: int) -> list[Row]:
        return [
            Row(
                step=step + 1,
                learning_rate=self.trainer.logged_rate(step),
                **dict(zip(METRICS, metrics, strict=True)),
            )
            for step, metrics in enumerate(results.metrics.tolist(), first)
        ]

    def _require_finite(self, results: StepResults, step: int) -> None:
        finite = np.isfinite(results.sums)
        if self.trainer.may_overflow(step):
            finite = finite[:, :2]  # logits and loss
        if not finite.all():
            row = int(np.argmin(finite.all(axis=1)))
            bad = [name for name, good in zip(self.trainer.checked, finite[row], strict=False) if not good]
            self.saver.require_finite(step + row + 1, bad)

    def _evaluate(self, state: TrainingState) -> None:
        try:
            new = self.evaluator.evaluate(state)
        except NonFinite:
            self.saver.require_finite(state.step, ["logits on validation"])
            raise
        with process.signals_held():  # a checkpoint has both the evaluation and its decision, or neither
            state.evaluations.append(new)
            self.evaluator.decide(state)
            if self.recorder:
                self.recorder.add_evaluation(new, self.pace)
        self._follow(new, state.stopped_by)

    def _follow(self, evaluation: Evaluation, stopped_by: StoppedBy | None) -> None:
        if self.follower:
            self.follower(evaluation, stopped_by)

    def _save_and_wait(self, state: TrainingState) -> None:
        self.saver.save(state, writes=self.peers.is_chief)
        self.saver.checkpoints.wait()

    def _interrupted(self, state: TrainingState, cause: str) -> Interrupted:
        """Save the state if it is consistent, and return the error to raise."""
        self.trainer.averages.restore()
        if self._consistent:
            self._save_and_wait(state)
        saved = f"; saved at step {self.saver.checkpoints.newest_step or 0}" if self.peers.is_chief else ""
        again = "start all workers again" if self.peers.worker else "run it again"
        return Interrupted(f"{cause} ended the training{saved}; {again} to resume from there")
