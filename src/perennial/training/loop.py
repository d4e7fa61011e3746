"""The training loop: steps, evaluations and checkpoints, until a rule or the last step stops it."""

import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import tensorflow as tf

from perennial.errors import Interrupted, PerennialError
from perennial.evaluation.scoring import NonFinite
from perennial.models.model_folder import Description
from perennial.runtime import cluster, process
from perennial.training.checkpoints import Checkpoints
from perennial.training.distributed import LOST, Peers
from perennial.training.evaluator import Evaluator
from perennial.training.history import Evaluation, History, Row, State
from perennial.training.input import Input
from perennial.training.progress import Pace, Progress
from perennial.training.tensorboard import Profile, Summaries
from perennial.training.train_step import METRICS, StepResults, Trainer
from perennial.training.triggers import Triggers

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Records a training: curves, progress, summaries and profile; only the chief has one."""

    history: History
    progress: Progress
    summaries: Summaries
    profile: Profile

    @contextlib.contextmanager
    def resume(self, state: State) -> Iterator[None]:
        """Drop everything after the step of the state, and record while the block runs."""
        self.history.resume(state.step, state.evaluations)
        self.progress.resume(state.step)
        self.summaries.resume(state.step)
        self.profile.resume(state.step)
        try:
            with self.progress:
                yield
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


class Saver:
    """Saves and restores the variables and the state of a training."""

    def __init__(
        self, checkpoints: Checkpoints, trainer: Trainer, evaluator: Evaluator, description: Description
    ) -> None:
        """The description of the model is for readers of a checkpoint."""
        self.checkpoints, self._trainer, self._description = checkpoints, trainer, description
        self._variables: dict[str, Sequence[tf.Variable]] = {**trainer.variables, "best": evaluator.best}
        self.step, self._time = 0, time.monotonic()  # of the last save

    @property
    def seconds(self) -> float:
        """Seconds since the last save."""
        return time.monotonic() - self._time

    def resume(self) -> State:
        """The state of the newest valid checkpoint, whose variables are restored; else that of step 0."""
        found = self.checkpoints.restore(self._variables)
        state = State()
        if found is not None:
            evaluations = [Evaluation(**evaluation) for evaluation in found.facts["evaluations"]]
            facts = {name: found.facts[name] for name in ("best_step", "stopped_by")}
            state = State(step=found.step, evaluations=evaluations, **facts)
            log.info(
                "resumed from step %d%s", state.step, ", where it had finished" if state.stopped_by else ""
            )
        self.step = state.step
        return state

    def save(self, state: State, *, writes: bool) -> None:
        """Write a checkpoint in the background, unless this step has one.

        Raises:
            PerennialError: a weight is not finite.
        """
        if writes and state.step != self.step:
            sums = {weight.path: tf.reduce_sum(weight.value) for weight in self._trainer.model.weights}
            self.require_finite(state.step, [name for name, total in sums.items() if not np.isfinite(total)])
            facts = {**asdict(state), "model": self._description.model_dump(mode="json")}
            self.checkpoints.save(state.step, self._variables, facts)
        self.step, self._time = state.step, time.monotonic()

    def require_finite(self, step: int, non_finite: Sequence[str]) -> None:
        """Refuse NaN and infinity; `non_finite` names the tensors that hold any, the cause first.

        Raises:
            PerennialError: there are any.
        """
        if not non_finite:
            return
        self.checkpoints.wait()
        newest = self.checkpoints.newest_step
        kept = "no checkpoint" if newest is None else f"the checkpoint of step {newest}, the last good one,"
        first, others = non_finite[0], len(non_finite) - 1
        raise PerennialError(
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
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        self._consistent = True  # whether variables and state belong to the same step
        self._iterator: tf.data.Iterator | None = None

    def run(self) -> State:
        """Train, from the newest checkpoint, until a rule or the last step stops it; returns the last state.

        The last weights are always evaluated.

        Raises:
            PerennialError: a loss, logit or gradient is not finite, or a checkpoint cannot be written.
            Interrupted: a signal came, and all steps done are saved; or another worker was lost.
        """
        state = self.saver.resume()
        self.peers.require_same(state.step, self.saver.checkpoints.folder.name)
        with self.recorder.resume(state) if self.recorder else contextlib.nullcontext():
            self._run(state)
        return state

    def _run(self, state: State) -> None:
        try:
            while not state.stopped_by:
                step, saver = state.step, self.saver
                if self.recorder and self.recorder.summaries.due(step):
                    self.recorder.summaries.write(step, self.trainer)
                elif self.triggers.evaluate(step) and not state.evaluated:
                    self._evaluate(state)
                elif self.triggers.save(step, saved=saver.step, seconds=saver.seconds):
                    self._save(state)
                else:
                    self.advance(state)
            self._save(state)
            self.saver.checkpoints.wait()
        except process.Signalled as signalled:
            raise self._interrupted(state, str(signalled)) from None
        except LOST as error:
            if self.peers.worker is None:
                raise
            raise self._interrupted(state, f"the loss of {cluster.unreachable(self.peers.worker)}") from error

    def advance(self, state: State) -> None:
        """Run some steps: as many as one call should, up to the next event."""
        step = state.step
        self.saver.checkpoints.check()
        if self._iterator is None:
            self._iterator = self.input.iterator(self.trainer.strategy, *self.triggers.epoch(step))
        steps = min(self.pace.steps_per_call, self.triggers.next_event(step) - step)
        # Compiling takes longer than a signal may wait; there, a signal interrupts the first step only.
        held = process.signals_held() if self.trainer.is_compiled(step) else contextlib.nullcontext()
        with held:
            steps = int(self.peers.all_gather(steps).min())  # each worker has its own pace
            self._consistent = False
            results = self._call(step, steps)
            self._require_finite(results, step)
            state.step += steps
            if self.recorder:
                self.recorder.add_steps(self._rows(results, step), self.pace)
            self._consistent = True

    def _call(self, step: int, steps: int) -> StepResults:
        profiled = self.recorder.profile.recording(step) if self.recorder else contextlib.nullcontext()
        started = time.monotonic()
        with self.input.naming_shards(), profiled:
            results = self.trainer.run(self._iterator, step, steps)
        seconds = time.monotonic() - started
        self.pace.add(steps=steps, examples=results.examples, seconds=seconds, waited_s=results.waited_s)
        return results

    def _rows(self, results: StepResults, step: int) -> list[Row]:
        return [
            Row(
                step=step + index + 1,
                learning_rate=self.trainer.learning_rate(step + index),
                **dict(zip(METRICS, map(float, row), strict=True)),
            )
            for index, row in enumerate(results.metrics)
        ]

    def _require_finite(self, results: StepResults, step: int) -> None:
        finite = np.isfinite(results.sums)
        if self.trainer.may_overflow(step):
            finite = finite[:, :2]  # of logits and loss
        if not finite.all():
            row = int(np.argmin(finite.all(axis=1)))
            bad = [name for name, good in zip(self.trainer.checked, finite[row], strict=False) if not good]
            self.saver.require_finite(step + row + 1, bad)

    def _evaluate(self, state: State) -> None:
        def note(evaluation: Evaluation) -> None:
            if self.recorder:
                self.recorder.add_evaluation(evaluation, self.pace)

        try:
            self.evaluator.evaluate(state, note)
        except NonFinite:
            self.saver.require_finite(state.step, ["logits on validation"])
            raise

    def _save(self, state: State) -> None:
        self.saver.save(state, writes=self.peers.is_chief)

    def _interrupted(self, state: State, cause: str) -> Interrupted:
        """Save the state if it is consistent; returns the error to raise."""
        self.trainer.averages.restore()
        if self._consistent:
            self._save(state)
            self.saver.checkpoints.wait()
        saved = f"; saved at step {self.saver.checkpoints.newest_step or 0}" if self.peers.is_chief else ""
        again = "start all workers again" if self.peers.worker else "run it again"
        return Interrupted(f"{cause} ended the training{saved}; {again} to resume from there")
