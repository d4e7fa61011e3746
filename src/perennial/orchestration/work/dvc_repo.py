"""What a flow asks of DVC, which alone decides what is stale and starts every stage."""

import importlib
import json
import logging
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.utils.serialize import load_yaml
from dvc_data.hashfile.cache import DiskError

from perennial.base import failures
from perennial.base.dvc import dvc_program, repro
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import Failure
from perennial.orchestration.engine import this_run
from perennial.orchestration.work import dvc_internals
from perennial.orchestration.work.stage_failures import ExitCode, InputsChanged, NotStarted, StageFailed

Result = Literal["ran", "restored", "up to date"]
Results = dict[
    str, str
]  # of the steps of a run so far, by name; each task adds its own, which orders the run graph
OF_A_FILE = re.compile(r"\[Errno (\d+)\] [^:]+: b?'([^']+)'")  # an OSError in DVC's output
BUSY = ("is busy, it is being blocked by", "Unable to acquire lock")
# DVC's advice after each stage is for people who run it by hand.
ADVICE = ("To track the changes with git", "git add dvc.lock", "To enable auto staging",
          "dvc config core.autostage", "Use `dvc push`", "Updating lock", "Generating lock")  # fmt: skip


def reproduce(stage: str, log: Callable[[str], None], *, grace_s: float = repro.GRACE_S) -> Result:
    """Run a stage if DVC finds it stale, and pass each line of its output to `log`.

    No process of the stage is left when this returns or raises. After an interruption it has `grace_s` to save.
    """
    with _failures_of(stage), _repo() as repo:
        work = work_folder()
        # Call DVC in this process: starting `dvc` just to learn that nothing changed costs a second per stage.
        changes, results = repo.status([stage]), Path(repo.stage_cache.cache_dir)
    if not changes:
        return "up to date"
    _require_dependencies(stage, changes)
    with _recorded_as_read(stage, results):
        return _run(stage, work, log, grace_s)


def _run(stage: str, work: Path, log: Callable[[str], None], grace_s: float) -> Result:
    def log_line(line: str) -> None:
        if not line.startswith(ADVICE):
            log(line)

    try:
        ended = repro.run(
            Path(sys.executable), "repro", "--single-item", stage, folder=Path(), variables=stage_environment(),
            work=work, to=log_line, grace_s=grace_s,
        )  # fmt: skip
    except BaseException:
        with suppress(DvcException, OSError), _repo() as repo:
            dvc_internals.release_locks_of_the_dead(repo)
        raise
    if ended.code:
        raise _failure(stage, ended)
    return "ran" if ended.ran else "restored" if ended.restored else "up to date"


@contextmanager
def _recorded_as_read(stage: str, results: Path) -> Iterator[None]:
    """Undo what DVC records in the block if it is not what the stage says that it read.

    The stage compares both at its end, but DVC reads parameters and code a moment later. `results`: the folder
    of DVC's run cache.
    """
    lock, noted = Path("dvc.lock"), work_folder() / "inputs" / f"{stage}.json"
    before = lock.read_bytes() if lock.exists() else None
    note = _written(noted)
    yield
    if _written(noted) in {note, None}:  # restored from DVC's cache
        return
    entry = load_yaml(lock)["stages"][stage]
    wrong = _recorded_otherwise(entry, json.loads(noted.read_bytes()))
    if not wrong:
        return
    lock.unlink() if before is None else lock.write_bytes(before)
    dvc_internals.forget_run(results, entry)  # DVC would restore the result for inputs that did not make it
    text = f"{', '.join(wrong)} changed just as {stage} ended; nothing was recorded: set it back, or run again"
    raise InputsChanged(stage, ExitCode.INTERRUPTED, f"{text} to use what is there now")


def _recorded_otherwise(entry: Mapping[str, Any], read: Mapping[str, Any]) -> list[str]:
    """The code and parameters of which an entry of dvc.lock has other values than the stage read."""
    digests = {dep["path"]: dep.get("md5") for dep in entry.get("deps", [])}
    wrong = [path for path, md5 in read["code"].items() if digests.get(path, md5) != md5]
    for file, values in read["params"].items():
        recorded = entry.get("params", {}).get(file, {})
        wrong += [key for key, value in values.items() if recorded.get(key, value) != value]
    return wrong


def _written(file: Path) -> tuple[int, int] | None:
    """What differs once a file was replaced, whatever the clock says."""
    return (file.stat().st_ino, file.stat().st_mtime_ns) if file.exists() else None


def stale() -> set[str]:
    """The stages that DVC finds stale now, checked all at once."""
    with _failures_of("dvc status"), _repo() as repo:
        changes: Mapping[str, object] = repo.status(["dvc.yaml"])  # not those of other pipelines
        return set(changes)


def restore(*stages: str) -> None:
    """Restore the outputs of stages from DVC's cache, or else from its remote."""
    for how in ("checkout", "pull"):
        try:
            dvc_program.run(how, *stages, variables=stage_environment())
        except DvcError as error:
            message = str(error)
        else:
            return
    raise StageFailed(f"dvc {how}", 1, message)


def parameter(section: str, key: str) -> Any:
    """A parameter of the checkout, unchecked."""
    try:
        return load_yaml("params.yaml")[section][key]
    except (DvcException, OSError, LookupError, TypeError) as error:
        text = f"params.yaml has no {section}.{key} or cannot be read, so it changed while this ran; put it "
        text += "back, and run this again: finished stages are not repeated"
        raise NotStarted("params.yaml", ExitCode.USAGE, text) from error


def stages() -> list[str]:
    """The names of the stages, in their order."""
    return list(load_yaml("dvc.yaml")["stages"])


def work_folder() -> Path:
    """The folder for files that outlive a run and are not versioned."""
    return Path(parameter("paths", "work"))


def stage_environment() -> dict[str, str]:
    """The variables of a stage or command that a flow starts in its checkout."""
    return {**repro.environment(Path(sys.executable), Path.cwd()), "PERENNIAL_RUN": this_run.run_id() or ""}


def _repo() -> Any:
    repo = importlib.import_module("dvc.repo").Repo()
    dvc_internals.remove_broken_list_of_locks(repo)
    return repo


@contextmanager
def _failures_of(stage: str) -> Iterator[None]:
    """Convert DVC's errors in this process to failures of a stage."""
    try:
        yield
    except LockError as error:
        message = f"another DVC works in this checkout; wait for it or end it, then run this again: {error}"
        raise StageFailed(stage, 1, message) from error
    except DvcException as error:
        raise NotStarted(stage, 1, f"DVC refuses: {error}; `dvc status {stage}` shows details") from error
    except UnicodeEncodeError as error:
        name = os.fsencode(error.object)
        message = f"{name!r} is not valid UTF-8, so DVC cannot track it; rename it; nothing was changed"
        raise StageFailed(stage, ExitCode.BAD_DATA, message) from error
    except OSError as error:
        message = f"DVC cannot check {stage}: {error}; {_remedy(str(error.filename or ''))}"
        kind = StageFailed if error.errno in failures.DISK else NotStarted
        raise kind(stage, 1, message) from error
    except (sqlite3.Error, DiskError) as error:
        if "locked" in str(error):  # by another DVC
            raise StageFailed(stage, 1, f"another DVC command is running: {error}; run this again") from error
        folder = dvc_internals.notes_folder(error)
        message = (
            f"DVC cannot read what it noted about files in {folder}: {error}; nothing was changed; move that "
            "folder away, and run this again: DVC makes a new one"
        )
        raise NotStarted(stage, 1, message) from error


def _remedy(path: str) -> str:
    """What to do about a file that DVC cannot use."""
    again = "move it away, and run this again: DVC makes a new one"
    if Path(path).is_symlink() and not Path(path).exists():
        return (
            "its target, in DVC's cache, is missing: `dvc pull` fetches it from the remote; or remove the "
            "link, and run this again, which makes the file again"
        )
    if {"cache", "runs", "md5"} & set(Path(path).parts):
        return (
            "DVC's cache is damaged or cannot be written: grant access, or move the cache away and run this "
            "again; `dvc pull` fetches what the remote has"
        )
    if ".dvc" in Path(path).parts:
        return f"grant access to .dvc/tmp, or {again}"
    return "check that it exists and grant access; if it belongs to DVC's site_cache_dir, " + again


def _require_dependencies(stage: str, changes: Mapping[str, Sequence[Any]]) -> None:
    """Raise for missing dependencies as DVC does, but before DVC removes the outputs."""
    kinds = [kind for each in changes.values() for kind in each if isinstance(kind, dict)]
    found = [change for kind in kinds for change in kind.get("changed deps", {}).items()]
    if missing := [path for path, how in found if how == "deleted"]:
        raise StageFailed(
            stage,
            ExitCode.BAD_DATA,
            f"{stage} depends on {', '.join(missing)}, which does not exist; "
            "put it there, or correct its name in params.yaml; nothing was changed",
        )


def _failure(stage: str, ended: repro.Ended) -> StageFailed:
    """Build the error from what the stage wrote or else from the last lines; DVC's exit code is always 255."""
    if said := ended.failure:
        kind = InputsChanged if said.get("changed") else StageFailed
        return kind(stage, said["code"], said["message"], Failure(said.get("kind", Failure.OUTSIDE)))
    lines, started = ended.lines, bool(ended.ran | ended.restored)
    starts = (f"perennial {stage}: ", "ERROR: ")
    first = next((n for start in starts for n, line in enumerate(lines) if line.startswith(start)), 0)
    message = "\n".join(lines[first:])
    if message.startswith("ERROR: ") and (found := OF_A_FILE.search(message)):
        kept = "; the stage has ended, but DVC could not record it" if started else ""
        line = f"{message.splitlines()[0].removeprefix('ERROR: ')}{kept}; {_remedy(found[2])}"
        return (StageFailed if int(found[1]) in failures.DISK else NotStarted)(stage, 1, line)
    if not started and not any(sign in message for sign in BUSY):
        return NotStarted(stage, 1, message)
    if exited := re.search(r"exited with (-?\d+)", message):  # before it could write why
        code = int(exited[1])
        return StageFailed(stage, max(code, 0) or 1, message, failures.of_code(code))
    return StageFailed(stage, 1, message)


# Hide progress bars of DVC's hashing, so that only the stages' are shown, and warnings about locks of a DVC
# that was stopped, which are removed.
for module in ("dvc.progress", "dvc_data.callbacks", "dvc.rwlock"):
    logging.getLogger(module).setLevel(logging.CRITICAL)
# DVC's log lines of this process go where the flow's lines go, not into the rows of the live view.
logging.getLogger("dvc").handlers.clear()
