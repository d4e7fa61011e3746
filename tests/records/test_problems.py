"""Every code that a problem can have: what gives it, where it is said to be, and how it is told."""

import pytest
from perennial.records.problems import Problem
from support.harm import HARM, OF_RECORDS, SHARD, offset

from perennial.images import Image
from perennial.records import checks, problems
from perennial.tfrecord import example


def codes(folder):
    return [problem.code for problem in checks.check(folder).problems]


def test_every_code_has_its_harm():
    assert list(HARM) == list(problems.CODES)


def test_no_code_is_both_of_the_format_and_a_matter_of_judgement():
    assert problems.CODES.keys() & problems.JUDGED_CODES.keys() == set()


@pytest.mark.parametrize("code", HARM)
def test_each_harm_is_found_under_its_code_alone(folder, code):
    HARM[code](folder)
    assert codes(folder) == [code]


@pytest.mark.parametrize("code", OF_RECORDS)
def test_a_harmed_record_is_told_with_file_number_and_offset(folder, code):
    place = offset(folder, 7)
    HARM[code](folder)
    (problem,) = checks.check(folder).problems
    assert (problem.file, problem.record, problem.offset) == (SHARD, 7, place)


@pytest.mark.parametrize("code", ["record_truncated", "length_crc"])
def test_what_follows_the_last_record_is_told_with_its_place(folder, code):
    end = offset(folder, 20)
    HARM[code](folder)
    (problem,) = checks.check(folder).problems
    assert (problem.file, problem.record, problem.offset) == (SHARD, 20, end)


@pytest.mark.parametrize("code", HARM)
def test_a_problem_of_the_format_is_an_error(folder, code):
    HARM[code](folder)
    assert [problem.severity for problem in checks.check(folder).problems] == ["error"]


@pytest.mark.parametrize("code", HARM)
def test_every_problem_is_counted(folder, code):
    HARM[code](folder)
    assert checks.check(folder).codes == {code: 1}


@pytest.mark.parametrize("code", HARM)
def test_the_same_harm_is_told_in_the_same_words(folder, code):
    HARM[code](folder)
    (problem,) = checks.check(folder).problems
    assert " at 0x" not in problem.message, "an address in memory differs from run to run"


def test_a_problem_is_told_with_its_place_and_code():
    problem = Problem(code="schema", file="a.tfrecord", record=3, offset=70, message="it is empty")
    assert str(problem) == "a.tfrecord record 3 at byte 70: it is empty [schema]"


def test_a_problem_of_a_file_is_told_without_a_place_in_it():
    problem = Problem(code="shard_bytes", file="a.tfrecord", message="5 bytes, expected 6")
    assert str(problem) == "a.tfrecord: 5 bytes, expected 6 [shard_bytes]"


def test_of_many_problems_the_first_are_told_and_all_are_counted():
    found = [Problem(code="schema", file="a", record=n, offset=n, message="m") for n in range(25)]
    lines = problems.describe("records", found, {"schema": 1200, "data_crc": 3}, "There.").splitlines()
    assert lines[0] == "records has 1,203 problems:"
    assert lines[21] == "  ... and 1,183 more; in all: 3 x data_crc, 1,200 x schema"


def test_the_list_of_problems_says_what_to_do_and_where_all_are():
    found = [Problem(code="schema", file="a", message="m")]
    told = problems.describe("records", found, {"schema": 1}, "All are there.")
    assert "`dvc repro` puts the version back that dvc.lock names" in told
    assert told.endswith("All are there.")


def named(name):
    return example.serialize(Image(encoded=b"", format="png", height=1, width=1, filename=name), 0)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (named("cat/ä 1.jpg"), "cat/ä 1.jpg"),
        (named("\x1b[2J"), "\\x1b[2J"),
        (named(None), None),
        (named("cat.jpg")[:-9], None),
        (b"", None),
    ],
)
def test_the_name_of_an_image_is_told_where_its_record_has_one(data, name):
    assert problems.image_name(data) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rose 1.jpg", "rose 1.jpg"),
        ("ä日.png", "ä日.png"),
        ("\x1b[2Jx\n\x9b", "\\x1b[2Jx\\n\\x9b"),
        ("\udc80", "\\udc80"),
    ],
)
def test_a_text_cannot_steer_the_terminal(text, shown):
    assert problems.printable(text) == shown


def test_a_problem_in_the_report_has_the_contracts_keys_and_its_severity():
    problem = Problem(code="schema", file="a", message="m")
    assert problems.as_json(problem) == {
        "code": "schema",
        "severity": "error",
        "file": "a",
        "record": None,
        "offset": None,
        "message": "m",
    }
