"""Trying again what may pass, with growing pauses, told in the log."""

import logging

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential, wait_random

from perennial.downloads import addresses, http
from perennial.downloads.failures import Failure, Passing
from perennial.downloads.http import Job

log = logging.getLogger(__name__)


class Retries:
    """The tries of one file at one address."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._received_bytes = job.partial.received_bytes
        self._fruitless = 0
        self.count = 0  # of tries after the first
        limits = job.limits
        self._backoff = wait_exponential(
            multiplier=limits.backoff_first_s, max=limits.backoff_most_s
        ) + wait_random(0, limits.backoff_first_s)

    def bring(self) -> None:
        """Brings the partial file to its end.

        Raises:
            Failure: of the last try; says how many there were.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(Passing),
            after=self._judge,
            wait=self._wait_s,
            stop=self._is_enough,
            before_sleep=self._tell,
            reraise=True,
        )
        try:
            retrying(http.bring, self._job)
        except Passing as failure:
            tries = "1 try" if not self.count else f"{self.count + 1} tries"
            raise Passing(f"{failure} ({tries})") from failure

    def _judge(self, _state: RetryCallState) -> None:
        """A bad line that brings something each time may need any number of tries."""
        received = self._job.partial.received_bytes
        fruitful = received - self._received_bytes >= self._job.limits.fruitful_bytes
        self._fruitless = 0 if fruitful else self._fruitless + 1
        self._received_bytes = received

    def _wait_s(self, state: RetryCallState) -> float:
        limits = self._job.limits
        asked_s = min(_failure(state).retry_after_s, limits.retry_after_most_s)
        return max(asked_s, self._backoff(state) if self._fruitless else limits.backoff_first_s)

    def _is_enough(self, state: RetryCallState) -> bool:
        return self._fruitless >= self._job.limits.tries or state.upcoming_sleep >= self._job.deadline.left_s()

    def _tell(self, state: RetryCallState) -> None:
        self.count += 1
        log.warning(
            "%s: %s; retry %d in %.1f s",
            addresses.public(self._job.url),
            _failure(state),
            self.count,
            state.upcoming_sleep,
        )


def _failure(state: RetryCallState) -> Failure:
    """What ended the last try."""
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, Failure) else Passing("unknown")
