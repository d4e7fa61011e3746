"""What the DVC process of a run does; `dvc_repo` starts it, and sends the requests.

DVC alone decides what is stale, starts every stage and records it, as `dvc repro --single-item` does. For
some of it, DVC has no public functions: pyproject.toml bounds its version, and a test of its inside says what a
new version changes.
"""

import json
import logging
import os
import re
import signal
import sqlite3
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dvc.config import Config
from dvc.dirs import site_cache_dir
from dvc.exceptions import DvcException
from dvc.lock import LockError
from dvc.logger import _iter_causes
from dvc.repo import Repo, lock_repo
from dvc.stage import serialize
from dvc.stage.exceptions import StageCmdFailedError
from dvc.utils.serialize import ParseError, dumps_yaml, parse_yaml, parse_yaml_for_update
from dvc_data.hashfile.cache import DiskError

from perennial.base import failures, files
from perennial.base.dvc import dvc_program
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import DataError, Failure, InputsChanged, Interrupted, PerennialError
from perennial.base.processes import process
from perennial.orchestration.work.stage_failures import of_signal

# What DVC logs of a stage: what became of it, and its command.
RESULTS = {
    "Running stage '%s':": "ran",
    "Stage '%s' is cached - skipping run, checking out outputs": "restored",
}
SHOWN = {*RESULTS, "%s %s"}
AGAIN_S = 0.2  # after which a lost SIGTERM is heeded; so soon, a stage takes a second one for the first


def _entry(stage: Any) -> Mapping[str, Any]:
    """The entry of dvc.lock of a stage that DVC has run."""
    return dict(serialize.to_single_stage_lockfile(stage))


def _commit(stage: Any) -> None:
    """Keep the outputs of a stage that was reproduced with `no_commit` in DVC's cache, and record it."""
    # DVC formats dvc.lock into the file itself, for half a second in which a kill leaves half of it.
    if all(out.use_cache or out.is_metric or out.is_plot for out in stage.outs):
        stage.repo.stage_cache.save(stage)
    stage.commit()
    file = Path(stage.path).with_suffix(".lock")
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    files.write_bytes(file, with_entry(text, stage.name, _entry(stage), file).encode())
    stage.repo.scm_context.track_file(str(file))


def with_entry(text: str, name: str, new: Mapping[str, Any], file: Path) -> str:
    """The text of dvc.lock with an entry replaced or added, as DVC writes it."""
    # DVC formats all entries again, which takes 0.4 s of CPU time. Here the others stay if possible.
    lines = dumps_yaml({"stages": {name: new}}).partition("\n")[2]
    if "&id" not in lines and "#" not in text:  # anchors are numbered over all entries, and comments moved
        old, key = parse_yaml(text, file), re.escape(lines.partition("\n")[0])
        found = re.sub(rf"^{key}\n(?: {{4}}.*\n)*|\Z", lambda _: lines, text, count=1, flags=re.MULTILINE)
        with suppress(ParseError):
            if parse_yaml(found, file) == {**old, "stages": {**old.get("stages", {}), name: new}}:
                return found
    content = parse_yaml_for_update(text, file) or {"schema": "2.0"}
    content.setdefault("stages", {})[name] = new
    return str(dumps_yaml(content))


def notes_folder(error: Exception) -> Path:
    """The folder of DVC's databases about files, one of which raised the error."""
    if directory := getattr(error, "directory", None):  # dvc_data's DiskError
        return Path(directory)
    return Path(Config.from_cwd(validate=False)["core"].get("site_cache_dir") or site_cache_dir())


def reproduce(name: str, work: Path) -> str:
    """Run a stage if DVC finds it stale: "ran", "restored" from its cache of runs, or "up to date"."""
    noted = work / "inputs" / f"{name}.json"
    with Repo() as repo, lock_repo(repo), repo.scm_context(quiet=True):
        for stage in repo.stage.collect(name):
            missing = [dep.def_path for dep in stage.deps if dep.protocol == "local" and not dep.exists]
            if missing:  # DVC would say so after it has removed the outputs
                text = f"{name} depends on {', '.join(missing)}, which does not exist; put it there, or "
                raise DataError(f"{text}correct its name in params.yaml; nothing was changed")
            note = _written(noted)
            if stage.reproduce(no_commit=True):
                if _written(noted) not in {note, None}:  # it ran
                    _require_unchanged(name, _entry(stage), json.loads(noted.read_bytes()))
                _commit(stage)
    return (_results or ["up to date"])[-1]


def stale(_name: str, _work: Path) -> list[str]:
    """The stages that DVC finds stale now, checked all at once."""
    with Repo() as repo:
        return list(repo.status(["dvc.yaml"]))  # not those of other pipelines


def _require_unchanged(name: str, entry: Mapping[str, Any], read: Mapping[str, Any]) -> None:
    """Refuse an entry of dvc.lock that is not what the stage says that it read."""
    # The stage compares both at its end, but DVC reads parameters and code a moment later.
    digests = {dep["path"]: dep.get("md5") for dep in entry.get("deps", [])}
    wrong = [path for path, md5 in read["code"].items() if digests.get(path, md5) != md5]
    for file, values in read["params"].items():
        recorded = entry.get("params", {}).get(file, {})
        wrong += [key for key, value in values.items() if recorded.get(key, value) != value]
    if wrong:
        text = f"{', '.join(wrong)} changed just as {name} ended; nothing was recorded: set it back, or run "
        raise InputsChanged(f"{text}again to use what is there now")


def _written(file: Path) -> tuple[int, int] | None:
    """What differs once a file was replaced, whatever the clock says."""
    return (file.stat().st_ino, file.stat().st_mtime_ns) if file.exists() else None


_results: list[str] = []  # what became of the stage, as DVC has logged it


def _shown(record: logging.LogRecord) -> bool:
    """Note what DVC logs of a stage; whether to show it, and not only to people who run DVC by hand."""
    _results.extend(filter(None, [RESULTS.get(record.msg)]))
    return record.msg in SHOWN or record.levelno > logging.INFO


def _failure(name: str, error: Exception, work: Path) -> dict[str, Any]:
    """Describe an error as a stage does; `lines`: the last that it wrote belong to the message."""
    if isinstance(error, UnicodeEncodeError):
        path = os.fsencode(error.object)
        error = DataError(f"{path!r} is not UTF-8, so DVC cannot track it; rename it; nothing was changed")
    if isinstance(error, PerennialError):
        return {"code": error.exit_code, "message": str(error), "kind": error.kind}
    if not isinstance(error, StageCmdFailedError):
        kind, message = _of_dvc(name, error)
        return {"code": 1, "message": message, "kind": kind}
    if (said := work / "failure.json").is_file():
        return dict(json.loads(said.read_bytes()))
    code = int(str(error).rpartition(" ")[2])
    message = of_signal(code) or f"ERROR: failed to reproduce '{name}': {error}"
    own = code if 0 < code < 128 else 1
    return {"code": own, "message": message, "kind": failures.of_code(code), "lines": True}


def _of_dvc(name: str, error: Exception) -> tuple[Failure, str]:
    """The kind of an error of DVC itself, and its message."""
    if isinstance(error, LockError):
        said = str(error).partition(" Check the page")[0]  # which does not name the file
        again = "run this again after it ended; where none works, remove .dvc/tmp/lock"
        return Failure.OUTSIDE, f"another DVC works here; {again}: {said}"
    if isinstance(error, DvcException):
        shown = f"ERROR: failed to reproduce '{name}': {': '.join(_iter_causes(error))}"
        refused = f"DVC refuses: {error}; `dvc status {name}` shows details"
        return (Failure.OUTSIDE, shown) if _results else (Failure.REFUSED, refused)
    if isinstance(error, OSError):
        what = f"{name} has ended, but DVC could not record it" if _results else f"DVC cannot check {name}"
        kind = Failure.OUTSIDE if error.errno in failures.DISK else Failure.REFUSED
        return kind, f"{what}: {error}; {_remedy(str(error.filename or ''))}"
    if isinstance(error, sqlite3.Error | DiskError):
        if "locked" in str(error):  # by another DVC
            return Failure.OUTSIDE, f"another DVC command is running: {error}; run this again"
        text = f"DVC cannot read what it noted about files in {notes_folder(error)}: {error}; "
        text += "nothing was changed; move that folder away, and run this again: DVC makes a new one"
        return Failure.REFUSED, text
    traceback.print_exception(error)
    return Failure.OUTSIDE if _results else Failure.REFUSED, f"DVC failed: {error!r}"


def _remedy(path: str) -> str:
    """What to do about a file that DVC cannot use."""
    again, parts = "move it away, and run this again: DVC makes a new one", set(Path(path).parts)
    if Path(path).is_symlink() and not Path(path).exists():
        text = "its target, in DVC's cache, is missing: `dvc pull` fetches it from the remote; or remove the "
        return f"{text}link, and run this again, which makes the file again"
    if {"cache", "runs", "md5"} & parts:
        text = "DVC's cache is damaged or cannot be written: grant access, or move the cache away and run this "
        return f"{text}again; `dvc pull` fetches what the remote has"
    if ".dvc" in parts:
        return f"grant access to .dvc/tmp, or {again}"
    return f"check that it exists and grant access; if it belongs to DVC's site_cache_dir, {again}"


def _reply(request: Mapping[str, Any]) -> dict[str, Any]:
    name, work = request["stage"], Path(request["work"])
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    (work / "failure.json").unlink(missing_ok=True)
    _results.clear()
    with suppress(DvcError):
        dvc_program.remove_broken_locks(dvc_program.root())
    try:
        return {"result": REQUESTS[request["do"]](name, work)}
    except Exception as error:  # noqa: BLE001 - the flow raises it
        return {"failure": _failure(name, error, work)}
    finally:
        os.chdir("/")  # it holds no folder that someone wants to remove


REQUESTS = {"reproduce": reproduce, "stale": stale}


def end_on_sigterm() -> None:
    """Let SIGTERM raise SystemExit, so that DVC leaves no locks, of which each later command would warn."""
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)  # a finalizer may swallow SystemExit, and a stage then start
    if not process.handling(SystemExit):
        for each in process.children(os.getpid(), all_below=True) if number == signal.SIGALRM else ():
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGTERM)
        sys.exit(Interrupted.exit_code)


def main() -> None:
    """Carry out requests until the process that sends them closes the pipe, or ends this one."""
    end_on_sigterm()  # the stage gets the signal, too
    for handler in logging.getLogger("dvc").handlers:
        handler.addFilter(_shown)
    logging.getLogger("dvc.rwlock").setLevel(logging.CRITICAL)  # it warns about a DVC that was killed
    try:
        with open(int(sys.argv[1]), encoding="utf-8") as requests:  # noqa: PTH123 - of a pipe
            for line in requests:
                request = json.loads(line)
                reply = json.dumps(_reply(request))
                print(request["mark"] + reply, flush=True)  # noqa: T201 - to the flow
    finally:
        os._exit(0)  # without waiting for anything


if __name__ == "__main__":
    main()
