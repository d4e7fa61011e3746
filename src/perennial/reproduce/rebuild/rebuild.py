"""Rebuild a revision from git and DVC's remote, and compare it with its dvc.lock, stage by stage."""

import hashlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from perennial.base.config import Config
from perennial.base.config.paths import FIXED
from perennial.base.devices import processor
from perennial.base.dvc import dvc_lock
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project.git import Repository
from perennial.base.project.pins import SourcePin
from perennial.release.audit import sides
from perennial.release.audit.object_audit import audit
from perennial.release.audit.sides import DvcObjects
from perennial.release.registry import access
from perennial.release.registry.versions import Version
from perennial.reproduce.rebuild import rebuild_inputs, stage_differences
from perennial.reproduce.rebuild.rebuild_inputs import PathHistory
from perennial.reproduce.rebuild.stage_differences import Difference, Made
from perennial.reproduce.rebuild.workspace import DvcFailed, Workspace, workspace

log = logging.getLogger(__name__)
State = Literal["equal", "different", "source gone", "not rebuilt"]


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """The result of a rebuild.

    source gone: the stage did not run, because its source no longer exists or differs from its pin;
    its outputs came from DVC's remote if `restored` names it. not rebuilt: an earlier stage failed.
    """

    commit: str
    version: Version | None
    stages: dict[str, State]
    restored: tuple[str, ...]
    outputs: dict[str, dict[str, tuple[str | None, str | None]]]  # by stage and path: recorded, rebuilt
    causes: tuple[Difference, ...]
    equal: bool
    lock_sha256: tuple[str, str]  # of dvc.lock: recorded, rebuilt
    seconds: float


def rebuild(config: Config, revision: str, *, keep: bool = False) -> Rebuilt:
    """Rebuild a version, branch, tag or commit: run every stage in a clean checkout with an empty cache.

    Stages that read from outside git run if their source still matches its pin; else DVC's remote has the
    originals. `keep`: do not remove the checkout.
    """
    started, git = time.monotonic(), access.with_history(config, revision).repository
    version, commit = access.find(git, config.record.artifact, revision)
    if git.read(commit, dvc_lock.FILE) is None:
        raise ConfigError(f"commit {commit[:10]} has no dvc.lock, so there is nothing to compare with")
    with workspace(git, commit, keep=keep) as work:
        recorded = work.lock.read_bytes()
        entries = dvc_lock.parse(recorded.decode("utf-8", "replace"), f"dvc.lock of {commit[:10]}")
        run = stage_differences.facts_of_run(config, version, hashlib.sha256(recorded).hexdigest())
        done = _Building(git, commit, _with_threads(work, run), entries, run)
        done.build()
        rebuilt = work.lock.read_bytes()
    whole = all(state == "equal" or name in done.restored for name, state in done.states.items())
    return Rebuilt(
        commit=commit, version=version, stages=done.states, restored=tuple(done.restored),
        outputs=done.outputs, causes=(*done.inputs, *done.others), equal=whole and not done.inputs,
        lock_sha256=(hashlib.sha256(recorded).hexdigest(), hashlib.sha256(rebuilt).hexdigest()),
        seconds=time.monotonic() - started,
    )  # fmt: skip


def _with_threads(work: Workspace, run: Made) -> Workspace:
    """Set the number of threads in the checkout to that of the original run."""
    cores, here = run.machine.get("cores"), processor.cores()
    if not isinstance(cores, int) or cores == here:
        return work
    log.info("made on %d cores: TensorFlow gets as many threads here, on %d cores", cores, here)
    return replace(work, threads=cores)


class _Building:
    """The stages of one revision, one after the other, and what was found."""

    def __init__(
        self, git: Repository, commit: str, work: Workspace, entries: dict[str, LockedStage], run: Made
    ) -> None:
        self._git, self._commit, self._work, self._entries, self._run = git, commit, work, entries, run
        self._history = PathHistory(git)
        self._makers = {out: name for name, entry in entries.items() for out in entry.outs}
        self._changed: dict[str, list[str]] = {}  # by stage: your own data that differ from the recorded data
        self.states: dict[str, State] = {}
        self.restored: list[str] = []
        self.outputs: dict[str, dict[str, tuple[str | None, str | None]]] = {}
        self.inputs: list[Difference] = []  # that differ and determine the result
        self.others: list[Difference] = []

    def build(self) -> None:
        """Run and compare every stage."""
        rebuild_inputs.bring(self._git, self._work, self._history, self._commit)
        for stage in self._work.stages() - self._entries.keys():
            self._add(Difference("code", stage, f"the stage {stage} in dvc.yaml", None, "not in dvc.lock"))
        for stage, entry in self._entries.items():
            self._look_at_inputs(stage, entry)
        for stage in dvc_lock.ordered(self._entries):
            before = {self.states[name] for name in self._makers_of(stage) if name not in self.restored}
            if "source gone" in before:
                self.states[stage] = "source gone"
            elif "not rebuilt" in before:
                self.states[stage] = "not rebuilt"
            else:
                self._stage(stage, self._entries[stage])
            log.info("%s: %s", stage, self.states[stage])
        self.others += [*self._remote_problems(), *self._recorded_wrongly()]

    def _look_at_inputs(self, stage: str, entry: LockedStage) -> None:
        """Compare the files in git with dvc.lock before anything runs."""
        moved = rebuild_inputs.changed_source(self._history, entry, self._work, self._commit)
        self._changed[stage] = moved
        now = rebuild_inputs.current(entry, self._work.folder)
        found = [
            *stage_differences.differing_inputs(stage, entry, now, self._makers),
            *rebuild_inputs.other_packages(stage, entry, self._work.packages),
        ]
        for each in found:
            if each.what not in moved:
                self._add(each)

    def _stage(self, stage: str, entry: LockedStage) -> None:
        log.info("%s: running", stage)
        if moved := self._changed[stage]:
            self._restore(stage, entry, f"{', '.join(moved)} is missing or not what dvc.lock records")
            return
        before = self._work.lock.read_bytes()
        try:
            self._work.repro(stage)
        except DvcFailed as error:
            if stage in rebuild_inputs.FETCHED:
                self._restore(stage, entry, str(error))
                return
            self.states[stage] = "not rebuilt"
            self.others.append(Difference("failure", stage, f"{stage} failed", None, str(error)))
            return
        self._compare(stage, entry, before)

    def _compare(self, stage: str, entry: LockedStage, before: bytes) -> None:
        """Compare a stage after its run; `before` is the previous content of dvc.lock."""
        rebuilt = dvc_lock.parse(self._work.lock.read_text(encoding="utf-8"), "the rebuilt dvc.lock")[stage]
        both = stage_differences.outputs(entry, rebuilt)
        outs = [path for path, (was, now) in both.items() if was != now]
        same_inputs = entry.inputs() == rebuilt.inputs()
        explained = any(each.kind == "packages" for each in self.inputs)
        if outs and same_inputs and stage in rebuild_inputs.FETCHED and not explained:
            self._work.lock.write_bytes(before)  # names what to restore
            self._restore(stage, entry, f"it holds other bytes now: {', '.join(outs)} would differ")
            return
        for each in stage_differences.differing_inputs(stage, entry, rebuilt, self._makers):
            self._add(each)
        if outs and same_inputs and not explained:
            self.others.extend(stage_differences.explain(stage, entry, self._run, self._work.packages))
        self.outputs[stage] = both
        self.states[stage] = "different" if outs or not same_inputs else "equal"

    def _restore(self, stage: str, entry: LockedStage, why: str) -> None:
        """Restore the outputs of a stage from DVC's remote, because its source differs from its pin."""
        log.info("%s: %s; taking the originals from DVC's remote", stage, why)
        self.states[stage] = "source gone"
        self.others.append(self._moved(stage, why))
        try:
            rebuild_inputs.restore(self._work, stage, entry)
        except DvcFailed as error:
            self.others.append(Difference("remote", stage, ", ".join(entry.outs), "pushed", str(error)))
            return
        self.restored.append(stage)
        self.outputs[stage] = stage_differences.outputs(entry, entry)

    def _moved(self, stage: str, why: str) -> Difference:
        """The cause to report if a stage cannot read its original source again."""
        if stage == "initialize":
            return Difference("weights", stage, "initial weights", "pinned", why)
        values = self._work.values().get("dataset") or {}
        named = values.get("url") or values.get("base_url") or values.get("path") or "the source"
        pin = SourcePin.FILE.as_posix() if values.get("url") else "dvc.lock"
        return Difference("source", stage, str(named), f"as in {pin}", why)

    def _makers_of(self, stage: str) -> list[str]:
        entry = self._entries[stage]
        files = (*entry.deps, *(file for file, _ in entry.params))
        found = dict.fromkeys(dvc_lock.maker_of(file, self._makers) for file in files)
        return [name for name in found if name is not None and name != stage]

    def _add(self, difference: Difference) -> None:
        """Add an input that differs, once for all stages; a digest of code with its version of perennial."""
        recorded, now = difference.recorded, difference.rebuilt
        if difference.what.startswith(stage_differences.CODE_OF):
            then, here = (each and self._history.code(self._commit, str(each)) for each in (recorded, now))
            difference = replace(difference, recorded=then, rebuilt=here)
        if all(replace(each, stage=difference.stage) != difference for each in self.inputs):
            self.inputs.append(difference)

    def _remote_problems(self) -> Iterator[Difference]:
        """Yield objects of this revision that DVC's remote lacks or has with other bytes."""
        try:
            _, remote = sides.open_sides()
            if remote is None:
                return
            found = audit(self._git, [self._commit], remote, None, deep=remote.folder is not None, own=True)
        except (ConfigError, sides.Unsupported) as error:
            log.warning("DVC's remote was not compared with what the revision needs: %s", error)
            return
        except PerennialError as error:
            yield Difference("remote", "", "DVC's remote", "reachable", str(error))
            return
        for need in (each.need for each in found.lost):
            lost = "missing or damaged in DVC's remote"
            yield Difference("remote", need.stage or "", need.path, need.digest, lost)

    def _recorded_wrongly(self) -> Iterator[Difference]:
        """Yield what dvc.lock records otherwise than the stages wrote it about themselves."""
        for path in (FIXED[name] for name in dvc_lock.DESCRIBED):
            digest, stage = dvc_lock.digest(self._entries, path), dvc_lock.maker(self._entries, path)
            try:
                with DvcObjects() as objects:
                    content = objects.file(digest, path).read_bytes() if digest else b""
            except PerennialError as error:
                log.warning("what is in %s is not compared with dvc.lock: %s", path, error)
                continue
            for wrong in dvc_lock.contradictions(self._entries, path, content):
                what = "the training" if stage == "train" else stage
                yield Difference("record", stage or "", f"{what} in dvc.lock: {wrong}", "dvc.lock", path)
