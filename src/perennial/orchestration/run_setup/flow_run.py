"""The command of the work pools: prepare a run's checkout and packages, then become Prefect's engine."""

import ast
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any, NoReturn

from perennial.base.dvc import repro
from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.files import home
from perennial.base.layout import Project
from perennial.base.retries import RESTARTS
from perennial.orchestration.client import settings
from perennial.orchestration.client.owner import FOLDER, REPOSITORY, require_no_password
from perennial.orchestration.client.prefect_server import PrefectServer, connect
from perennial.orchestration.client.responses import ServerRefused
from perennial.orchestration.run_setup.run_checkout import prepare_checkout
from perennial.orchestration.run_setup.run_environment import python_for

RUN = "PREFECT__FLOW_RUN_ID"
GIVEN_UP = f"it crashed {RESTARTS + 1} times, and is not started again by itself"
JOB = "PERENNIAL_JOB"  # in a pod: the name of its Job; infra/pools/kubernetes.json sets it
JOB_TRIES, JOB_PAUSE_S = 10, 3.0  # Prefect's worker writes down a Job just after it has created it
AGAIN = "this run completed before, so it does not run again and its record stays; start another run instead"
PREPARING = "perennial.preparing"  # sign of life of a run that sends no heartbeat yet
PERIOD_S = 30.0
ENDED = {"COMPLETED", "FAILED", "CANCELLED"}
# Excludes what git would parse as an option or an expression.
REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")


def start() -> NoReturn:
    """Run the flow run that Prefect's worker names, or end it: it cannot be prepared, or crashed too often."""
    run = os.environ.get(RUN)
    if not run:
        raise ConfigError(f"{RUN} is not set: this is what work pools run; `perennial run` starts a run")
    server = connect()
    _require_newest_job(server, run)
    found = take(server, run)
    parameters: Mapping[str, object] = found["parameters"]
    try:
        with _heard(server, run):
            python, checkout = _prepared(server, run, parameters.get("rev"))
            if found.get("deployment_id"):
                deployment = server.request("GET", f"deployments/{found['deployment_id']}")
                require_taken(Project.find(checkout).root, deployment["entrypoint"] or "", parameters)
    except (PerennialError, OSError) as error:
        _leave(server, run, f"the run could not be prepared: {error}", failed=True)
    _become_engine(python, checkout)


def _require_newest_job(server: PrefectServer, run: str) -> None:
    """End this pod if the run has a newer Job: this one waited so long that the run was started again."""
    own, newest = os.environ.get(JOB), ""
    for _ in range(JOB_TRIES if own else 0):
        newest = str(server.flow_run(run).get("infrastructure_pid") or "").rpartition(":")[2]
        if newest in ("", own):
            return
        time.sleep(JOB_PAUSE_S)
    if own:
        message = f"the run was started again as Job {newest} while Job {own} waited for a node; {own} ends"
        _leave(server, run, message)


def take(server: PrefectServer, run: str) -> Mapping[str, Any]:
    """Read a run that starts. If it restarted too often, or completed before, end the run and process."""
    found, states = server.flow_run(run), server.states(run)
    if found["auto_scheduled"]:
        # Prefect's scheduler emits no event for the first state, whose id that would have. The server keeps the
        # events after it back for up to 15 minutes, and automations and alerts with them.
        with suppress(ServerRefused):  # late alerts must not prevent the run
            server.emit("perennial.taken", f"prefect.flow-run.{run}", identity=states[0]["id"])
    if completed := next((state for state in states if state["type"] == "COMPLETED"), None):
        # Its record, which git has, would be replaced.
        state = {"type": "COMPLETED", "name": completed["name"], "message": completed["message"]}
        server.request("POST", f"flow_runs/{run}/set_state", {"state": state, "force": True})
        _leave(server, run, AGAIN)
    if restarts([state["type"] for state in states]) > RESTARTS:
        why = next(state["message"] for state in reversed(states) if state["type"] == "CRASHED")
        _leave(server, run, f"{GIVEN_UP}; at last: {why}", failed=True)
    return found


def _leave(server: PrefectServer, run: str, message: str, *, failed: bool = False) -> NoReturn:
    """End this process without the run's work, and say why."""
    server.fail(run, message) if failed else server.log(run, message, logging.WARNING)
    sys.stderr.write(f"perennial flow-run: {message}\n")
    raise SystemExit(0)  # with another code, the worker would mark the run as Crashed


def restarts(states: Sequence[str]) -> int:
    """Count the automatic restarts of a run after crashes; `states`: types of its states, oldest first."""
    count = 0
    for before, state in pairwise(states):
        if before in ENDED:
            count = 0
        elif (before, state) == ("CRASHED", "SCHEDULED"):
            count += 1
    return count


@contextmanager
def _heard(server: PrefectServer, run: str) -> Iterator[None]:
    """Send a sign of life every 30 s during the block: without one, a pending run counts as dead."""
    ended = Event()

    def emit() -> None:
        with suppress(PerennialError):  # it is not needed for the run
            server.emit(PREPARING, f"prefect.flow-run.{run}")

    def repeat() -> None:
        while not ended.wait(PERIOD_S):
            emit()

    emit()
    Thread(target=repeat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def _prepared(server: PrefectServer, run: str, rev: object) -> tuple[Path, Path]:
    """Prepare a run; returns its Python and its checkout."""
    repository = os.environ.get(REPOSITORY)
    if not repository:
        raise ConfigError(
            f"{REPOSITORY} is not set; `perennial deploy` sets it for the runs of its deployments"
        )
    if rev is not None and not (isinstance(rev, str) and REVISION.fullmatch(rev)):
        raise ConfigError(f"rev must be a branch, tag or commit, got {rev!r}")
    require_no_password(repository)
    checkout = prepare_checkout(home(), repository, run, rev, os.environ.get(FOLDER, ""))
    python = python_for(home(), checkout, lambda line: server.log(run, line))
    source = f"{rev or 'the default branch'} of {redacted(repository)}"
    server.log(run, f"{source} in {checkout}, with the packages of {python.parents[1]}")
    return python, checkout


def require_taken(checkout: Path, entrypoint: str, given: Mapping[str, object]) -> None:
    """Check that the flow of a checkout takes the names of these parameters."""
    # Neither the server nor its UI checks names, and Prefect's engine crashes on an unknown one at each
    # restart. `entrypoint`: such as `flows.retrain.retrain` or `flow.py:retrain`.
    place, _, name = entrypoint.rpartition(":" if ":" in entrypoint else ".")
    file = checkout / (place if place.endswith(".py") else f"{place.replace('.', '/')}.py")
    try:
        code = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # the engine will say it
    for each in code.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name:
            taken = [one.arg for one in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)]
            unknown = [] if each.args.kwarg else sorted(given.keys() - set(taken))
            if unknown:
                raise ConfigError(
                    f"{name} takes no parameter {', '.join(unknown)}; it takes {', '.join(taken)}; correct the "
                    "parameters of the run, of its deployment or of its schedule"
                )


def _become_engine(python: Path, checkout: Path) -> NoReturn:
    """Replace this process by Prefect's engine, with the code, Prefect and packages of the revision."""
    environment = {
        **settings.DEFAULTS,  # flows would set them too late for the engine
        **os.environ,
        **repro.search_paths(python, checkout),
        "VIRTUAL_ENV": str(python.parents[1]),
    }
    os.chdir(checkout)
    os.execve(python, [str(python), "-m", "prefect.engine"], environment)  # noqa: S606 - no shell is wanted
