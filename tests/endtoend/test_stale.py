"""What makes training stale, and what does not."""

import json

import pytest
from support.checkout import Checkout


@pytest.mark.parametrize(("change", "stale"), [({"ok": False}, True), ({"problem_counts": {"x": 1}}, False)])
def test_training_is_stale_where_what_it_reads_of_the_report_changed(
    reproduced: Checkout, change: dict[str, object], stale: bool
) -> None:
    file = reproduced.folder / "data" / "validation.json"
    report = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()  # a link into the cache perhaps
    file.write_text(json.dumps(report | change), encoding="utf-8")
    found = json.loads(reproduced.dvc("status", "--json", "train"))
    reproduced.restore()
    assert ("train" in found) is stale


def test_validation_comes_before_training(reproduced: Checkout) -> None:
    assert '"validate" -> "train"' in reproduced.dvc("dag", "--dot", "train")
