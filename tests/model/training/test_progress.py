"""What a person sees of a training: lines in the log and curves in TensorBoard."""

import logging
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from perennial.base import documents
from perennial.model.training import progress
from perennial.model.training.progress import FILE, MAX_STEPS, WARM_UP_STEPS, Pace, Progress
from perennial.model.training.training_history import EVALUATIONS, Row
from perennial.model.training.triggers import Length

LENGTH = Length(steps=100, steps_per_epoch=50, limit="steps")
EVALUATION = EVALUATIONS["multiclass"](epoch=1, step=50, accuracy=0.5, loss=1.25, recall_at_5=0.75)


def rows(first: int, last: int) -> list[Row]:
    return [Row(step=n, loss=1 / n, total_loss=2 / n, learning_rate=0.1) for n in range(first, last + 1)]


class Training:
    """Calls of so many updates with 8 examples each, as the loop reports them."""

    def __init__(self, shown: Progress) -> None:
        self.shown, self.pace, self.step = shown, Pace(), 0

    def call(self, steps: int, *, seconds: float = 0) -> None:
        time.sleep(seconds)
        self.pace.add(steps=steps, examples=8 * steps, seconds=seconds or 0.001, waited_s=0)
        self.shown.add_steps(rows(self.step + 1, self.step + steps), self.pace)
        self.step += steps


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The progress of a training that has just begun, with a point of the curves each 10 updates."""

    def build(line_every_s: float = 3600) -> Progress:
        monkeypatch.setattr(progress, "LINE_EVERY_S", line_every_s)
        return Progress(LENGTH, tmp_path / "logs", tmp_path / FILE, every_steps=10, task="multiclass")

    return build


@pytest.fixture
def run(opened) -> Training:
    shown = opened()
    shown.resume(0)
    return Training(shown)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, progress.__name__)
    return lambda: [record.getMessage() for record in caplog.records]


def curve(folder: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values that TensorBoard shows, to five digits."""
    found = EventAccumulator(str(folder / "logs")).Reload()
    if name not in found.Tags()["scalars"]:
        return []
    return [(event.step, float(f"{event.value:.5g}")) for event in found.Scalars(name)]


class TestCurves:
    def test_have_a_point_each_so_many_updates_however_many_a_call_runs(self, run, tmp_path) -> None:
        for steps in (1, 8, 17, 4):
            run.call(steps)
        assert curve(tmp_path, "train/loss") == [(10, 0.1), (20, 0.05), (30, 0.033333)]
        assert curve(tmp_path, "train/total_loss") == [(10, 0.2), (20, 0.1), (30, 0.066667)]
        assert curve(tmp_path, "train/learning_rate") == [(10, 0.1), (20, 0.1), (30, 0.1)]

    def test_have_moving_averages_of_the_losses_that_a_resume_keeps(self, run, opened, tmp_path) -> None:
        run.call(20)
        average, expected = 1.0, []
        for step in range(1, 31):
            average += 0.1 * (1 / step - average)
            expected.append(float(f"{average:.5g}"))
        resumed = Training(opened())
        resumed.step = 15
        resumed.shown.resume(15, rows(1, 15))
        resumed.call(15)
        found = curve(tmp_path, "train/smoothed_loss")
        assert found == [(step, pytest.approx(expected[step - 1], rel=1e-4)) for step in (10, 20, 30)]

    def test_have_the_scores_of_evaluations(self, run: Training, tmp_path: Path) -> None:
        run.shown.add_evaluation(EVALUATION, run.pace)
        assert curve(tmp_path, "validation/accuracy") == [(50, 0.5)]
        assert curve(tmp_path, "validation/loss") == [(50, 1.25)]
        assert curve(tmp_path, "validation/recall_at_5") == [(50, 0.75)]

    def test_have_each_step_once_after_a_resume(self, run: Training, opened, tmp_path: Path) -> None:
        run.call(60)
        run.shown.add_evaluation(EVALUATION, run.pace)
        resumed = Training(opened())
        resumed.step = 55
        resumed.shown.resume(55)
        resumed.call(20)
        assert [step for step, _ in curve(tmp_path, "train/loss")] == [10, 20, 30, 40, 50, 60, 70]
        assert curve(tmp_path, "validation/loss") == [(50, 1.25)]

    def test_have_the_speed_now_and_on_average_after_the_warm_up(self, run: Training, tmp_path: Path) -> None:
        names = ("train/current_examples_per_second", "train/average_examples_per_second", "train/input_wait")
        run.call(10)
        assert [curve(tmp_path, name) for name in names] == [[], [], []]
        for _ in range(2):
            run.call(10)
        assert [[step for step, _ in curve(tmp_path, name)] for name in names] == [[20, 30]] * 3

    def test_have_a_current_speed_that_is_of_the_updates_since_the_last(self, run, tmp_path) -> None:
        for seconds in (0.0, 0.1, 0.4):
            run.call(10, seconds=seconds)
        (_, _), (_, current) = curve(tmp_path, "train/current_examples_per_second")
        (_, _), (_, average) = curve(tmp_path, "train/average_examples_per_second")
        assert current <= 80 / 0.4 < average <= 160 / 0.5


class TestLinesWithoutATerminal:
    def test_begin_with_the_first_point_of_the_curves(self, run: Training, lines) -> None:
        run.call(WARM_UP_STEPS - 1)
        assert lines() == []
        run.call(11 - WARM_UP_STEPS)
        assert lines() == ["step 10 of 100: training loss 0.1000"]

    @pytest.mark.parametrize(("every_s", "steps"), [(0, [10, 20, 30]), (3600, [10])])
    def test_come_with_points_of_the_curves_but_not_too_often(self, opened, lines, every_s, steps) -> None:
        run = Training(opened(every_s))
        run.shown.resume(0)
        for _ in range(15):
            run.call(2)
        assert [line.partition(":")[0] for line in lines()] == [f"step {n} of 100" for n in steps]

    def test_tell_the_speed_after_the_warm_up(self, run: Training, lines) -> None:
        run.call(WARM_UP_STEPS)
        run.call(5)
        (line,) = lines()
        assert line.startswith("step 10 of 100: training loss 0.1000, ")
        assert " examples/s, " in line
        assert line.endswith(" s per step")

    def test_tell_of_an_evaluation_the_speed_and_the_seconds_per_step(self, run: Training, lines) -> None:
        for _ in range(WARM_UP_STEPS + 2):
            run.call(1)
        run.shown.add_evaluation(EVALUATION, run.pace)
        assert lines()[-1].endswith(", 8,000 examples/s, 0.001 s per step, 0% waiting for input")

    def test_tell_of_an_evaluation_the_mean_loss_since_the_one_before(self, run: Training, lines) -> None:
        run.call(2)
        run.shown.add_evaluation(EVALUATION, run.pace)
        assert lines() == [
            "epoch 1 of 2, step 50: training loss 0.7500, validation accuracy 0.5000, validation loss 1.2500"
        ]


def paced(*calls: tuple[int, float]) -> Pace:
    """A pace after calls of so many steps that took so many seconds each, 10 examples a step."""
    made = Pace()
    for steps, seconds in calls:
        made.add(steps=steps, examples=10 * steps, seconds=seconds, waited_s=seconds / 4)
    return made


WARM_UP = [(1, 9.0)] * WARM_UP_STEPS


class TestPace:
    def test_a_call_runs_one_step_until_the_speed_is_known(self) -> None:
        assert paced().steps_per_call == paced(*WARM_UP).steps_per_call == 1

    @pytest.mark.parametrize(("step_s", "steps"), [(0.125, 4), (1 / 128, 64), (2.0, 1), (1e-6, MAX_STEPS)])
    def test_a_call_takes_half_a_second_or_one_step(self, step_s: float, steps: int) -> None:
        assert paced(*WARM_UP, (1, step_s)).steps_per_call == steps

    def test_calls_get_shorter_when_the_training_slows_down(self) -> None:
        assert paced(*WARM_UP, (1, 0.01), (50, 25.0)).steps_per_call == 1

    def test_speeds_exclude_the_warm_up(self) -> None:
        made = paced(*WARM_UP, (1, 0.5), (4, 0.5))
        assert (made.examples_per_second, made.input_wait) == (50, 0.25)
        made = paced(*WARM_UP)
        assert (made.examples_per_second, made.input_wait) == (None, None)


class TestTheFile:
    """Flows show it while the training runs."""

    @pytest.fixture
    def written(self, tmp_path: Path):
        return lambda: documents.read_json(tmp_path / FILE)

    def test_has_the_place_of_the_last_step(self, run: Training, written) -> None:
        run.call(1)
        unknown = {"accuracy": None, "examples_per_second": None, "seconds_left": None}
        assert written() == {"epoch": 1, "epochs": 2, "step": 1, "steps": 100, **unknown}

    def test_has_speed_and_time_left_after_the_warm_up_and_the_last_accuracy(self, run, written) -> None:
        for _ in range(6):
            run.call(10)
        run.shown.add_evaluation(EVALUATION, run.pace)
        found = written()
        assert (found["epoch"], found["step"], found["accuracy"]) == (1, 50, 0.5)
        assert found["seconds_left"] == pytest.approx(50 * 0.001 / 10)
        assert found["examples_per_second"] == pytest.approx(8 * 10 / 0.001)

    def test_that_cannot_be_written_ends_no_training(self, run: Training, tmp_path: Path) -> None:
        (tmp_path / FILE).mkdir()
        run.call(10)
