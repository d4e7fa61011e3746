import pytest
from data.validation.damage import DAMAGE

from perennial.base.config.data import SeverityConfig
from perennial.data.images import Image
from perennial.data.tfrecord import example
from perennial.data.validation import problems
from perennial.data.validation.problems import Problem


def test_every_code_has_its_damage_and_its_fix():
    assert problems.FIXES.keys() - SeverityConfig.model_fields.keys() == DAMAGE.keys()


def test_a_description_lists_places_counts_and_fixes(tmp_path):
    found = [
        Problem(code="schema", file="a", record=n, offset=n, message="it is\x1b[2J empty") for n in range(25)
    ]
    text = problems.describe(tmp_path, found, {"schema": 1200, "data_crc": 3}, "All are there.")
    assert "  a record 3 at byte 3: it is\\x1b[2J empty [schema]\n" in text
    assert "1,203 problems" in text
    assert "1,183 more; in all: 3 x data_crc, 1,200 x schema" in text
    assert problems.FIXES["schema"] in text
    assert text.endswith("All are there.")
    assert str(Problem(code="shard_bytes", file="a", message="5 bytes")) == "a: 5 bytes [shard_bytes]"


def named(name):
    return example.serialize(Image(encoded=b"", format="png", height=1, width=1, filename=name), 0)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (named("cat/ä 1.jpg"), "cat/ä 1.jpg"),
        (named("\x1b[2J"), "\\x1b[2J"),
        (named("\udcff.jpg"), "\ufffd.jpg"),
        (named(None), None),
        (named("cat.jpg")[:-9], None),
        (b"", None),
    ],
)
def test_the_file_name_of_an_image_is_read_and_escaped(data, name):
    assert problems.image_name(data) == name
