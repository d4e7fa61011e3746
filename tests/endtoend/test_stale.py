"""What makes training stale, and what does not."""

import json
import shutil
from pathlib import Path

import pytest
from support.checkout import Checkout


@pytest.fixture
def compared(reproduced: Checkout, tmp_path: Path) -> tuple[Checkout, bytes]:
    """A trained checkout whose data changed and changed back, and the first validation report."""
    checkout = Checkout(tmp_path / "the project", reproduced.home)
    shutil.copytree(reproduced.folder, checkout.folder, symlinks=True)
    before = (checkout.folder / "data" / "validation.json").read_bytes()
    checkout.set("dataset", seed=1)
    checkout.must("dvc", "repro", "validate")
    checkout.commit("Other data")
    checkout.set("dataset", seed=0)
    checkout.must("dvc", "repro", "convert")
    checkout.must("perennial", "pin", "baseline")
    checkout.must("dvc", "repro", "validate")
    return checkout, before


@pytest.mark.slow
def test_drift_against_another_version_does_not_make_training_stale(compared: tuple[Checkout, bytes]) -> None:
    checkout, before = compared
    assert (checkout.folder / "data" / "validation.json").read_bytes() != before
    assert checkout.must("dvc", "repro", "--dry", "train").count("Running stage") == 0
    assert json.loads(checkout.dvc("status", "--json")) == {}


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
