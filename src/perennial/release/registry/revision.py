"""Files of another revision of the checkout: tracked ones from git, outputs of stages through `dvc get`."""

from pathlib import Path

from perennial.base.dvc import dvc_lock, dvc_program
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import DataError, PerennialError
from perennial.base.project.git import GitError, Repository


def read_tracked(commit: str, file: str) -> str:
    """Read the text of a tracked file of the project at a commit."""
    git = Repository(Path())
    try:
        # "./": the project may be in a subfolder of its repository.
        return git.run("show", f"{commit}:./{file}")
    except GitError as error:
        if git.commit_of(commit) is None:
            raise DataError(
                f"commit {commit} is not in this clone; `git fetch --tags` gets it, in a shallow clone "
                f"`git fetch --unshallow --tags`: {error}"
            ) from error
        raise DataError(f"{file} of commit {commit} cannot be read: {error}") from error


def recorded(commit: str) -> dict[str, LockedStage]:
    """Read the stages in the dvc.lock of a commit."""
    return dvc_lock.parse(read_tracked(commit, dvc_lock.FILE.name), f"{dvc_lock.FILE} of commit {commit}")


def fetch_output(commit: str, path: str, to: Path) -> None:
    """Copy a stage's output at a commit from DVC's cache or remote to a path that does not exist yet."""
    try:
        dvc_program.get(path, commit, to)
    except DvcError as error:
        raise PerennialError(
            f"{path} of commit {commit} cannot be fetched from DVC's cache or remote: {error}; "
            "`dvc push` in a checkout that has it makes it available"
        ) from error
