"""What the benchmark of predictions prints, and what it does not time."""

import pytest

from benchmarks import predict


def test_a_command_that_leaves_photographs_out_is_not_timed() -> None:
    with pytest.raises(RuntimeError, match="gave 239 answers to 240 photographs"):
        predict.require_answers(239, 240)
    predict.require_answers(240, 240)
