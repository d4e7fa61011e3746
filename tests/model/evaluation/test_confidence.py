"""The temperature that makes confidence mean what it says, and when it cannot be fitted."""

import logging

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from perennial.model.evaluation import confidence

CLASSES = 5


def drawn(examples: int, temperature: float, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits of a model that is too sure by this temperature, and labels as it says after it."""
    random = np.random.default_rng(seed)
    logits = (3 * temperature * random.normal(size=(examples, CLASSES))).astype(np.float32)
    cumulated = softmax(logits / temperature, axis=1).cumsum(axis=1)
    return logits, (random.random((examples, 1)) > cumulated).sum(axis=1)


def loss(logits: NDArray[np.float32], labels: NDArray[np.int64], temperature: float) -> float:
    found = log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return -float(found[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_is_the_one_by_which_a_model_is_too_sure(temperature: float) -> None:
    assert confidence.fit_temperature(*drawn(20_000, temperature)) == pytest.approx(temperature, rel=0.03)


def test_no_other_temperature_has_a_lower_loss() -> None:
    logits, labels = drawn(60, 2.0)
    fitted = confidence.fit_temperature(logits, labels)
    losses = [loss(logits, labels, fitted * factor) for factor in (0.98, 1, 1.02)]
    assert min(losses) == losses[1]


def test_the_order_of_the_sums_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = drawn(300, 1.7)
    fitted = confidence.fit_temperature(logits, labels)
    monkeypatch.setattr(confidence, "BLOCK", 7 * CLASSES)
    nudged = logits * (1 + np.random.default_rng(1).choice([-6e-8, 6e-8], logits.shape)).astype(np.float32)
    assert confidence.fit_temperature(nudged, labels) == fitted


def test_without_mistakes_the_temperature_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logits, _ = drawn(30, 1.0)
    assert confidence.fit_temperature(logits, logits.argmax(axis=1)) == 1
    assert "no mistake on 30 validation examples" in caplog.text


def test_a_model_that_is_always_wrong_gets_the_highest_temperature(caplog: pytest.LogCaptureFixture) -> None:
    logits, _ = drawn(30, 1.0)
    with caplog.at_level(logging.INFO):
        assert confidence.fit_temperature(logits, logits.argmin(axis=1)) == confidence.HIGHEST
    assert "the limit" in caplog.text
