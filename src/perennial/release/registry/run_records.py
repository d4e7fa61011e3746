"""Records of runs: `runs/<run>/run.json`, written step by step, so that a killed run leaves a record, too.

Files that DVC tracks must not hold times, hosts or random names; these belong here. A pushed run includes its
record as the last commit of its branch `run/<run>`.
"""

import hashlib
import importlib
import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email import message_from_string
from functools import partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import Field

from perennial.base import documents, files
from perennial.base.config import Config
from perennial.base.devices import processor
from perennial.base.dvc import dvc_digests, dvc_lock
from perennial.base.errors import ConfigError, DataError, PerennialError, exit_code, printable
from perennial.base.project.git import Repository, repository
from perennial.data.records import manifest
from perennial.model.evaluation.results import read_results, score_fact
from perennial.release.gate import compared
from perennial.release.registry import checkout_state, run_branches, versions
from perennial.release.registry.push import short

log = logging.getLogger(__name__)

RUN = "PERENNIAL_RUN"  # in the environment of a stage: the run that it belongs to
FILE = "run.json"
MOST_BYTES = 1 << 24  # of a record, which has some 20,000
COMPLETED = "Completed"  # Prefect's name of the state
DECISIONS = 500  # records on branches whose decisions are read together
NEWEST = ("--sort=-committerdate", "--format=%(refname)")  # of git's for-each-ref
BRANCHES = ("refs/heads/run/**", run_branches.UNPUSHED, "refs/remotes/*/run/**")
SEPARATOR = "record:"  # no line of JSON
Reader = Callable[[], dict[str, Any] | None]


class StageRecord(documents.JsonFile):
    """A stage in the record of a run."""

    stage: str
    started: str | None = None
    ended: str | None = None
    exit_code: int | None = None


class RunDecision(documents.JsonFile):
    """The gate's decision in the record of a run."""

    promote: bool
    accuracy: float | None = None
    map: float | None = None  # in place of accuracy, of several labels an image
    champion: dict[str, Any] | None = None  # the opponent, with its score on examples that played no part
    compared: dict[str, Any] | None = None  # with the opponent


class Record(documents.JsonFile):
    """The record of a run, as far as commands rely on it."""

    run: str
    started: str | None = None
    started_again: list[str] = Field(default=[])
    ended: str | None = None
    outcome: str | None = None
    message: str | None = None
    recorded: str | None = None
    revision: str | None = None
    lock: str | None = None
    comparison: int | None = None  # number of its decision among all that were recorded
    decision: RunDecision | None = None
    request: dict[str, Any] = Field(default={})
    machine: dict[str, Any] = Field(default={})
    environment: dict[str, Any] = Field(default={})
    stages: list[StageRecord] = Field(default=[])


def start(config: Config, run: str, request: Mapping[str, Any] | None = None) -> None:
    """Write the record of a run that starts, with its parameters; a second start is added to the first."""
    file = record_file(config, run)
    if (before := read(file)) is not None:
        again = [*before.get("started_again", []), _now()]
        add(config, run, started_again=again, ended=None, outcome=None, message=None)
        return
    packages = _packages()
    content: dict[str, object] = {
        "run": run,
        "request": dict(request or {}),
        "started": _now(),
        **dict.fromkeys(("ended", "outcome", "message", "recorded")),
        **_code(config),
        "environment": {
            "digest": hashlib.sha256(files.json_bytes(packages)).hexdigest(),
            "prefix": sys.prefix,
            "python": platform.python_version(),
            "packages": packages,
        },
        "machine": {"host": platform.node(), "system": platform.platform(), **processor.facts()},
        "params": config.model_dump(mode="json", by_alias=True),
        "stages": [],
    }
    files.write_json(file, content)


def _packages() -> dict[str, str]:
    """The versions of installed packages by the names in their metadata."""
    texts = (each.read_text("METADATA") or each.read_text("PKG-INFO") for each in metadata.distributions())
    heads = (message_from_string((text or "").partition("\n\n")[0]) for text in texts)
    return {head["Name"]: head["Version"] for head in heads}


def end(config: Config, run: str, outcome: str, message: str | None, results: Mapping[str, str]) -> None:
    """Add the outcome of a run and what DVC did with each stage; after a failure, outputs may be older."""
    whole = made(config) if outcome == COMPLETED else {}
    add(config, run, ended=_now(), outcome=outcome, message=message, results=dict(results), **whole)


def add(config: Config, run: str, **facts: object) -> None:
    """Add facts to the record of a run, if it has one."""
    _change(record_file(config, run), lambda before: {**before, **facts})


@contextmanager
def stage(config: Config, name: str) -> Iterator[None]:
    """Record a stage in its run's record, when it starts and again when it ends."""
    run = os.environ.get(RUN, "")
    file = record_file(config, run) if checkout_state.NAME.fullmatch(run) else Path()
    if not file.is_file():
        yield
        return
    entry: dict[str, object] = {"stage": name, "started": _now(), "ended": None, "exit_code": None}
    own = dict(entry)

    def write() -> None:
        # The record is read again, since others may have added to it.
        _change(file, lambda now: {**now, "stages": [*(each for each in now["stages"] if each != own), entry]})

    write()
    try:
        yield
        entry["exit_code"] = 0
    except Exception as error:
        entry["exit_code"] = exit_code(error)
        raise
    finally:
        entry |= {"ended": _now(), "devices": _devices()}
        write()


def record_file(config: Config, run: str) -> Path:
    """The file that holds the record of a run."""
    checkout_state.require_name(run)
    return config.paths.runs / run / FILE


def read(file: Path) -> dict[str, Any] | None:
    """Read the record in a file; None if there is none, or if it is damaged, which is logged."""
    try:
        with file.open("rb") as stream:
            return _checked(stream.read(MOST_BYTES + 1), str(file))
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the record %s cannot be read: %s", file, error)
        return None


def reason(config: Config, run: str) -> str | None:
    """Why a run was started, in one line, if its record has it."""
    request = (read(record_file(config, run)) or {}).get("request", {})
    return printable(" ".join(str(request.get("reason") or "").split())) or None


def _change(file: Path, change: Callable[[dict[str, Any]], Mapping[str, object]]) -> None:
    """Change the record in a file, if it has a valid one; two changes at once follow each other."""
    with suppress(FileNotFoundError), files.locked(file.parent):
        if (before := read(file)) is not None:
            files.write_json(file, change(before))


def _checked(content: bytes, name: str) -> dict[str, Any] | None:
    """Parse a record, which anyone with push access can write."""
    if len(content) > MOST_BYTES:
        log.warning("%s has more than %d bytes; it is left out", printable(name), MOST_BYTES)
        return None
    try:
        found = documents.parse_checked(content, printable(name), Record, "it is left out")
    except DataError as error:
        log.warning("%s", printable(str(error)))
        return None
    return documents.json_object(content) | {"stages": [each.model_dump() for each in found.stages]}


def listing(config: Config, last: int) -> list[dict[str, Any]]:
    """Read the records of the last runs, in this checkout and on fetched branches, newest first."""
    here, pushed = known(config)
    found = filter(None, (reader() for reader in here.values()))
    others = filter(None, (reader() for name, reader in pushed.items() if name not in here))
    newest = [*found, *islice(others, last)]  # the branches are sorted, so no older one is read
    return sorted(newest, key=lambda each: str(each.get("started")), reverse=True)[:last]


def pushed_decisions(config: Config) -> Iterator[dict[str, Any]]:
    """Yield the decisions in the records of the last runs on branches, the newest first; read at once."""
    try:
        git, near = Repository(Path()), {"GIT_NO_LAZY_FETCH": "1"}
        names = git.run("for-each-ref", f"--count={DECISIONS}", *NEWEST, *BRANCHES).split()
        files = (config.paths.runs / name.rpartition("/")[2] / FILE for name in names)
        asked = "".join(f"{name}:./{file.as_posix()}\n" for name, file in zip(names, files, strict=True))
        found = git.run("cat-file", f"--batch={SEPARATOR}", stdin=asked, **near).split(f"{SEPARATOR}\n")
    except PerennialError:  # no repository
        return
    for text in found:
        with suppress(ValueError, KeyError, TypeError):
            record, _ = json.JSONDecoder().raw_decode(text)  # a line about a missing file may follow
            if isinstance(record["decision"], dict):
                yield record["decision"]


def find(config: Config, run: str) -> dict[str, Any]:
    """Find the record of a run by its name or the start of it."""
    here, pushed = known(config)
    readers = pushed | here
    matching = [run] if run in readers else [name for name in readers if run and name.startswith(run)]
    record = readers[matching[0]]() if len(matching) == 1 else None
    if record is None:
        which = f"{len(matching)} runs start with" if len(matching) > 1 else "there is no run"
        raise ConfigError(f"{which} {run}; `perennial runs` lists them, and `git fetch` gets those of others")
    return record


def known(config: Config) -> tuple[dict[str, Reader], dict[str, Reader]]:
    """Map runs to readers of their records: this checkout's, and those of branches, the newest first."""
    pushed: dict[str, Reader] = {}
    try:
        git = Repository(Path())
        for reference in git.run("for-each-ref", *NEWEST, *BRANCHES).split():
            run = reference.rpartition("/")[2]
            pushed.setdefault(run, partial(_read, git, reference, config.paths.runs / run / FILE))
    except PerennialError as error:
        log.warning("only the runs of this checkout are listed: %s", error)
    return {file.parent.name: partial(read, file) for file in config.paths.runs.glob(f"*/{FILE}")}, pushed


def _read(git: Repository, reference: str, file: Path) -> dict[str, Any] | None:
    content = git.blob(f"{reference}:./{file.as_posix()}", MOST_BYTES + 1)
    return None if content is None else _checked(content, f"{file} of {short(reference)}")


def _code(config: Config) -> dict[str, object]:
    """The commit, and digests of uncommitted changes: of all, and of `edits` to what no run writes."""
    try:
        git = repository(Path())
        not_by_runs = (":/", *(f":(exclude){file}" for file in checkout_state.recorded_files(config)))
        champion = versions.read_artifact(git, config.record.artifact).champion
        return {
            "revision": git.commit_of("HEAD"), "changes": _changes(git), "edits": _changes(git, *not_by_runs),
            "champion": champion and champion.name,
        }  # fmt: skip
    except PerennialError:
        return dict.fromkeys(("revision", "changes", "edits", "champion"))


def _changes(git: Repository, *paths: str) -> str | None:
    """A digest of the uncommitted changes to tracked files; None without any."""
    text = git.run("diff", "--binary", "--no-ext-diff", "--no-color", "HEAD", "--", *paths)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest() if text else None


def made(config: Config) -> dict[str, object]:
    """The current digests of dvc.lock and of the data, and the gate's current decision."""
    try:
        decision = checkout_state.read_decision(config)
        scored: dict[str, Any] = {"promote": decision.promote, **score_fact(decision.candidate)}
        if (best := decision.champion) and best.unbiased:
            scored["champion"] = {"version": best.version, "unbiased": best.unbiased.model_dump()}
        scored |= {"compared": found} if (found := compared.facts(decision)) else {}
    except PerennialError:
        scored = {}
    data = config.paths.records / manifest.FILE
    return {
        "lock": files.sha256(dvc_lock.FILE) if dvc_lock.FILE.is_file() else None,
        "data": files.sha256(data) if data.is_file() else None,
        "decision": scored or None,
        "scores": _scores(config),
    }


def _scores(config: Config) -> dict[str, Any] | None:
    """The scores of the model that was decided on; None if a file of them is missing or of another model."""
    with suppress(PerennialError, OSError):
        found, predictions = read_results(config.paths), dvc_digests.digest(config.paths.predictions)
        scores = found.metrics.model_dump(include={"model", "loss", "examples", "per_class"})
        scores |= (key := score_fact(found.decision.candidate))
        if "map" in key:
            low, high = found.metrics.intervals["map_macro"].low, found.metrics.intervals["map_macro"].high
        else:
            intervals = importlib.import_module("perennial.model.evaluation.intervals")  # SciPy is slow
            low, high = intervals.share(round(scores["accuracy"] * scores["examples"]), scores["examples"])
        curve = [each.model_dump(include={"step", "loss", *key}) for each in found.training.evaluations]
        return {**scores, "low": low, "high": high, "evaluations": curve, "predictions": predictions}
    return None


def _devices() -> list[str]:
    """The devices that TensorFlow sees, if the stage has imported it."""
    if "tensorflow" not in sys.modules:
        return []
    config = sys.modules["tensorflow"].config
    found = [(each, config.experimental.get_device_details(each)) for each in config.list_physical_devices()]
    return [str(details.get("device_name", each.device_type)) for each, details in found]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
