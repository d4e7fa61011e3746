"""The champion (the version in use, and the next model's opponent), and how it changes."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.config.paths import FIXED
from perennial.base.dvc import dvc_lock, dvc_program
from perennial.base.dvc.dvc_lock import LockedStage
from perennial.base.errors import DataError, PerennialError
from perennial.base.project.pins import ChampionPin, PinnedTeacher, WeightsPin
from perennial.model.evaluation.results import Decision
from perennial.release.gate import compared
from perennial.release.gate.compared import Budget
from perennial.release.registry import access, remote_tags, revision, run_records, verdict, versions
from perennial.release.registry.access import OpenRegistry, open_registry
from perennial.release.registry.push import push_references
from perennial.release.registry.versions import Registry, Version

UNKNOWN = "no version is known here, so %s stays pinned; `git fetch --tags` gets them"
LAST = 10  # records of runs here that are read, with all decisions on branches
log = logging.getLogger(__name__)
Verdict = Literal["promote", "reject", "compare again"]  # the last: the champion has changed since


def pin(config: Config, *, fetch: bool = False) -> tuple[ChampionPin, bool]:
    """Pin the champion as the opponent of this checkout's model; returns the pin and whether it changed."""
    # The pin stays unchanged if this model is the champion itself or was rolled back.
    old = ChampionPin.read()
    try:
        opened = open_registry(config, fetch=fetch)
    except PerennialError as error:
        log.warning("%s stays pinned: %s", old.version or "no champion", error)
        return old, False
    champion = opened.registry.champion
    if champion is None:
        if old.version is not None and (not fetch or opened.unreachable or not opened.remote):
            log.warning(UNKNOWN, old.version)
            return old, False
        new = ChampionPin()
    elif same := _same_model(config, opened, champion, *opened.registry.rolled_back):
        log.info("the model here is that of %s, so the champion it was compared with stays pinned", same.name)
        return old, False
    else:
        state = _budget(config, opened.registry, champion.name)
        new = ChampionPin(commit=champion.commit, version=champion.name, **state)
    return new, new.write()


def teacher(config: Config, *, fetch: bool = False) -> PinnedTeacher | None:
    """The version that `train.teacher` names, as this repository knows it; None if it names none."""
    if (name := config.train.teacher) is None:
        return None
    opened, old = open_registry(config, fetch=fetch), WeightsPin.read().teacher
    asked = fetch and opened.remote and not opened.unreachable
    registry = open_registry(config, fetch=False).registry  # with versions that are not pushed yet
    if not registry.versions and not asked and old and old.path == name and old.version:
        log.warning(UNKNOWN, f"the teacher {old.version}")
        return old
    found = registry.champion if name == "champion" else registry.named(name)
    return PinnedTeacher(path=name, **({"version": found.name, "commit": found.commit} if found else {}))


def _budget(config: Config, registry: Registry, opponent: str) -> Mapping[str, int]:
    """The state of the budget for this checkout's model (gate.false_share); empty without a budget.

    A model that was compared with this opponent before, as by a run that is recorded again, has its old state.
    """
    if config.gate.false_share is None:
        return {}
    ours = None
    with suppress(PerennialError):
        ours = documents.read_json(config.paths.training).get("weights_sha256")
    here = (record.get("decision") or {} for record in run_records.listing(config, LAST))
    values = [version.facts.get("compared") for version in registry.versions]
    values += [each.get("compared") for each in (*here, *run_records.pushed_decisions(config))]
    found = [*compared.parsed(values)]
    for each in found:
        if (each.model, each.opponent) == (ours, opponent) and each.comparisons is not None:
            return Budget(each.comparisons, each.promotions)._asdict()
    return compared.budget_after(found, config.gate)._asdict()


def require_available(config: Config, *, fetch: bool = False) -> str | None:
    """Check, before a training, that its model can be compared with the champion; returns the champion."""
    opened = open_registry(config, fetch=fetch)
    champion = opened.registry.champion
    if champion is None:
        return None
    path = FIXED["predictions"]
    if dvc_lock.digest(revision.recorded(champion.commit), path) is None:
        return champion.name  # the stage `champion` says what such a version lacks
    with tempfile.TemporaryDirectory(prefix="perennial-") as folder:
        try:
            revision.fetch_output(champion.commit, path, Path(folder, "predictions"))
        except PerennialError as error:
            start = f"a new model could not be compared with the champion {champion.name}; nothing was trained"
            if "core.remote" in dvc_program.configuration():
                raise PerennialError(f"{start}: {error}") from error
            raise DataError(
                f"{start}: {path} of commit {champion.commit[:10]} is not in DVC's cache on this machine, and "
                "the project has no DVC remote; in the checkout in which it was promoted, run "
                "`perennial remote add NAME URL`, `dvc push`, commit .dvc/config and push it"
            ) from error
    return champion.name


def judge(config: Config, opened: OpenRegistry, decision: Decision) -> tuple[Verdict, str]:
    """Judge whether the model of this checkout may become champion; the text says why not."""
    if not decision.promote:
        return "reject", verdict.sentence(decision)
    champion, rolled_back = opened.registry.champion, opened.registry.rolled_back
    if back := _same_model(config, opened, *rolled_back):
        undo = f"`perennial rollback {back.name}` makes it champion again"
        return "reject", f"this is the model of {back.name}, which was rolled back; {undo}"
    if champion is None or not _same_model(config, opened, champion):
        now, pinned = champion and champion.name, ChampionPin.read().version
        if now != pinned:
            why = f"compared with {pinned or 'no champion'}, but the champion is {now or 'none'} now"
            return "compare again", f"{why}; the gate must run again"
    elif is_champion(config, opened):
        return "reject", f"this is the model of the champion {champion.name}"
    return "promote", ""


def is_champion(config: Config, opened: OpenRegistry) -> bool:
    """Whether the export of this checkout is the champion's."""
    champion = opened.registry.champion
    return champion is not None and _same_output(opened, (champion,), config.paths.export) is not None


def rolled_back(config: Config, opened: OpenRegistry) -> Version | None:
    """The version with this checkout's export, if it was rolled back."""
    return _same_output(opened, opened.registry.rolled_back, config.paths.export)


def rollback(config: Config, version: str | None = None, *, push: bool = True) -> tuple[Version, bool, bool]:
    """Make an earlier version champion again; returns it, and whether the champion changed and was pushed."""
    opened = access.open_for_change(config, push=push)
    registry = opened.registry
    target = registry.named(version) if version else registry.previous()
    before = registry.champion
    moved = before is None or before.name != target.name
    tags = dict[str, str]()
    if moved:
        facts = {"rollback": {"from": before and before.name, "to": target.name}}
        subject = f"{registry.artifact} {target.name}: champion after a rollback"
        tags = versions.assignment(opened.repository, registry, target.commit, subject, facts)
    if opened.remote and tags:
        _push(opened, opened.remote, tags)
    remote_tags.update(opened.repository, tags, pushed=bool(opened.remote))
    return target, moved, bool(opened.remote and tags)


def _push(opened: OpenRegistry, remote: str, tags: Mapping[str, str]) -> None:
    pushed = push_references(opened.repository, remote, tags)
    if not pushed.done:
        reason = f"another champion was assigned meanwhile ({pushed})" if pushed.lost else str(pushed)
        remedy = None if pushed.lost else pushed.remedy
        what_next = f"{remedy or 'look at `perennial versions`'}, then run this again"
        raise PerennialError(f"nothing was changed: {reason}; {what_next}", kind=pushed.kind)


def _same_model(config: Config, opened: OpenRegistry, *known: Version) -> Version | None:
    """The version whose scores are those of this checkout's model: with its weights and `export.mirror`."""
    ours = _mirrors(dvc_lock.here())
    same = [each for each in known if _mirrors(_recorded(opened, each)) == ours]
    return _same_output(opened, same, config.paths.model)


def _mirrors(stages: Mapping[str, LockedStage]) -> bool:
    return "evaluate" in stages and bool(stages["evaluate"].params.get(("params.yaml", "export.mirror")))


def _same_output(opened: OpenRegistry, known: Sequence[Version], path: Path) -> Version | None:
    """The version whose output at this path has the digest of this checkout's."""
    ours = dvc_lock.digest(dvc_lock.here(), path)
    for each in known if ours else ():
        if dvc_lock.digest(_recorded(opened, each), path) == ours:
            return each
    return None


def _recorded(opened: OpenRegistry, version: Version) -> Mapping[str, LockedStage]:
    return dvc_lock.entries(opened.repository.read(version.commit, dvc_lock.FILE))
