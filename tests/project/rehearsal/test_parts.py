"""The parts of a rehearsal: damage, and what is reported."""

import json
from pathlib import Path

import pytest

from perennial.base import config
from perennial.base.errors import ConfigError
from perennial.data.tfrecord import framing
from perennial.project.rehearsal import promises, rehearse
from perennial.project.rehearsal.rehearse import Rehearsal, Tried


def test_damage_changes_bytes_and_is_the_same_for_a_seed():
    kinds = set()
    for seed in range(30):
        results = [bytearray(range(256)) for _ in range(2)]
        kinds |= {promises._damage(content, rehearse._chance(seed)) for content in results}
        assert results[0] == results[1] != bytes(range(256))
    assert len(kinds) == 3


def test_damage_of_whole_records_leaves_checksums_right(tmp_path):
    shard, kinds = tmp_path / "shard", set()
    records = b"".join(framing.frame(bytes([number]) * 10) for number in range(5))
    for seed in range(10):
        content = bytearray(records)
        kinds.add(promises._damage_records(content, rehearse._chance(seed)))
        shard.write_bytes(content)
        with shard.open("rb") as stream:
            spans, fault = framing.scan(stream, len(content))
        assert fault is None
        assert framing.valid_data(bytes(content), spans).all()
        assert len(spans) in {4, 6}
    assert len(kinds) == 2


def test_the_result_counts_the_tries_of_each_promise_and_says_what_broke(tmp_path):
    good = Tried("killed training", ("a kill",), (), tmp_path)
    bad = Tried("damaged data", ("a flipped bit",), ("exit code 0",), tmp_path)
    result = Rehearsal(7, ("killed training", "damaged data"), 60, [good, good, bad], tmp_path)
    found = json.loads(json.dumps(result.document(), allow_nan=False))
    assert [(each["name"], each["tries"], each["held"]) for each in found["promises"]] == [
        ("killed training", 2, 2), ("damaged data", 1, 0),
    ]  # fmt: skip
    assert (found["ok"], found["folder"], found["failures"][0]["broken"]) == (
        False, str(tmp_path), ["exit code 0"],
    )  # fmt: skip
    text = "\n".join(result.lines())
    assert "damaged data     held 0 of 1" in text
    assert "damaged data (a flipped bit)" in text


def test_an_unknown_promise_is_refused_with_the_known_ones(tmp_path, monkeypatch):
    checked = config.load(Path(__file__).parents[3] / "params.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="killed training"):
        rehearse.rehearse(checked, minutes=1, seed=0, only=["kill"])
    assert list(tmp_path.iterdir()) == []
