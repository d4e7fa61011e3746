"""Parameters of evaluations."""

from collections.abc import Callable

import pytest

from perennial.base.config.release import EvaluateConfig


@pytest.fixture
def evaluation() -> Callable[..., EvaluateConfig]:
    """The section evaluate, with some values changed."""

    def change(**values: object) -> EvaluateConfig:
        usual = {
            "batch_size": 256, "devices": "auto", "calibration_bins": 15, "confidence_level": 0.95,
            "audit_fraction": 0.0, "calibrate": False, "max_error": None,
        }  # fmt: skip
        return EvaluateConfig.model_validate({**usual, **values})

    return change
