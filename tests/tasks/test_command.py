"""A flow as a command."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.parameters import change_params

from perennial.config import Config
from tasks.command import check_parameters
from tasks.dvc import StageFailed


@pytest.fixture(autouse=True)
def unchecked() -> None:
    """A process that has not checked its parameters."""
    check_parameters.cache_clear()


def test_all_that_is_wrong_with_the_parameters_is_told(workspace: Path) -> None:
    change_params(workspace / "params.yaml", {"train.epochs": -1, "train.stop_treshold": 0.9})
    with pytest.raises(StageFailed) as failed:
        check_parameters()
    assert failed.value.exit_code == 2
    assert [name in failed.value.message for name in ("epochs", "stop_treshold")] == [True, True]


def test_parameters_are_checked_once_in_a_process(load: Callable[..., Config], workspace: Path) -> None:
    check_parameters()
    (workspace / "params.yaml").unlink()
    check_parameters()
