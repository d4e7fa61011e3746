"""The command `runs`: list, show and compare the records of runs."""

import importlib
import json
from typing import Annotated, Any

import typer

from perennial import config
from perennial.cli.runner import PARAMS, DebugOption, JsonOption, ParamsOption, command, guarded, print_json
from perennial.errors import ConfigError

app = typer.Typer(help="List, show and compare runs.", invoke_without_command=True)
KnownRun = Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or the start of it.")]
NewRun = Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.")]
SHOWN = ("run", "started", "ended", "revision", "changes", "lock", "data", "decision")


@app.callback()
def _list(
    context: typer.Context,
    params: ParamsOption = PARAMS,
    *,
    last: Annotated[int, typer.Option(min=1, help="How many.")] = 20,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    def show() -> None:
        listed = _module().listing(config.load(params), last)
        if as_json:
            print_json(listed)
            return
        for each in listed:
            scored = (each.get("decision") or {}).get("accuracy")
            shown = "-" if scored is None else f"{scored:.4f}"
            typer.echo(f"{each['run']:<36}  {str(each['started'])[:19]}  {shown:>6}  {_outcome(each)}")
        if not listed:
            typer.echo("no run is recorded here; `git fetch` gets those that were pushed")

    if context.invoked_subcommand is None:
        guarded("runs", show, debug=debug)


@command(app, "runs show", "Print the record of a run.")
def _show(run: KnownRun, params: ParamsOption = PARAMS, *, as_json: JsonOption = False) -> None:
    found = _module().find(config.load(params), run)
    if as_json:
        print_json(found)
        return
    facts = {key: found.get(key) for key in SHOWN} | {"outcome": _outcome(found)}
    facts |= {f"stage {each['stage']}": f"{each['started']} to {each['ended']}" for each in found["stages"]}
    typer.echo("\n".join(f"{name:<20} {value}" for name, value in facts.items() if value is not None))


@command(app, "runs compare", "Print in which code, data, parameters, packages and results two runs differ.")
def _compare(
    one: Annotated[str, typer.Argument(metavar="A", help="Name of a run, or the start of it.")],
    other: Annotated[str, typer.Argument(metavar="B", help="The other run.")],
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
) -> None:
    module, checked = _module(), config.load(params)
    a, b = module.find(checked, one), module.find(checked, other)
    found = module.differences(a, b)
    if as_json:
        print_json({"a": a["run"], "b": b["run"], "differences": found})
        return
    lines = [f"{each['what']}: {each['a']} -> {each['b']}" for each in found]
    typer.echo("\n".join(lines or ["nothing differs"]))


@command(app, "runs start", "Write the record of a run that starts.", hidden=True)
def _start(
    run: NewRun,
    params: ParamsOption = PARAMS,
    *,
    request: Annotated[str, typer.Option(help="JSON object: what the run was asked to do.")] = "{}",
) -> None:
    _module().start(config.load(params), run, _json_object("--request", request))


@command(app, "runs end", "Add to the record of a run how it ended.", hidden=True)
def _end(
    run: NewRun,
    params: ParamsOption = PARAMS,
    *,
    outcome: Annotated[str, typer.Option(help="Name of the state that the run ended in.")] = "Completed",
    message: Annotated[str | None, typer.Option(help="Message of that state.")] = None,
    results: Annotated[str, typer.Option(help="JSON object: how DVC dealt with each stage.")] = "{}",
) -> None:
    _module().end(config.load(params), run, outcome, message, _json_object("--results", results))


def _json_object(option: str, text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{option} must be a JSON object: {error}") from error


def _module() -> Any:
    return importlib.import_module("perennial.registry.runs")


def _outcome(record: dict[str, Any]) -> str:
    """How a run ended; where nothing says so, how far it came."""
    known = [str(record[key]) for key in ("outcome", "recorded") if record.get(key)]
    if known:
        return ", ".join(known)
    stages = record.get("stages") or []
    if not stages:
        return "started"
    last = stages[-1]
    return f"not ended, {'after' if last['exit_code'] == 0 else 'in'} {last['stage']}"
