"""What the benchmark of predictions prints, and what it does not time."""

import pytest

from benchmarks import predict

RUN = {
    "images_per_second": 100.0,
    "processor_s_per_image": 0.02,
    "import_s": 4.0,
    "load_s": 1.0,
    "first_answer_s": 1.5,
}


def test_the_first_answer_stands_beside_its_target(capsys) -> None:
    predict.show("a case", {"measured": {"perennial": [RUN]}, "median_ratio": 0.95, "command_s": [9.0]})
    _, _, columns, ours, _ = capsys.readouterr().out.splitlines()
    assert "first s      target s" in columns
    assert ours.split()[5:7] == ["1.5", f"{predict.FIRST_ANSWER_S:.1f}"]


def test_a_command_that_leaves_photographs_out_is_not_timed() -> None:
    with pytest.raises(RuntimeError, match="gave 239 answers to 240 photographs"):
        predict.require_answers(239, 240)
    predict.require_answers(240, 240)
