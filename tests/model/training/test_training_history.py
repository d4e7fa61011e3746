"""The record of every step, each once, whatever was killed in between."""

import csv

import pytest

from perennial.model.training.training_history import EVALUATIONS, History, Row


def row(step):
    return Row(step=step, loss=1 / step, total_loss=2 / step, learning_rate=0.1, train_accuracy=1 - 1 / step)


def evaluation(step):
    return EVALUATIONS["multiclass"](epoch=1, step=step, accuracy=0.5, loss=1.0, recall_at_5=0.9)


@pytest.fixture
def history(tmp_path):
    def make(steps=100):
        (tmp_path / "work").mkdir(exist_ok=True)
        return History(tmp_path / "work", tmp_path / "curves", EVALUATIONS["multiclass"], steps=steps)

    return make


def contents(tmp_path):
    files = [tmp_path / "work" / "steps.csv", *sorted((tmp_path / "curves").iterdir())]
    return {file.name: file.read_bytes() for file in files}


def write(made, first, last):
    for step in range(first, last + 1):
        made.add_steps([row(step)])
        if step % 10 == 0:
            made.add_evaluation(evaluation(step))


def test_a_training_that_was_killed_and_resumed_leaves_the_same_files(history, tmp_path):
    unbroken = history(steps=2500)
    unbroken.resume(0, [])
    write(unbroken, 1, 60)
    expected = contents(tmp_path)
    killed = history(steps=2500)
    killed.resume(0, [])
    write(killed, 1, 47)
    with (tmp_path / "work" / "steps.csv").open("a") as file:
        file.write("48,0.0")  # what the kill cut short
    resumed = history(steps=2500)
    resumed.resume(35, [evaluation(step) for step in (10, 20, 30)])
    write(resumed, 36, 60)
    assert contents(tmp_path) == expected


def test_a_curve_has_at_most_a_thousand_points_of_means(history, tmp_path):
    made = history(steps=2500)
    made.resume(0, [])
    made.add_steps([row(step) for step in range(1, 2501)])
    points = list(csv.DictReader((tmp_path / "curves" / "training.csv").read_text().splitlines()))
    assert len(points) == 833
    mean = (1 + 1 / 2 + 1 / 3) / 3
    assert float(points[0]["loss"]) == pytest.approx(mean)
    assert float(points[0]["train_accuracy"]) == pytest.approx(1 - mean)
