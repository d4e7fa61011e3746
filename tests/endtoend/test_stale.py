"""What makes training stale, and what does not."""

import json
from collections.abc import Iterator

import pytest
from support.checkout import Checkout


@pytest.fixture
def compared(reproduced: Checkout) -> Iterator[tuple[Checkout, bytes]]:
    """A trained checkout whose data changed and changed back, and the first validation report."""
    before = (reproduced.folder / "data" / "validation.json").read_bytes()
    for seed in (1, 0):
        reproduced.set("dataset", seed=seed)
        # As on a machine that has not validated these records before.
        reproduced.must("dvc", "repro", "--no-run-cache", "validate")
    yield reproduced, before
    reproduced.restore()


def test_drift_against_another_version_does_not_make_training_stale(compared: tuple[Checkout, bytes]) -> None:
    checkout, before = compared
    assert (checkout.folder / "data" / "validation.json").read_bytes() != before
    assert checkout.must("dvc", "repro", "--no-run-cache", "--dry", "train").count("Running stage") == 0
    assert json.loads(checkout.must("dvc", "status", "--json")) == {}


@pytest.mark.parametrize(("change", "stale"), [({"ok": False}, True), ({"problem_counts": {"x": 1}}, False)])
def test_training_is_stale_where_what_it_reads_of_the_report_changed(
    reproduced: Checkout, change: dict[str, object], stale: bool
) -> None:
    file = reproduced.folder / "data" / "validation.json"
    report = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()  # a link into the cache perhaps
    file.write_text(json.dumps(report | change), encoding="utf-8")
    found = json.loads(reproduced.must("dvc", "status", "--json", "train"))
    reproduced.restore()
    assert ("train" in found) is stale


def test_validation_comes_before_training(reproduced: Checkout) -> None:
    assert '"validate" -> "train"' in reproduced.must("dvc", "dag", "--dot", "train")
