"""What comes at which step of a training: a pure function of its length and of what was asked for."""

from dataclasses import dataclass

from perennial.training.stopping import Length


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps count updates done: the plan says what follows after that many."""

    length: Length
    epochs_between_evals: int
    steps_between_evals: int | None
    head_steps: int  # updates of the first phase
    interval_steps: int | None  # updates between two checkpoints

    def epoch(self, step: int) -> tuple[int, int]:
        """The epoch, from 0, that the next update belongs to, and the updates done in it."""
        return divmod(step, self.length.steps_per_epoch)

    def phase(self, step: int) -> int:
        """0 while only the head is trained, then 1."""
        return int(step >= self.head_steps)

    def evaluates(self, step: int) -> bool:
        """Whether an evaluation follows; it always does after the last update."""
        return step == self._next_evaluation(step - 1) if step else False

    def saves(self, step: int) -> bool:
        """Whether a checkpoint follows because of the step."""
        return bool(step and self.interval_steps and step % self.interval_steps == 0)

    def next_event(self, step: int) -> int:
        """The step at which the next thing happens: updates up to it can run in one go."""
        events = [
            self._next_evaluation(step),
            self.head_steps,
            step - step % self.interval_steps + self.interval_steps if self.interval_steps else 0,
        ]
        return min(event for event in events if event > step)

    def _next_evaluation(self, step: int) -> int:
        """The first step after `step` that an evaluation follows."""
        between = self.steps_between_evals or self.epochs_between_evals * self.length.steps_per_epoch
        return min(step - step % between + between, self.length.steps)
