"""Commands for runs: `run` starts one, `status` and `runs` show them, `monitor` checks whether one is due."""

import dataclasses
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from perennial.base import config
from perennial.base.errors import ConfigError, InputsChanged, Interrupted, PerennialError
from perennial.base.layout import Project
from perennial.base.processes import process
from perennial.base.retries import TERMINAL_PAUSES_S
from perennial.base.stage_state import recorded
from perennial.cli import LISTED
from perennial.cli.command import (
    command,
    enter_project,
    guarded,
    key_and_value,
    option_object,
    output,
    wants_json,
)
from perennial.cli.option_types import (
    PARAMS,
    DebugOption,
    FetchOption,
    JsonOption,
    ParamsOption,
    argument,
    switch,
    typed,
)
from perennial.cli.stage_commands import tie_to_checkout
from perennial.release.registry import run_records
from perennial.reports.runs import run_table

app = typer.Typer(rich_markup_mode=None)
PAGE = "runs.html"
LAST, ALL = 20, 100_000  # runs in a table, and on a page
A_RUN = "Name of a run, or the start of it."


class _Runs(TyperGroup):
    """The group `runs`, whose option `--page` may stand without its value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the usual file where `--page` names none."""
        after = args.index("--page") + 1 if "--page" in args else 0
        if after and (after == len(args) or args[after].startswith("-")):
            args = [*args[:after], PAGE, *args[after:]]
        return super().parse_args(ctx, args)


_records = typer.Typer(cls=_Runs, invoke_without_command=True)
app.add_typer(_records, name="runs", help=LISTED["runs"].about, epilog="More: `perennial docs runs`.")


@_records.callback()
def _list_records(
    context: typer.Context,
    params: ParamsOption = PARAMS,
    *,
    last: int | None = typed(f"How many. [default: {LAST}; on a page all]", min=1),
    page: Path | None = typed("--page", f"Write a page of them. [default: {PAGE}]", metavar="[FILE]"),
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    def run() -> None:
        if name := context.invoked_subcommand:
            raise ConfigError(f"options of `perennial runs {name}` stand behind {name}; nothing was done")
        enter_project(context.params)
        checked, file = config.load(params), context.params["page"]
        found = run_records.listing(checked, last or (ALL if page else LAST))
        rows = run_table.rows(checked, found)
        if file is not None:
            from perennial.reports.runs import runs_page

            runs_page.write(file, rows, found, checked.gate)
            output({"page": str(page), "runs": len(rows)}, f"{page}: {len(rows)} runs")
            return
        lines = run_table.lines(rows, shutil.get_terminal_size().columns)
        listed = [{**record, "row": dataclasses.asdict(row)} for record, row in zip(found, rows, strict=True)]
        output(listed, lines)

    if context.invoked_subcommand is None or as_json or debug or last or page or params != PARAMS:
        guarded("runs", run, debug=debug, as_json=as_json)


@command(_records, "show", "Print the record of a run.")
def _show_record(run: str = argument(A_RUN, metavar="RUN"), params: ParamsOption = PARAMS) -> None:
    checked = config.load(params)
    found = run_records.find(checked, run)
    output(found, run_table.record_lines(found, run_table.rows(checked, [found])[0]))


@command(_records, "compare", "Compare two runs: what changed, scores, classes, the same test images.")
def _compare_records(
    one: str = argument(A_RUN, metavar="A"),
    other: str = argument("The other run.", metavar="B"),
    params: ParamsOption = PARAMS,
) -> None:
    from perennial.reports.runs import run_comparison
    from perennial.reproduce.why import differences

    checked = config.load(params)
    a, b = run_records.find(checked, one), run_records.find(checked, other)
    found = run_comparison.document(checked, a, b, differences.between_runs(checked, a["run"], b["run"]))
    output(found, run_comparison.lines(found, shutil.get_terminal_size().columns))


@command(_records, "start", "Write the record of a run that starts.", json=False, hidden=True)
def _start_record(
    run: str = argument("Name of the run.", metavar="RUN"),
    params: ParamsOption = PARAMS,
    *,
    request: str = typed("JSON object: the parameters of the run.", default="{}"),
) -> None:
    checked, values = config.load_with_values(params)
    if wrong := recorded.wrong(checked.paths.work, (params, values)):
        raise InputsChanged(f"{wrong}; nothing was started")
    run_records.start(checked, run, option_object("--request", request))


@command(_records, "end", "Add to the record of a run that it was cut off.", json=False, hidden=True)
def _end_record(
    run: str = argument("Name of the run.", metavar="RUN"),
    params: ParamsOption = PARAMS,
    *,
    outcome: str = typed("Name of the state that the run ended in.", default=...),
    message: str | None = typed("Message of that state."),
) -> None:
    run_records.end(config.load(params), run, outcome, message, {})


@command(app, "run")
def _run(
    name: str | None = argument(
        "Deployment, such as nightly, or FLOW/NAME. [default: run here]", default=None, metavar="[NAME]"
    ),
    assign: list[str] | None = typed(
        "--set", "Value of a key of params.yaml for this run; repeatable.", metavar="KEY=VALUE"
    ),
    rev: str | None = typed("Branch, tag or commit to run. [default: the default branch]"),
    *,
    push: bool | None = typed("--push/--no-push", "Commit and push. [default: the deployment's]"),
    publish_to: str | None = typed("Publish here instead of to publish.url.", metavar="FOLDER|URL"),
    reason: str | None = typed("Reason, kept in the record and the commit.", metavar="TEXT"),
    when_busy: Literal["end", "wait"] | None = typed("What to do while another run is active."),
    watch: bool = switch("--watch", "Wait until the run ends, and exit with its code."),
) -> None:
    parameters: dict[str, object] = {
        "rev": rev, "push": push, "publish_to": publish_to, "reason": reason, "when_busy": when_busy,
    }  # fmt: skip
    if publish_to and "://" not in publish_to:  # a run works elsewhere
        parameters["publish_to"] = str(Path(publish_to).absolute())
    given = {key: value for key, value in parameters.items() if value is not None}
    if name and "=" in name:
        raise ConfigError(f"{name} is no deployment; each KEY=VALUE needs a --set of its own")
    if name is None:
        _run_here(assign or [], alone=not (given or watch or wants_json()))
    from perennial.orchestration.client import prefect_server
    from perennial.orchestration.remote_runs import start_run

    if overrides := dict(map(key_and_value, assign or ())):
        given["overrides"] = overrides
    if rev is None:  # another revision may have other keys
        start_run.require_options(overrides)
    server = prefect_server.connect(pauses=TERMINAL_PAUSES_S)
    run = start_run.start(server, *_deployment(name, given))
    if watch:
        run = _watched(server, run)
    text = f"{run.deployment}: run {run.name} ({run.id}): {run.described}"
    output(dataclasses.asdict(run), text)
    sys.exit(run.exit_code)


def _run_here(assign: Sequence[str], *, alone: bool) -> NoReturn:
    """Become the flow of the project, in its environment; `alone`: without other options."""
    if not alone:
        raise ConfigError(
            "without a deployment's NAME, `perennial run` runs here and takes only --set; name one, such as "
            "nightly"
        )
    from perennial.orchestration.run_setup import run_environment

    run_environment.become("flows.retrain", [part for each in assign for part in ("--set", shlex.quote(each))])


def _watched(server: Any, run: Any) -> Any:
    """Wait for the end of a run; returns it as it then is."""
    from perennial.orchestration.remote_runs import start_run

    try:
        with process.interruptible():
            return start_run.follow(server, run, lambda line: typer.echo(line, err=True))
    except Interrupted:
        text = f"no longer watched; run {run.id} continues, and `perennial status` shows it"
        raise Interrupted(text) from None


def _deployment(name: str, given: dict[str, Any]) -> tuple[str, dict[str, Any], Any]:
    """The full name of a deployment, the parameters, and the owner of its runs, None outside of a project."""
    from perennial.orchestration.client import owner

    flow, _, short = name.rpartition("/")
    project = Project.find()
    named = [each for each in project.pipelines() if each.name and short.startswith(f"{each.name}-")]
    project = max(named, key=lambda each: len(each.name), default=project)
    full = f"{flow}{'/' if flow else ''}{project.deployment(short)}"
    if not (project.folder / PARAMS).is_file():
        return full, given, None
    try:
        with chdir(project.folder):
            pipeline = config.load(PARAMS).record.artifact
    except ConfigError:  # a run of another revision may be started all the same
        pipeline = None
    return full, given, owner.owner_of_checkout(project.folder, pipeline)


@command(app, "status")
def _status(
    params: ParamsOption = PARAMS,
    *,
    fetch: FetchOption = True,
    all_: bool = switch("--all", "A line for each pipeline of the project."),
) -> None:
    from perennial.orchestration.remote_runs import status

    if all_:
        listed = [_status_of(each, fetch=fetch) for each in Project.find().pipelines()]
        output({"pipelines": listed}, status.rows(listed))
        return
    found = status.look(config.load(params), os.environ, fetch=fetch)
    output(found, status.lines(found))


def _status_of(project: Project, *, fetch: bool) -> dict[str, Any]:
    """The status of a pipeline with its `name`; of one that cannot be read, the problem."""
    from perennial.orchestration.remote_runs import status

    try:
        with chdir(project.folder):
            found = status.look(config.load(PARAMS), os.environ, fetch=fetch)
    except (PerennialError, OSError) as error:
        found = {"pipeline": None, "champion": None, "runs": [], "server": None, "problems": [str(error)]}
    return {"name": project.name, **found}


@command(
    app, "flow-run", "Prepare the checkout and packages of a flow run, then run it.", json=False, hidden=True
)
def _flow_run() -> None:
    from perennial.orchestration.run_setup import flow_run

    flow_run.start()


@command(app, "monitor")
def _monitor(
    params: ParamsOption = PARAMS,
    *,
    alert: str | None = typed("Only let the server send this as a test alert.", metavar="TEXT"),
) -> None:
    if alert is not None:
        from perennial.orchestration.client import prefect_server
        from perennial.orchestration.remote_runs import start_run

        status = start_run.send_alert(prefect_server.connect(pauses=TERMINAL_PAUSES_S), alert)
        output({"status": status}, f"sent; the webhook answered {status}")
        return
    from perennial.live.monitor import rules

    checked = config.load(params)
    tie_to_checkout(params)
    seen = rules.look(checked)
    found = rules.as_json(seen, rules.decide(checked.monitor, seen))
    output(found, (f"{name:<20} {value}" for name, value in _monitor_lines(found)))
    if rules.unmet(checked.monitor, seen):
        raise PerennialError("; ".join(seen.problems))


def _monitor_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """The name and value of each line to print."""
    champion = found["champion"]
    lines = [("champion", "none yet" if champion is None else f"{champion['version']}, of {champion['date']}")]
    for rule in found["rules"]:
        off = "" if rule["limit"] not in {None, False} else " (no rule)"
        lines.append((rule["name"], f"{rule['seen']}{off}"))
    words = found["traffic"]["words"] if found["traffic"] and not found["traffic"]["problem"] else []
    lines += [("traffic" if number == 0 else "", line) for number, line in enumerate(words)]
    if found["source"]["state"] != "unreadable":  # else the rule's line reports it
        lines += [("not looked at", problem) for problem in found["problems"]]
    return [*lines, ("retrain", f"{'yes' if found['retrain'] else 'no'}: {found['reason']}")]
