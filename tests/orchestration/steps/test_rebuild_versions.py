"""What the flow `rebuild` says of a version."""

from pathlib import Path

import pytest

from perennial.orchestration.steps import artifacts, rebuild_versions
from perennial.orchestration.work.stage_failures import StageFailed


def test_one_that_differs_fails_the_run_and_a_table_names_the_causes(monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[str]()
    monkeypatch.setattr(artifacts, "write", lambda text, *_: written.append(text))
    rebuild_versions.report_rebuild("v0.0.1", {"equal": True, "causes": []})
    found = {"equal": False, "causes": [{"kind": "code", "what": "src/a|b.py"}]}
    with pytest.raises(StageFailed, match=r"v0\.0\.2 is different \(code: src/a\|b\.py\)") as failed:
        rebuild_versions.report_rebuild("v0.0.2", found)
    assert failed.value.exit_code == 4
    assert "| v0.0.1 | equal |  |" in written[0]
    assert r"| v0.0.2 | different | code: src/a\|b.py |" in written[1]


@pytest.mark.parametrize("output", ["long", ""])
def test_a_long_document_and_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    program = tmp_path / "program"
    document = output and f'{{"equal": false, "causes": ["{"x" * 300_000}"]}}'
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{document}\nEND\necho no packages >&2\nexit 4\n")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    if output:
        assert len(rebuild_versions.rebuild_version("v0.0.1")["causes"][0]) == 300_000
    else:
        with pytest.raises(StageFailed, match=r"v0\.0\.1 was not rebuilt: no packages"):
            rebuild_versions.rebuild_version("v0.0.1")
