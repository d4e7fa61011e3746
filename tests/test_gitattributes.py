"""Files in a checkout have the bytes that were committed, whatever git is configured to do with line ends."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LF, CRLF = b"train:\n  epochs: 2\n", b"file,label\r\na.png,cat\r\n"


def git(folder: Path, *arguments: str) -> None:
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", *author, "-C", folder, *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("setting", ["core.autocrlf=true", "core.autocrlf=input", "core.eol=crlf"])
def test_no_line_end_is_converted(tmp_path: Path, setting: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(ROOT / ".gitattributes", project)
    for name, content in {"params.yaml": LF, "run.sh": LF, "dvc.lock": LF, "labels.csv": CRLF}.items():
        (project / name).write_bytes(content)
    git(project, "init", "-q")
    git(project, "-c", setting, "add", ".")
    git(project, "commit", "-q", "-m", "all")
    git(tmp_path, "clone", "-q", "-c", setting, "project", "clone")
    for file in filter(Path.is_file, project.iterdir()):
        assert (tmp_path / "clone" / file.name).read_bytes() == file.read_bytes()
