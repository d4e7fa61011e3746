import io

import pytest
from rich.console import Console

from perennial.validation.terminal import ASCII_LEVELS, LEVELS, Summary, bars


def problem(code, severity="error", record=None, message="it is wrong"):
    return {
        "code": code,
        "severity": severity,
        "file": "a.tfrecord",
        "record": record,
        "offset": None,
        "message": message,
    }


def lines(report, encoding="utf-8", **options):
    stream = io.TextIOWrapper(io.BytesIO(), encoding)
    Console(file=stream, width=80, **options).print(Summary(report))
    stream.flush()
    return stream.buffer.getvalue().decode(encoding).splitlines()


SOUND = {
    "ok": True,
    "examples": {"test": 20, "train": 5000, "validation": 30},
    "problems": [],
    "statistics": {
        "height": [28, 28],
        "width": [28, 40],
        "mean": 33.333,
        "splits": {"train": {"examples": 5000, "per_class": [2500, 1250, 1250], "brightness": [1]}},
        "duplicates": {"across_splits": 2},
        "drift": None,
    },
}


def test_a_valid_report_lists_its_splits():
    assert lines(SOUND) == [
        "The data are valid: no problems",
        "train                 5,000 examples  █▅▅  1,250 to 2,500 a class",
        "validation               30 examples  ",
        "test                     20 examples  ",
        "height          28 pixels",
        "width           28 to 40 pixels",
        "mean value      33.33",
        "duplicates      across splits 2",
    ]


def test_each_code_is_listed_once_with_its_first_problem():
    problems = [
        problem("near_duplicate", "warn"),
        problem("data_crc", record=7, message="first"),
        problem("data_crc", record=9),
    ]
    report = {
        "ok": False,
        "examples": {},
        "problems": problems,
        "problem_counts": {"data_crc": 1200, "near_duplicate": 1},
    }
    assert lines(report) == [
        "The data are not valid: 1,200 errors, 1 warnings",
        "  1,200 data_crc  a.tfrecord record 7: first",
        "      1 near_duplicate  a.tfrecord: it is wrong",
    ]


def test_the_longest_report_fits_on_a_screen():
    problems = [problem(f"kind_{number}", record=number, message="long " * 40) for number in range(30)]
    facts = {"channels": [1, 3], "channel_mean": [1.0] * 3, "channel_std": [1.0] * 3, "bytes": 10**12}
    much = {"drift": {f"part_{number}": 0.5 for number in range(30)}}
    found = lines(
        {**SOUND, "ok": False, "problems": problems, "statistics": {**SOUND["statistics"], **facts, **much}}
    )
    assert len(found) <= 24
    assert max(map(len, found)) == 80


def test_a_report_without_statistics_is_shown():
    assert (
        lines({"ok": True, "examples": {"train": 5}, "problems": []})[1]
        == "train                     5 examples  "
    )


def test_brackets_and_escapes_are_shown_literally():
    report = {"ok": False, "examples": {}, "problems": [problem("schema", message="[bold]\x1b[2J")]}
    assert lines(report)[1] == "      1 schema  a.tfrecord: [bold]\\x1b[2J"


def test_a_terminal_without_unicode_gets_ascii():
    assert lines(SOUND, "ascii")[1] == "train                 5,000 examples  @++  1,250 to 2,500 a class"


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
