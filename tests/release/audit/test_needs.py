"""What revisions need, by their dvc.lock and .dvc files, which anyone may have written."""

import subprocess
from pathlib import Path

import pytest

from perennial.base.errors import DataError
from perennial.base.project.git import Repository
from perennial.release.audit.needs import needs

DAMAGED = {
    "dvc.lock": [
        "stages: [1]", "stages: {t: 1}", "stages: {t: {outs: [1]}}", "stages: {t: {outs: {a: b}}}", "[",
    ],
    "data.dvc": ["outs: [1]", "outs: {a: b}", "deps: [1]", "wdir: [1]\nouts: 7", "[" * 5000],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name in DAMAGED for text in DAMAGED[name]])
def test_a_damaged_file_of_dvc_is_bad_data_that_is_named(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    identity = ("-c", "user.name=t", "-c", "user.email=t@t")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "Damaged")):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    with pytest.raises(DataError, match=name):
        needs(Repository(tmp_path), ["HEAD"], lambda _: None)
