"""What the flow `rebuild` says of versions."""

import logging
from pathlib import Path

import pytest

from perennial.orchestration.steps import rebuild_versions
from perennial.orchestration.steps.rebuild_versions import markdown, require_all_equal
from perennial.orchestration.work.stage_failures import StageFailed

CAUSE = {"kind": "code", "what": "src/a|b.py"}
FOUND = {
    "v0.0.1": {"result": "equal", "code": 0, "causes": []},
    "v0.0.2": {"result": "different", "code": 4, "causes": [CAUSE]},
    "v0.0.3": {"result": "failed", "code": 1, "message": "no packages"},
}


def test_a_table_names_the_causes() -> None:
    table = markdown(FOUND)
    assert table.startswith("# 3 versions rebuilt\n")
    assert table.splitlines()[4:] == [
        "| v0.0.1 | equal |  |",
        r"| v0.0.2 | different | code: src/a\|b.py |",
        "| v0.0.3 | failed | no packages |",
    ]


def test_one_that_differs_fails_the_run_with_its_code() -> None:
    require_all_equal({"v0.0.1": FOUND["v0.0.1"]})
    with pytest.raises(
        StageFailed, match=r"v0\.0\.3 failed \(no packages\), v0\.0\.2 different \(code: src/a\|b\.py\)"
    ) as failed:
        require_all_equal(dict(reversed(FOUND.items())))
    assert failed.value.exit_code == 4


@pytest.mark.parametrize(
    ("equal", "code", "result"), [("true", 0, "equal"), ("false", 4, "different"), ("true", 1, "failed")]
)
def test_a_long_document_and_a_proof_that_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, equal: str, code: int, result: str
) -> None:
    program = tmp_path / "program"
    document = f'{{"equal": {equal}, "causes": ["{"x" * 300_000}"]}}'
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{document}\nEND\necho the remote is down >&2\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setattr(rebuild_versions, "get_run_logger", logging.getLogger)
    found = rebuild_versions.rebuild_version("v0.0.1")
    assert (found["result"], found["code"], len(found["causes"][0])) == (result, code, 300_000)
    assert found.get("message") == ("the remote is down" if result == "failed" else None)
