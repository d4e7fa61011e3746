"""What the flow `rebuild` says of versions."""

import pytest

from tasks.dvc import StageFailed
from tasks.rebuild import markdown, require_all_equal

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
    require_all_equal.fn({"v0.0.1": FOUND["v0.0.1"]})
    with pytest.raises(
        StageFailed, match=r"v0\.0\.3 failed \(no packages\), v0\.0\.2 different \(code: src/a\|b\.py\)"
    ) as failed:
        require_all_equal.fn(dict(reversed(FOUND.items())))
    assert failed.value.exit_code == 4
