import pytest

from perennial.validation import drift


@pytest.mark.parametrize(
    ("before", "now", "distance", "where"),
    [
        ({"cat": 50, "dog": 50}, {"cat": 60, "dog": 40}, 0.10, "cat"),
        ({"cat": 500, "dog": 500}, {"cat": 40, "dog": 60}, 0.10, "cat"),
        ({"cat": 1, "dog": 2}, {"dog": 200, "cat": 100}, 0.0, "cat"),
        ({"cat": 10, "dog": 10}, {"cat": 10, "dog": 10, "owl": 5}, 0.20, "owl"),
        ({"cat": 10, "dog": 10, "owl": 5}, {"cat": 10, "dog": 10}, 0.20, "owl"),
        ({"cat": 7}, {"dog": 7}, 1.0, "cat"),
        ({"cat": 0}, {"cat": 3}, 1.0, "cat"),
        ({"cat": 0}, {"cat": 0}, 0.0, "cat"),
    ],
)
def test_labels_drift_by_the_share_that_one_class_won_or_lost(before, now, distance, where):
    assert drift.labels(now, before) == drift.Drift(distance, where)


@pytest.mark.parametrize(
    ("before", "now", "distance", "where"),
    [
        ([5, 5, 0], [5, 5, 0], 0.0, 0),
        ([6, 4, 0], [5, 5, 0], 0.10, 0),
        ([2, 2, 2, 2, 2, 0], [0, 2, 2, 2, 2, 2], 0.20, 0),
        ([10, 0, 0, 0], [0, 0, 0, 10], 1.0, 0),
        ([0, 0, 0], [0, 9, 0], 1.0, 1),
        ([10] * 8 + [0] * 2, [0] * 2 + [10] * 8, 0.25, 1),  # no bin moved by more than 0.125
        ([4, 6] * 4, [6, 4] * 4, 0.05, 0),
    ],
)
def test_brightness_drifts_by_the_share_that_passed_an_edge(before, now, distance, where):
    assert drift.brightness(now, before) == drift.Drift(distance, where)


def test_histograms_with_other_bins_are_refused():
    with pytest.raises(ValueError, match="zip"):
        drift.brightness([1, 2], [1, 2, 3])
