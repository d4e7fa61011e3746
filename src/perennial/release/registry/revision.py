"""Another revision of the checkout: its dvc.lock from git, and outputs of its stages through `dvc get`."""

from pathlib import Path

from perennial.base.dvc import dvc_lock, dvc_program
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import DataError, PerennialError
from perennial.base.project.git import GitError, Repository


def recorded(commit: str) -> dict[str, LockedStage]:
    """Read the stages in the dvc.lock of a commit."""
    git, what = Repository(Path()), f"{dvc_lock.FILE} of commit {commit}"
    try:
        # "./": the project may be in a subfolder of its repository.
        return dvc_lock.parse(git.run("show", f"{commit}:./{dvc_lock.FILE}"), what)
    except GitError as error:
        if git.commit_of(commit) is None:
            raise DataError(
                f"commit {commit} is not in this clone; `git fetch --tags` gets it, in a shallow clone "
                f"`git fetch --unshallow --tags`: {error}"
            ) from error
        raise DataError(f"{what} cannot be read: {error}") from error


def fetch_output(commit: str, path: str, to: Path) -> None:
    """Copy a stage's output at a commit from DVC's cache or remote to a path that does not exist yet."""
    try:
        dvc_program.get(path, commit, to)
    except DvcError as error:
        raise PerennialError(
            f"{path} of commit {commit} cannot be fetched from DVC's cache or remote: {error}; "
            "`dvc push` in a checkout that has it makes it available"
        ) from error
