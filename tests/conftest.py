"""What several tests start from."""

import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

# Before TensorFlow: its set-up of logging closes the handlers of others, absl's with pytest's stderr in it.
import prefect.main  # noqa: F401
import pytest
from support import forks
from support.parameters import change_params
from support.stores import make_bucket, servers

from perennial.base import config
from perennial.base.config import Config

# The imports make millions of objects that stay: looking for garbage among them takes a third of the time of
# collecting the tests.
gc.disable()
__all__ = ["make_bucket", "servers"]
ROOT = Path(__file__).parents[1]
Load = Callable[..., Config]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests unless they are asked for."""
    for item in items:
        marker, row = item.get_closest_marker("fast_rows"), getattr(item, "callspec", None)
        if marker and row and row.id not in marker.args:
            item.add_marker(pytest.mark.slow)
    if not any("::" in argument for argument in config.args):
        _require_fast_rows(items)
    if os.environ.get("SLOW") or os.environ.get("FAULTS") == "all":
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip("slow: `make test-all` runs it"))


def _require_fast_rows(items: list[pytest.Item]) -> None:
    """Check that each row that `fast_rows` names is there.

    Raises:
        UsageError: with those that are not.
    """
    marked = [(item.nodeid.partition("[")[0], item.get_closest_marker("fast_rows")) for item in items]
    named = {f"{test}[{row}]" for test, marker in marked if marker for row in marker.args}
    if missing := named - {item.nodeid for item in items}:
        raise pytest.UsageError(f"no such rows, which fast_rows names: {', '.join(sorted(missing))}")


def pytest_collection_finish() -> None:
    """Look for garbage again, among what the tests make alone."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many tests were skipped for each reason."""
    skipped = [report.longrepr for report in terminalreporter.getreports("skipped")]
    reasons = Counter(each[2].removeprefix("Skipped: ") for each in skipped if isinstance(each, tuple))
    if reasons:
        terminalreporter.section("skipped tests by reason")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:4}  {reason}")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the project's params.yaml, which the test works in."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load(workspace: Path) -> Load:
    """Loads the workspace's parameters after changing some: `load(**{"train.epochs": 1})`."""

    def change(**values: object) -> Config:
        change_params(workspace / "params.yaml", values)
        return config.load(workspace / "params.yaml")

    return change


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process starts are forks of one that has imported TensorFlow."""
    monkeypatch.setattr(sys, "executable", forks.with_tensorflow())


@pytest.fixture
def forked_dvc(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process starts are forks of one that has imported DVC."""
    monkeypatch.setattr(sys, "executable", forks.python())


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with validated records, which no test changes."""
    from support import training  # noqa: PLC0415 - imports TensorFlow, which most tests do without

    return training.prepare(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def here(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which the test works in."""
    shutil.copytree(digits, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
