import pytest

from perennial.records import drift


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
    assert drift.labels(now, before) == drift.Drift(distance=distance, where=where)


@pytest.mark.parametrize(
    ("before", "now", "distance", "where"),
    [
        ([5, 5, 0], [5, 5, 0], 0.0, 0),
        ([6, 4, 0], [5, 5, 0], 0.10, 0),
        ([2, 2, 2, 2, 2, 0], [0, 2, 2, 2, 2, 2], 0.20, 0),
        ([10, 0, 0, 0], [0, 0, 0, 10], 1.0, 0),
        ([0, 0, 0], [0, 9, 0], 1.0, 1),
    ],
)
def test_brightness_drifts_by_the_share_that_passed_an_edge(before, now, distance, where):
    assert drift.brightness(now, before) == drift.Drift(distance=distance, where=where)


def test_a_shift_of_a_broad_histogram_shows_in_the_cumulative_one_only():
    before, now = [10] * 8 + [0] * 2, [0] * 2 + [10] * 8
    spiky, shifted = [4, 6] * 4, [6, 4] * 4
    cumulative = [
        drift.largest_difference(*pair, cumulative=True)[0] for pair in ((now, before), (shifted, spiky))
    ]
    single = [drift.largest_difference(*pair)[0] for pair in ((now, before), (shifted, spiky))]
    assert (cumulative, single) == ([0.25, 0.05], [0.125, 0.05])


def test_histograms_with_other_bins_are_refused():
    with pytest.raises(ValueError, match="2 and 3 bins"):
        drift.brightness([1, 2], [1, 2, 3])
