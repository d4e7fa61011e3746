"""Commands for the registry: versions, the champion, pins, and the records of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import typer

from perennial.base import config, limits
from perennial.base.config import Config
from perennial.base.errors import ConfigError, QualityError
from perennial.base.project.pins import LABELS, SourcePin
from perennial.base.stage_state import recorded
from perennial.cli.command import command, exclusive, may_push, output, wants_json
from perennial.cli.option_types import PARAMS, PUSH, FetchOption, ParamsOption, argument, switch, typed
from perennial.cli.stage_commands import tie_to_checkout
from perennial.model.evaluation.results import scored_text

app = typer.Typer(rich_markup_mode=None)
PinName = StrEnum("PinName", ["source", "baseline", "weights", "champion"])


@command(app, "versions")
def _versions(params: ParamsOption = PARAMS, *, fetch: FetchOption = True) -> None:
    from perennial.release.registry import access, scores

    checked = config.load(params)
    opened = access.open_registry(checked, fetch=fetch, answer_s=limits.LOOK_S)
    registry = access.here(opened).registry
    listed = scores.listing(checked, registry)
    nothing = [f"{registry.artifact} has no version yet; `perennial promote` registers one"]
    rows = [_row(each, scores.lines(each) if each["champion"] else ()) for each in listed]
    output(listed, rows or nothing)


def _row(version: Mapping[str, Any], more: Sequence[str]) -> str:
    champion = "  champion" if version["champion"] else ""
    champion += "  only here" if version["only_here"] else ""
    scored, flips = scored_text(version, short=True) or "-", version["negative_flips"]
    scored = f"{scored:>6}" if flips is None else f"{scored:>6}  {100 * flips:.2f} % negative flips"
    first = f"{version['version']:<10} {version['commit'][:10]}  {version['date']}  {scored}{champion}"
    return "\n".join((first, *(f"{'':<10} {line}" for line in more)))


@command(app, "promote")
def _promote(
    params: ParamsOption = PARAMS,
    *,
    force: str | None = typed("Promote a rejected model; NAME is the person who decides.", metavar="NAME"),
    approve: str | None = typed("With gate.approval: NAME is the person who approves.", metavar="NAME"),
    because: str | None = typed("Reason for --force or --approve.", metavar="TEXT"),
    push: bool | None = PUSH,
) -> None:
    from perennial.release.registry import record

    if "" in {force, because, approve}:
        raise ConfigError("--force NAME, --approve NAME and --because TEXT are recorded, so none may be empty")
    if force is not None and because is None:
        raise ConfigError("--force NAME and --because TEXT go together: both are recorded")
    if because is not None and force is None and approve is None:
        raise ConfigError("--because TEXT goes with --force NAME or --approve NAME")
    exclusive(force=force, approve=approve)  # a forced one is approved by its person
    checked = config.load(params)
    tie_to_checkout(params)
    who = force or approve
    by_hand = record.ByHand(by=who, because=because, forced=bool(force)) if who else None
    pushes = may_push(checked, "the model's version", push=push)
    _require_recorded(checked)
    done = record.promote(checked, f"promote-{datetime.now(UTC):%Y%m%dT%H%M%SZ}", by_hand, push=pushes)
    output(asdict(done), done.message)


@command(app, "approve")
def _approve(
    run: str | None = argument("Name of the run, or the start of it.", default=None, metavar="[RUN]"),
    params: ParamsOption = PARAMS,
    *,
    by: str | None = typed("Person who decides, which is recorded.", metavar="NAME"),
    because: str | None = typed("Reason, which is recorded.", metavar="TEXT"),
    reject: bool = switch("--reject", "Do not promote the model."),
    expire: bool = switch("--expire", "", hidden=True),
) -> None:
    from perennial.release.registry import access, approval

    if run is None and (by or because or reject or expire):
        raise ConfigError("name the RUN to decide on; `perennial approve` lists those that wait")
    if (because or reject or by is not None) and not (by or "").strip():
        raise ConfigError("--by NAME says who decides; nothing was changed")
    checked = config.load(params)
    if run is None or not (by or expire):
        opened = access.open_registry(checked)
        found = [approval.find(checked, opened, run)] if run else approval.listing(checked, opened)
        scores = [scored_text(each.candidate, short=True) or "-" for each in found]
        rows = [
            f"{each.run:<36}  {each.since[:16]}  {scored:>6}  {approval.described(each)}"
            for each, scored in zip(found, scores, strict=True)
        ]
        document = asdict(found[0]) if run else list(map(asdict, found))
        output(document, rows or ["no model has asked for approval"])
        return
    answer: approval.Answer = "expire" if expire else "reject" if reject else "approve"
    done = approval.decide(checked, run, answer, by, because)
    if by:
        from perennial.orchestration.remote_runs import start_run

        start_run.wake(done.run)
    output(asdict(done), done.message)
    if by and done.state != approval.VERBS[answer]:
        raise QualityError(f"run {done.run} {approval.described(done)}; this decision changed nothing")


@command(app, "rollback")
def _rollback(
    version: str | None = argument(
        "Such as v0.0.3. [default: the previous champion]", default=None, metavar="[VERSION]"
    ),
    params: ParamsOption = PARAMS,
    *,
    push: bool | None = PUSH,
) -> None:
    from perennial.release.registry import access, current_champion

    checked = config.load(params)
    pushes = may_push(checked, "the rollback", push=push)
    target, moved, pushed = current_champion.rollback(checked, version, push=pushes)
    document = {"version": target.name, "commit": target.commit, "moved": moved, "pushed": pushed}
    already = "" if moved or pushed else " already"
    note = access.kept_here(checked, f"perennial rollback {target.name}") if moved and not pushes else ""
    output(document, f"{target.name} is champion{already}{note}")


def _require_recorded(checked: Config) -> None:
    """Check that dvc.lock has what the stages read."""
    if wrong := recorded.wrong(checked.paths.work):
        raise QualityError(f"no version is made of this model: {wrong}")


@command(app, "record")
def _record(run: str = argument("Name of the run.", metavar="RUN"), params: ParamsOption = PARAMS) -> None:
    from perennial.release.registry import record

    checked = config.load(params)
    tie_to_checkout(params)
    _require_recorded(checked)
    done = record.record(checked, run)
    output(asdict(done), f"{done.outcome}: {done.message}")


@command(app, "pin")
def _pin(
    parts: list[PinName] | None = argument(
        "source, baseline, weights or champion. [default: all]", default=None, metavar="PART"
    ),
    params: ParamsOption = PARAMS,
    *,
    fetch: FetchOption = True,
    check: bool = switch("--check", "Pin nothing; check that models can be compared with the champion."),
) -> None:
    from perennial.release.registry import current_champion

    checked, pinned = config.load(params), {}
    if check:
        if parts not in (None, ["champion"]):
            raise ConfigError("--check is about the champion; pin the other parts without it")
        name = current_champion.require_available(checked, fetch=fetch)
        output({"champion": name}, f"champion: {name or 'none yet'}")
        return
    for name in parts or PinName:
        pinned[name] = _pinned(checked, name, fetch=fetch)
        if not wants_json():
            typer.echo(_line(name, pinned[name]))
    if wants_json():
        output(pinned, "")


def _pinned(checked: Config, name: PinName, *, fetch: bool) -> dict[str, Any]:
    """Pin one part; returns its new content, and for the champion whether it changed."""
    from perennial.release.registry import current_champion

    if name == "champion":
        champion, changed = current_champion.pin(checked, fetch=fetch)
        return {**champion.model_dump(), "changed": changed}
    if name == "source" and checked.dataset.url is None and not LABELS.exists():  # avoids an import
        source = SourcePin()
        source.write()
        return source.model_dump()
    from perennial.data.sources import pin, previous, weights

    if name == "source":
        return pin.pin(checked).model_dump()
    if name == "baseline":
        return previous.pin(checked.paths).model_dump()
    return weights.pin(checked, current_champion.teacher(checked, fetch=fetch)).model_dump()


def _line(name: PinName, pinned: Mapping[str, Any]) -> str:
    if name == "champion":
        named = f"{pinned['version']} ({pinned['commit'][:10]})" if pinned["version"] else "none yet"
        return f"champion: {named}{'' if pinned['changed'] else ', as before'}"
    if name == "source":
        held = "{url}: {objects:,} objects, {bytes:,} bytes"
        labels = f"; {LABELS}" if pinned["labels_sha256"] else ""
        return f"source: {held.format(**pinned) if pinned['url'] else 'no dataset.url'}{labels}"
    if name == "weights":
        paths = [_weights(each) for each in pinned.values() if each]
        return f"weights: {'; '.join(paths) or 'random'}"
    return f"baseline: {pinned['dataset'] or 'no earlier version of the data'}"


def _weights(pinned: Mapping[str, Any]) -> str:
    if "commit" in pinned:
        return f"teacher {pinned['version'] or 'none: no champion yet'}"
    return f"{pinned['path']}, {pinned['file'] or format(pinned['bytes'], ',') + ' bytes'}"
