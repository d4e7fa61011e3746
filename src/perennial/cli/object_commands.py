"""Commands for DVC's objects: `remote`, `audit`, and `gc`, which also cleans other growing folders."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import typer

from perennial.base import config, files
from perennial.base.choices import is_bucket
from perennial.base.config.fields import refused_texts, shown
from perennial.base.dvc import dvc_program
from perennial.base.dvc.dvc_program import DvcError
from perennial.base.errors import ConfigError, DataError, PerennialError, redacted
from perennial.cli import LISTED
from perennial.cli.command import command, exclusive, output
from perennial.cli.option_types import PARAMS, ParamsOption, argument, location, switch, typed

app = typer.Typer(rich_markup_mode=None)
_remote = typer.Typer(no_args_is_help=True)
UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
app.add_typer(_remote, name="remote", help=LISTED["remote"].about)


@command(_remote, "add", "Add a DVC remote that verifies what it reads; the first is the default.")
def _add(
    name: str = argument("Name of the remote.", metavar="NAME"),
    url: str = location("s3://, a folder, or another URL that DVC takes.", "URL", argument),
    *,
    default: bool = switch("--default", "Make it the default, even if there is one."),
) -> None:
    if any(refused_texts({"url": url})):
        raise ConfigError(
            f"URL must not hold a user, password or token, since git keeps it; got {shown(url)}; "
            "boto3 and DVC read them from the environment"
        )
    # DVC would write a path relative to .dvc, which the checkout of a run has elsewhere.
    if not is_bucket(url) and "://" not in url:
        url = os.path.abspath(os.path.expanduser(url))  # noqa: PTH100, PTH111 - `..` is no part of it
    if not url.isascii():
        raise ConfigError(
            f"DVC cannot write {shown(url)} into its configuration, which takes ASCII; nothing was changed; "
            "name a link to the folder instead (`ln -s`)"
        )
    file = dvc_program.root() / ".dvc" / "config"
    options, before = dvc_program.configuration(), file.read_bytes() if file.is_file() else b""
    default |= options.get("core.remote") in {None, name}
    known = options.get(f"remote.{name}.url")
    if known not in {None, url}:
        raise ConfigError(
            f"there is a remote {name} already, at {redacted(known or '')}; nothing was changed; "
            f"choose another name, or remove it first: `dvc remote remove {name}`"
        )
    try:
        if known is None:
            dvc_program.run("remote", "add", name, url)
        dvc_program.run("remote", "modify", name, "verify", "true")  # else it accepts damaged objects
        if default:
            dvc_program.run("remote", "default", name)
    except DvcError as error:
        files.write_bytes(file, before)  # DVC empties it before it finds what it cannot write
        raise PerennialError(f"{error}; no remote was added") from error
    text = f"{name}: {url}, not asked yet{'; the default' if default else ''}; commit .dvc/config"
    output({"name": name, "url": url, "default": default, "verify": True}, text)


@command(app, "audit")
def _audit(
    params: ParamsOption = PARAMS,
    *,
    rev: str = typed("Version, branch, tag or commit to audit.", default="HEAD", metavar="REV"),
    all_: bool = switch("--all", "Audit all branches and tags."),
    remote: str | None = typed("DVC remote. [default: the default one]", metavar="NAME"),
    deep: bool = switch("--deep", "Read every object instead of only listings."),
    repair: bool = switch("--repair", "Copy damaged and missing objects from where they are intact."),
) -> None:
    from perennial.release.audit import object_audit, sides
    from perennial.release.registry import access

    exclusive(rev=rev != "HEAD", all=all_)
    checked = config.load(params)
    opened = access.open_registry(checked, whole=True) if all_ else access.with_history(checked, rev)
    repository = opened.repository
    named = [] if all_ else [access.find(repository, checked.record.artifact, rev)[1]]
    revisions = named or object_audit.ends(repository)
    cache, archive = sides.open_sides(remote)
    spare = sides.open_cache_of_runs(files.home())
    done = object_audit.audit(repository, revisions, cache, archive, spare=spare, deep=deep, repair=repair)
    unseen = ["older revisions, which this shallow clone lacks"] if repository.is_shallow() else []
    unseen += [f"what {opened.remote} had later than the last fetch"] if opened.unreachable else []
    document = {"ok": done.ok, "revisions": len(revisions), "objects": done.objects}
    problems = list(map(_problem, done.problems))
    lines = _audit_lines(done, len(revisions), unseen)
    output({**document, "unseen": unseen, "problems": problems}, lines)
    if done.lost:
        raise DataError(
            f"{len(done.lost)} of {done.objects} objects are intact neither in the caches of this machine nor "
            "in the remote; nothing was removed; a worker or another clone may hold them: `perennial audit "
            "--all --repair` there, or `dvc repro` here"
        )
    if wrong := done.recorded_wrongly:
        raise DataError(
            f"{len(wrong)} revision{'s' if len(wrong) > 1 else ''}: dvc.lock records other parameters or code "
            "than the training or the gate used; nothing was changed; `perennial rebuild REV` makes the "
            "recorded model"
        )


def _problem(found: Any) -> dict[str, Any]:
    return {
        "kind": found.kind, "path": found.need.path, "stage": found.need.stage,
        "revision": found.need.revision, "where": found.where, "digest": found.need.digest,
        "repaired": found.repaired, "why": found.why or None,
    }  # fmt: skip


def _audit_lines(done: Any, revisions: int, unseen: Sequence[str]) -> Iterator[str]:
    yield from map(str, done.problems)
    left = sum(not each.repaired for each in done.problems)
    number = f"{left} problem{'s' if left > 1 else ''}" if left else "all intact"
    rest = f"; not checked: {', and '.join(unseen)}" if unseen else ""
    yield f"{revisions} revision{'s' if revisions > 1 else ''}, {done.objects} objects: {number}{rest}"


@command(app, "gc")
def _gc(
    params: ParamsOption = PARAMS,
    *,
    days: float = typed("Keep what was made or used in the last DAYS days.", default=14, min=0, max=36500),
    yes: bool = switch("--yes", "Remove it; by default, only list it."),
) -> None:
    from perennial.release.garbage import collect

    checked = config.load(params)
    rows = list(collect.collect(checked, files.home(), days=days, yes=yes))
    total = sum(row.garbage_bytes for row in rows)
    document = {"removed": yes, "days": days, "bytes": total, "places": list(map(asdict, rows))}
    output(document, _rows(rows, total, yes=yes))
    if problems := [f"{row.what} {_short(row.where)}: {row.problem}" for row in rows if row.problem]:
        rest = "what could be removed elsewhere was" if yes else "the other places are listed"
        raise PerennialError(f"{'; '.join(problems)}; {rest}")


def _short(where: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() fails for a user without one
    return f"~{where.removeprefix(home)}" if where.startswith(f"{home}/") else where


def _rows(rows: Sequence[Any], total: int, *, yes: bool) -> Iterator[str]:
    verb = "removed" if yes else "can be removed"
    yield f"{'':<16} {'in total':>19}  {verb:>19}"
    for row in rows:
        held, gone = _amount(row.number, row.bytes), _amount(row.garbage_number, row.garbage_bytes)
        kept = f"; {row.kept}" if row.kept else ""
        yield f"{row.what:<16} {held:>19}  {gone:>19}  {_short(row.where)}{kept}"
    hint = "" if yes or not total else "; `perennial gc --yes` removes it"
    yield f"{verb}: {total:,} bytes{hint}"


def _amount(number: int, size: float) -> str:
    unit, factor = next(((unit, factor) for unit, factor in UNITS if size >= factor), ("B", 1))
    return f"{number:,}, {size / factor:,.1f} {unit}" if factor > 1 else f"{number:,}, {size:,.0f} B"
