"""What several tests start from."""

import gc
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

# Before TensorFlow: its set-up of logging closes the handlers of others, absl's with pytest's stderr in it.
import prefect.main  # noqa: F401
import pytest
from _pytest.assertion import rewrite
from support import forks
from support.parameters import change_params
from support.s3 import bucket, proxy, server

from perennial.base import config
from perennial.base.config import Config

# The imports make millions of objects that stay: looking for garbage among them takes a third of the time of
# collecting the tests.
gc.disable()
__all__ = ["bucket", "proxy", "server"]
ROOT = Path(__file__).parents[1]
Load = Callable[..., Config]
HEAD = pytest.StashKey[str]()  # of this repository, before the tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Rewrite the assertions of a share of the tests: the processes that run them would each rewrite all."""
    if (worker := getattr(session.config, "workerinput", None)) is None or sys.dont_write_bytecode:
        return
    state = session.config.stash[rewrite.assertstate_key]
    files = sorted(file for each in session.config.args for file in Path(each).rglob("test_*.py"))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        compiled = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, compiled) is None:
            compiled.parent.mkdir(exist_ok=True)
            digest, code = rewrite._rewrite_test(file, session.config)
            rewrite._write_pyc(state, code, digest, compiled)


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
    """Refuse rows that `fast_rows` names and that are not there."""
    marked = [(item.nodeid.partition("[")[0], item.get_closest_marker("fast_rows")) for item in items]
    named = {f"{test}[{row}]" for test, marker in marked if marker for row in marker.args}
    if missing := named - {item.nodeid for item in items}:
        raise pytest.UsageError(f"no such rows, which fast_rows names: {', '.join(sorted(missing))}")


def pytest_configure(config: pytest.Config) -> None:
    """Start the processes that run tests as forks of one, which has made their slow imports."""
    if config.getoption("dist", "no") != "no":
        config.option.testrunuid = os.environ["PYTEST_XDIST_TESTRUNUID"] = uuid4().hex
        python = shlex.quote(forks.worker())
        config.option.tx = [f"{each}//python={python}" for each in config.option.tx]


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") != "no":
        forks.end()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--timing-only", action="store_true", help="refuse tests without the marker `timing`")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse what must not be tried again; look for garbage again, among what the tests make alone."""
    if session.config.getoption("timing_only"):
        if fixed := [item.nodeid for item in session.items if not item.get_closest_marker("timing")]:
            raise pytest.UsageError(f"failed, and not marked `timing`: {', '.join(fixed)}")
        for item in session.items:
            print(f"tried again: {item.nodeid}")
    gc.freeze()
    gc.enable()


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[HEAD] = _git("rev-parse", "HEAD")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if a test wrote a commit into this repository, which other committers' identities show."""
    before = session.config.stash[HEAD]
    if before and not hasattr(session.config, "workerinput"):
        own = {_git("config", "user.email"), os.environ.get("GIT_COMMITTER_EMAIL", "")} - {""}
        made = _git("log", "--format=%h %ce %s", f"{before}..HEAD", "--not", "--remotes").splitlines()
        if foreign := [line for line in made if line.split()[1] not in own]:
            print("\na test committed into this repository: git reset to the commit before", *foreign, sep="\n")
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


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


@pytest.fixture(scope="session")
def shared_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with validated records for trainings by several workers, which no test changes."""
    from support import workers  # noqa: PLC0415 - imports TensorFlow

    return workers.records(tmp_path_factory.mktemp("records"))


@pytest.fixture
def here(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which the test works in."""
    shutil.copytree(digits, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
