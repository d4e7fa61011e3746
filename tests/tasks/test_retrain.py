"""The order of the flow `retrain` where other runs promote models meanwhile."""

from contextlib import nullcontext

import pytest

from flows import retrain
from perennial.base.project.stages import STAGES
from perennial.orchestration.work.stage_failures import StageFailed


def test_a_run_that_loses_every_race_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    gates = []
    for name in (
        *STAGES,
        "start_record",
        "pin",
        "pin_champion",
        "require_champion",
        "check_parameters",
        "unchanged",
        "search",
    ):
        monkeypatch.setattr(retrain, name, lambda *_, **__: None)
    monkeypatch.setattr(retrain, "require_champion", lambda **_: {})
    monkeypatch.setattr(retrain, "search", lambda _: {})
    monkeypatch.setattr(retrain, "gate", lambda: gates.append("gate"))
    monkeypatch.setattr(retrain, "one_at_a_time", lambda *_: nullcontext())
    monkeypatch.setattr(retrain, "record", lambda: "refused")
    with pytest.raises(StageFailed, match="another run changed the champion 5 times"):
        retrain.retrain.fn(push=True)
    assert len(gates) == retrain.GATE_TRIES
