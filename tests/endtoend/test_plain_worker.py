"""A run by Prefect's own worker, and its run graph."""

import json
import sys
from itertools import pairwise

import pytest
from support.checkout import Beside

pytestmark = [pytest.mark.timing, pytest.mark.slow]

ORDER = (
    "start_record", "pin", "find_unchanged", "require_champion", "download", "convert", "validate",
    "initialize", "train", "evaluate", "export", "pin_champion", "champion", "gate", "record", "summarize",
)  # fmt: skip


def test_a_plain_worker_completes_a_run_whose_graph_shows_the_order_and_fails_one_that_cannot_push(
    make_checkout, server, tmp_path
) -> None:
    project = make_checkout("plain")
    extra = {"PREFECT_API_URL": server.url, "PERENNIAL_HOME": str(tmp_path / "home")}
    project.must(sys.executable, "-m", "tasks.deploy", **extra, PERENNIAL_REPOSITORY=f"{project.folder}/")
    worker = ["prefect", "worker", "start", "--pool", "cpu"]
    with Beside(worker, tmp_path, project.environment(**extra, PREFECT_WORKER_QUERY_SECONDS="5")):
        command = ("run", "on-demand", "--watch", "--json")
        done = project.must(sys.executable, "-m", "perennial", *command, **extra)
        hook = project.folder / ".git" / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\necho closed for tonight\nexit 1\n")
        hook.chmod(0o755)
        command = (*command, "--set=gate.min_accuracy=0.4")
        refused = project.run(sys.executable, "-m", "perennial", *command, **extra)
    run, failed = (json.loads(text[text.index("{") :]) for text in (done, refused.stdout))
    assert run["state"] == "Completed"
    assert (failed["state"], refused.returncode) == ("Failed", 1)
    assert "record ended with exit code 1: nothing was pushed to origin" in failed["message"]
    assert "closed for tonight" in failed["message"]
    graph = server.request("GET", f"/flow_runs/{run['id']}/graph-v2")
    nodes = dict(graph["nodes"])  # type: ignore[index]
    names = {node["id"]: node["label"].rsplit("-", 1)[0] for node in nodes.values()}
    before = {names[key]: {names[each["id"]] for each in node["parents"]} for key, node in nodes.items()}
    assert before == {"start_record": set(), **{name: {last} for last, name in pairwise(ORDER)}}
