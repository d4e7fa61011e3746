import io

import pytest
from data.validation.reports import problem, report
from rich.console import Console

from perennial.data.validation.terminal import ASCII_LEVELS, LEVELS, bars, show


def lines(report, encoding="utf-8", **options):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    show(report, Console(file=stream, width=80, **options))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding).splitlines()


PER_CLASS = {"validation": [15, 15], "train": [2500, 1250, 1250], "test": []}
SPLITS = {split: {"examples": sum(counts), "per_class": counts} for split, counts in PER_CLASS.items()}
VALID = report(
    mean=33.333, channel_mean=[33.333], channel_std=[1], splits=SPLITS, duplicates={"across_splits": 2}
)


def test_a_valid_report_lists_its_splits():
    assert lines(VALID) == [
        "The data are valid: no problems",
        "train                 5,000 examples  █▅▅  1,250 to 2,500 a class",
        "validation               30 examples  ██  15 to 15 a class",
        "test                      0 examples  ",
        "height          28 pixels",
        "width           20 to 28 pixels",
        "mean value      33.33",
        "mean by channel 33.33",
        "deviation       1.00",
        "bytes           1,234",
        "duplicates      across splits 2",
    ]


def test_each_code_is_listed_once_with_its_first_problem():
    problems = [
        problem("near_duplicate", "warn", record=None),
        problem("data_crc", record=7, message="first"),
        problem("data_crc", record=9, message="[bold]\x1b[2J"),
        problem("schema", record=None, message="[bold]\x1b[2J"),
    ]
    found = lines(report(problems, {"data_crc": 1200, "near_duplicate": 1, "schema": 2}))
    assert (found[0], found[-3:]) == (
        "The data are not valid: 1,202 errors, 1 warnings",
        [
            "  1,200 data_crc  train.tfrecord record 7: first",
            "      2 schema  train.tfrecord: [bold]\\x1b[2J",
            "      1 near_duplicate  train.tfrecord: it is wrong",
        ],
    )


def test_the_longest_report_fits_on_a_screen():
    problems = [problem(f"kind_{number}", record=number, message="long " * 40) for number in range(30)]
    facts = {"channels": [1, 3], "channel_mean": [1.0] * 3, "channel_std": [1.0] * 3, "bytes": 10**12}
    much = {"drift": {f"part_{number}": 5 for number in range(30)}}
    found = lines(report(problems, **VALID["statistics"] | facts | much))
    assert len(found) <= 24
    assert max(map(len, found)) == 80


def test_a_terminal_without_unicode_gets_ascii():
    assert lines(VALID, "ascii")[1] == "train                 5,000 examples  @++  1,250 to 2,500 a class"


@pytest.mark.parametrize(
    ("per_class", "levels", "shown"),
    [
        ([], LEVELS, ""),
        ([0, 0], LEVELS, "  "),
        ([8, 0, 1, 4], LEVELS, "█ ▂▅"),
        ([9, 5], ASCII_LEVELS, "@+"),
        ([5] * 1000 + [0] + [5] * 23, LEVELS, "█" * 31 + " "),
    ],
)
def test_a_bar_is_as_high_as_its_class_and_shows_the_smallest_where_it_stands_for_several(
    per_class, levels, shown
):
    assert bars(per_class, levels) == shown
