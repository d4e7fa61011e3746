"""git, by a person with an identity, whatever the settings of this machine."""

import os
import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=t", "-c", "user.email=t@t")


def git(*arguments: str | Path, folder: Path = Path(), date: str | None = None) -> str:
    """The output of git in a folder; `date`: of author and committer, as git reads it."""
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), date) if date else {}
    command, environment = ["git", *IDENTITY, *arguments], {**os.environ, **dates}
    done = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.rstrip()
