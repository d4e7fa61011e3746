"""Manifests and baselines of any content are read as what they say, or refused."""

import json

import pytest
from fuzz.hunt import hostile, hunt
from hypothesis import strategies as st

from perennial.base import files
from perennial.base.errors import DataError
from perennial.data.records import manifest
from perennial.data.validation import drift

SHARD = {"file": "a_train_00000-of-00001.tfrecord", "examples": 3, "bytes": 300, "sha256": "ab" * 32}
MANIFEST = {
    "dataset": "pets",
    "classes": ["cat", "dög"],
    "source": {"raw.tar": "cd" * 32},
    "splits": {"train": {"examples": 3, "per_class": [1, 2], "shards": [SHARD]}},
}
VERSION = {"manifest": "ab" * 32, "per_class": {"cat": 1, "dog": 2}, "brightness": [3] + [0] * 31}
BASELINE = {"dataset": "pets", "statistics": VERSION}
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800")
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@pytest.mark.parametrize(
    ("name", "valid", "read"),
    [
        (manifest.FILE, MANIFEST, lambda file: manifest.load(file.parent)),
        ("baseline.json", BASELINE, drift.load_baseline),
    ],
    ids=["manifest", "baseline"],
)
def test_accepted_content_is_read_unchanged(tmp_path, name, valid, read):
    file = tmp_path / name

    def check(content):
        file.write_bytes(content)
        try:
            found = read(file)
        except DataError:
            return
        assert found.model_dump() == json.loads(content)
        files.json_bytes(found.model_dump())

    changed = st.builds(lambda key, other: valid | {key: other}, st.sampled_from(sorted(valid)), VALUES)
    values = (changed | VALUES).map(lambda value: json.dumps(value).encode())
    hunt(values | hostile(files.json_bytes(valid)), check)


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000, b'"' + b"x" * 1_000_000]
)
def test_deep_and_long_files_are_refused(tmp_path, content):
    (tmp_path / manifest.FILE).write_bytes(content)
    with pytest.raises(DataError):
        manifest.load(tmp_path)
