"""Files in a checkout have the bytes that were committed, whatever git is configured to do with line ends."""

import shutil
from pathlib import Path

import pytest
from support.git import git

ROOT = Path(__file__).parents[1]
LF, CRLF = b"train:\n  epochs: 2\n", b"file,label\r\na.png,cat\r\n"


@pytest.mark.parametrize("setting", ["core.autocrlf=true", "core.autocrlf=input", "core.eol=crlf"])
def test_no_line_end_is_converted(tmp_path: Path, setting: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(ROOT / ".gitattributes", project)
    for name, content in {"params.yaml": LF, "run.sh": LF, "dvc.lock": LF, "labels.csv": CRLF}.items():
        (project / name).write_bytes(content)
    git("init", "-q", folder=project)
    git("-c", setting, "add", ".", folder=project)
    git("commit", "-q", "-m", "all", folder=project)
    git("clone", "-q", "-c", setting, "project", "clone", folder=tmp_path)
    for file in filter(Path.is_file, project.iterdir()):
        assert (tmp_path / "clone" / file.name).read_bytes() == file.read_bytes()
