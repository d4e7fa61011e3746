"""The command `monitor`: print what the flow of the same name looks at, and what its rules say."""

import importlib
from typing import Any

import typer

from perennial import config
from perennial.cli.runner import PARAMS, JsonOption, ParamsOption, command, print_json, tie_to_checkout
from perennial.errors import PerennialError
from perennial.runtime import process

app = typer.Typer()


@command(app, "monitor", "Look at source, champion and new data: is it time to retrain?")
def _monitor(params: ParamsOption = PARAMS, *, as_json: JsonOption = False) -> None:
    checked = config.load(params)
    tie_to_checkout(params)
    look, rules = (importlib.import_module(f"perennial.monitor.{name}") for name in ("look", "rules"))
    with process.interruptible():
        seen = look.look(checked)
    found = rules.as_json(seen, rules.decide(checked.monitor, seen))
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(f"{name:<20} {value}" for name, value in _lines(found)))
    if rules.unmet(checked.monitor, seen):
        raise PerennialError("; ".join(seen.problems))


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What people read."""
    champion = found["champion"]
    lines = [("champion", "none yet" if champion is None else f"{champion['version']}, of {champion['date']}")]
    for rule in found["rules"]:
        off = "" if rule["limit"] not in {None, False} else " (no rule)"
        lines.append((rule["name"], f"{rule['seen']}{off}"))
    if found["source"]["state"] != "unreadable":  # else the rule has said it
        lines += [("not looked at", problem) for problem in found["problems"]]
    return [*lines, ("retrain", f"{'yes' if found['retrain'] else 'no'}: {found['reason']}")]
