"""Keep a folder of copies of people's images out of git, before the first image is in it."""

import logging
import shutil
from pathlib import Path

from perennial.base import files
from perennial.base.errors import ConfigError
from perennial.base.project.git import Repository

log = logging.getLogger(__name__)
FILE = ".gitignore"
NOT_IGNORED = 1  # exit code of `git check-ignore`
CONTENT = b"# Copies of images, which may show people: not for git.\n*\n"


def keep_out_of_git(folder: Path, *, ours: bool) -> None:
    """Let git ignore all that is in a folder; `ours`: no other program's files are in it."""
    if ours and not (folder / FILE).exists():
        files.write_bytes(folder / FILE, CONTENT)
    tree = (folder.absolute(), *folder.absolute().parents)
    if not any((each / ".git").exists() for each in tree) or shutil.which("git") is None:
        return
    repository = Repository(folder)
    if repository.call("check-ignore", "--quiet", "--no-index", "image").code == NOT_IGNORED:
        raise ConfigError(
            f"git does not ignore {folder}, so `git add` would publish the images in it; nothing was written; "
            f"name an empty folder, or add this one to a {FILE}"
        )
    if repository.ask("ls-files", "--error-unmatch", "--", "."):
        log.warning("git tracks files in %s; `git rm -r --cached %s` ends that and keeps them", folder, folder)
