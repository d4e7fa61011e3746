"""Which failures of a stage are tried again."""

import asyncio

import pytest
from prefect.states import Failed

from perennial.errors import ERRORS
from tasks.dvc import Refused, StageFailed
from tasks.stages import PASSING_CODES, may_pass


@pytest.mark.parametrize("code", sorted({error.exit_code for error in ERRORS}))
def test_only_what_may_pass_is_tried_again(code: int) -> None:
    state = Failed(data=StageFailed("train", code, "message"))
    assert asyncio.run(may_pass(None, None, state)) is (code in PASSING_CODES)


def test_wrong_parameters_data_and_models_are_never_tried_again() -> None:
    assert {2, 3, 4} & set(PASSING_CODES) == set()


def test_what_dvc_itself_refuses_is_never_tried_again() -> None:
    assert asyncio.run(may_pass(None, None, Failed(data=Refused("train", 1, "message")))) is False
