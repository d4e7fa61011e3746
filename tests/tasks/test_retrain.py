"""The order of the flow `retrain` where other runs promote models meanwhile."""

from typing import Any

import pytest

from flows import retrain
from perennial.orchestration.work.stage_failures import StageFailed

Results = dict[str, str]


def test_a_run_that_loses_every_race_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = []

    def passed_on(results: Results, **_: Any) -> Results:
        return results

    def gate(results: Results) -> Results:
        gates.append("gate")
        return results

    monkeypatch.setattr(retrain.steps, "pin_champion", passed_on)
    monkeypatch.setattr(retrain.stages, "champion", passed_on)
    monkeypatch.setattr(retrain.stages, "gate", gate)
    monkeypatch.setattr(retrain.steps, "record", lambda results: results | {"record": retrain.LOST_RACE})
    with pytest.raises(StageFailed, match=r"changed the champion 5 times .* what it made is in DVC's cache"):
        retrain.compare_and_record({}, push=True)
    assert len(gates) == retrain.GATE_TRIES
