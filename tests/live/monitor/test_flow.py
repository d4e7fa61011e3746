"""The flow `monitor` with a real server: one change of the source starts one retraining."""

import json
import sys
import uuid
from typing import Any, get_args

import pytest
from endtoend.conftest import server
from support import raw
from support.checkout import Server, wait_until

from perennial.live.monitor.rules import RuleName
from perennial.orchestration.steps.monitor import RULES, markdown

__all__ = ["server"]
pytestmark = pytest.mark.timing

LOOK = "from flows.monitor import monitor\nfor _ in range({times}): monitor()"


@pytest.mark.slow
def test_one_change_starts_one_retraining_however_often_the_monitor_looks(watched: Any, server: Server) -> None:
    def look(times: int = 1) -> list[dict[str, Any]]:
        """Run the flow so often; all retrainings so far, the newest last."""
        watched.run(sys.executable, "-c", LOOK.format(times=times), PREFECT_API_URL=server.url)
        named = {"deployments": {"name": {"any_": ["on-demand"]}}, "sort": "EXPECTED_START_TIME_ASC"}
        return server.post("/flow_runs/filter", named)

    watched.run(sys.executable, "-m", "tasks.deploy", PREFECT_API_URL=server.url)
    assert look() == []
    watched.put("cat/new.png", raw.encoded(raw.picture(60_000)))
    (run,) = look(times=2)
    assert (run["state_type"], "monitor" in run["tags"]) == ("SCHEDULED", True)
    assert str(run["parameters"]["reason"]).startswith("source: s3://watched/photos holds 19 objects")
    assert (
        run["parameters"] | {"push": True, "pipeline": "classifier", "when_busy": "wait"} == run["parameters"]
    )
    assert shown(server).count("was started before, for the same change") == 1
    watched.put("cat/newer.png", raw.encoded(raw.picture(60_001)))
    assert len(look()) == 1
    assert "is active; the next check decides" in shown(server)
    server.post(f"/flow_runs/{run['id']}/set_state", {"state": {"type": "COMPLETED"}, "force": True})
    assert len(look(times=2)) == 2
    states = {run["state_type"] for run in server.runs() if run["deployment_id"] is None}
    assert states == {"COMPLETED"}


def shown(server: Server) -> str:
    """The text of the newest artifact."""
    (artifact,) = server.post("/artifacts/filter", {"sort": "CREATED_DESC", "limit": 1})
    assert artifact["key"] == "monitor"
    return str(artifact["data"])


SEEN: dict[str, Any] = {
    "retrain": True,
    "reason": "source: s3://b/p holds 2 objects",
    "champion": {"version": "v0.0.1", "date": "2026-01-01T00:00:00+00:00"},
    "problems": ["no access to https://x/y"],
    "rules": [
        {"name": "source", "limit": True, "fires": True, "seen": "s3://b/p holds 2 objects"},
        {"name": "max_age_days", "limit": 9.5, "fires": False, "seen": "champion v0.0.1 is 3.0 days old"},
    ],
}


def test_the_artifact_shows_the_rules_in_a_table() -> None:
    run = {"id": "1234", "name": "quick-fox", "deployment": "retrain/on-demand", "how": "was started"}
    assert markdown(SEEN, run).splitlines() == [
        "# Retrain",
        "source: s3://b/p holds 2 objects",
        "",
        "Run [quick-fox](/runs/flow-run/1234) of retrain/on-demand was started.",
        "",
        "|  | seen | rule |",
        "| --- | --- | --- |",
        "| champion | v0.0.1 of 2026-01-01 00:00 UTC |  |",
        "| source | s3://b/p holds 2 objects | source: true: retrain |",
        r"| age | champion v0.0.1 is 3.0 days old | max\_age\_days: 9.5 |",
        "",
        "Not looked at: no access to https://x/y",
    ]


TRAFFIC: dict[str, Any] = {
    "problem": None,
    "alarm": "2026-01-02T03:04:05.000+00:00",
    "key": "0123/2026-01-02T03:04:05.000+00:00",
    "words": ["200 images until 2026-01-02T03:04:05: ...", "ALARM since 2026-01-02T03:04:05: ..."],
    "windows": [
        {
            "end": "2026-01-02T03:04:05.000+00:00", "images": 200, "distance": 0.05, "threshold": 0.02,
            "drifted": True,
        }
    ],
}  # fmt: skip


def test_the_artifact_shows_the_windows_of_traffic() -> None:
    lines = markdown({**SEEN, "problems": [], "traffic": TRAFFIC}, None).splitlines()
    assert lines[lines.index("## Traffic: alarm") :] == [
        "## Traffic: alarm",
        "200 images until 2026-01-02T03:04:05: ...  ",
        "ALARM since 2026-01-02T03:04:05: ...  ",
        "",
        "| until | images | distance | expected at most |",
        "| --- | --- | --- | --- |",
        "| 2026-01-02 03:04 | 200 | 0.0500 | 0.0200: drift |",
    ]


REPORT = """
import json, sys
from prefect import flow
from perennial.orchestration.steps.monitor import report_checks
for key in sys.argv[2:]:
    seen = json.loads(sys.argv[1])
    seen["traffic"]["key"] = key
    flow(report_checks)(seen, None)
"""


@pytest.mark.slow
def test_an_alarm_is_alerted_once_as_long_as_it_lasts(watched: Any, server: Server) -> None:
    seen = json.dumps({**SEEN, "pipeline": "classifier", "traffic": TRAFFIC})
    ours = {
        "PREFECT_API_URL": server.url,
        "PREFECT__RUNTIME__DEPLOYMENT__ID": "x",
        "PREFECT__RUNTIME__FLOW_RUN__ID": str(uuid.uuid4()),
    }
    watched.run(sys.executable, "-c", REPORT, seen, "first", "first", "second", "second", **ours)

    def alerts() -> int:
        found = server.post("/events/filter", {"filter": {"event": {"name": ["perennial.drift"]}}})
        return len(found["events"])

    wait_until(lambda: alerts() == 2)
    assert alerts() == 2


def test_without_a_champion_it_says_so() -> None:
    text = markdown({**SEEN, "champion": None, "retrain": False, "problems": []}, None)
    assert text.startswith("# No retraining\n")
    assert "| champion | none yet |  |" in text


def test_the_artifact_has_a_title_for_every_rule() -> None:
    assert set(RULES) == set(get_args(RuleName))
