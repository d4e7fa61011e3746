"""The command that searches settings."""

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from perennial.base import config
from perennial.base.config import Config
from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.base.processes import locks, process
from perennial.base.project import code_digests
from perennial.base.stage_state import environment, outputs
from perennial.cli.changed_params import weights_are_pinned
from perennial.cli.command import PARAMS, JsonOption, ParamsOption, command, output
from perennial.cli.stage_runner import tie_to_checkout

app = typer.Typer()
SearchOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=RANGE",
        help="LOW..HIGH, LOW..HIGH:log or A,B,C; repeatable. [default: by the training]",
    ),
]


@command(
    app,
    "tune",
    "Search settings by validation scores; keep the best.",
    epilog="A search that was interrupted goes on. Example: `perennial tune --trials 20 --search "
    "train.learning_rate=1e-4..1e-1:log --search train.optimizer=adam,momentum`. See docs/how-to/tune.md.",
)
def _tune(
    params: ParamsOption = PARAMS,
    *,
    search: SearchOption = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Trials in all, with those of an earlier search. [default: 30]"),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, metavar="N", help="Stop after this time instead.")
    ] = None,
    experiment: Annotated[
        bool, typer.Option("--experiment/--no-experiment", help="Run the pipeline with the best settings.")
    ] = True,
    only_check: Annotated[
        bool, typer.Option("--check", help="Check and print the search; run nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    if trials is not None and minutes is not None:
        raise ConfigError("--trials and --minutes exclude each other; leave one out")
    started, checked = time.monotonic(), config.load(params)
    _require_ready(params, checked)
    from perennial.project.tune import search_result, tune, winner

    ranges = tune.check(params, search)
    if only_check:
        output({"search": ranges}, (f"{key}={text}" for key, text in ranges.items()), as_json=as_json)
        return
    if experiment:
        winner.author(checked)
    trials = tune.TRIALS if trials is None and minutes is None else trials
    budget = tune.Budget(trials=trials, minutes=minutes, started=started)
    work = checked.paths.work
    with process.interruptible(), locks.held(work / "tune.lock", "tune", busy="another search works here"):
        winner.prepare_data(checked)
        with locks.stage(work, "tune"):  # no other stage may change the data meanwhile
            found = tune.Search(params, search)
            found.announce(budget)
            tune.search(found, budget, pinned=weights_are_pinned(params))
            before = found.present_trial
            written = winner.choose(found)
        made = winner.run_experiment(found) if experiment else None
        document = search_result.write(found, before, written=written, experiment=made)
        winner.record(checked, document)
    output(document, search_result.lines(document), as_json=as_json)


def _require_ready(params: Path, checked: Config) -> None:
    """Check code, packages and outputs as before a training, and that Optuna is there."""
    if find_spec("optuna") is None:
        raise ConfigError(
            "perennial tune needs the extra `tune`; nothing was started: pip install 'perennial-ml[tune]', or "
            "in a project `pip install --require-hashes -r requirements/tune.txt`"
        )
    tie_to_checkout(params)
    outputs.require_outputs(checked.paths)
    environment.require("train")
    code_digests.require("train", Project.find().shared("."), checked.paths.work)
