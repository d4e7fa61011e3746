"""How fast a training goes, and how many updates one call should run."""

import time

WARM_UP_STEPS = 5  # left out of speeds: they are compiled, and fill caches
CALL_S = 0.5  # enough to hide the cost of a call, short enough that a signal is heard soon
MOST_STEPS = 1000


class Pace:
    """Counts updates, examples and seconds of this process."""

    def __init__(self) -> None:
        self._warm_up_left = WARM_UP_STEPS
        self._steps, self._examples = 0, 0
        self._seconds, self._waited_s = 0.0, 0.0
        self._step_s: float | None = None
        self._started = 0.0

    def start(self) -> None:
        """Before a call."""
        self._started = time.monotonic()

    def done(self, *, steps: int, examples: int, waited_s: float) -> None:
        """After a call."""
        seconds = time.monotonic() - self._started
        if self._warm_up_left > 0:
            self._warm_up_left -= steps
            return
        self._step_s = seconds / steps
        self._steps, self._examples = self._steps + steps, self._examples + examples
        self._seconds, self._waited_s = self._seconds + seconds, self._waited_s + waited_s

    @property
    def steps_a_call(self) -> int:
        """Updates that the next call should run; single ones until the speed is known."""
        if self._step_s is None:
            return 1
        return max(1, min(MOST_STEPS, int(CALL_S / self._step_s)))

    @property
    def examples_per_second(self) -> float | None:
        """Over all updates after the warm-up; None before."""
        return self._examples / self._seconds if self._seconds else None

    @property
    def input_wait(self) -> float | None:
        """The share of the time in which updates waited for input, 0..1."""
        return self._waited_s / self._seconds if self._seconds else None
