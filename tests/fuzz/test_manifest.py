"""Manifests that no parser should follow to their end are refused."""

import pytest

from perennial.base.errors import DataError
from perennial.data.records import manifest


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000, b'"' + b"x" * 1_000_000]
)
def test_deep_and_long_files_are_refused(tmp_path, content):
    (tmp_path / manifest.FILE).write_bytes(content)
    with pytest.raises(DataError):
        manifest.load(tmp_path)
