"""A server with faults, and one file that is fetched from it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from data.downloads.fault_server import CONTENT, Server, sha256

from perennial.data.downloads.fetch import Fetcher, Unavailable
from perennial.data.downloads.spec import FileSpec, TransferLimits

# Short pauses between tries. A limit on waiting is set by the test of it alone: a busy machine is slow, too.
QUICK = TransferLimits(
    connect_s=300, stall_s=300, rate_window_s=300, total_s=600, tries=3, backoff_first_s=0.01,
    backoff_max_s=0.02, retry_after_max_s=0.3,
)  # fmt: skip
SPEC = FileSpec(name="file.bin", bytes=len(CONTENT), sha256=sha256(CONTENT))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost,::1")


@pytest.fixture
def start():
    """Starts more servers."""
    running = []

    def one(*args):
        running.append(Server(*args))
        return running[-1]

    yield one
    for server in running:
        server.end()


@pytest.fixture
def server(start):
    return start()


@dataclass
class Fetching:
    """What is fetched; a test changes a part of it."""

    folder: Path
    mirrors: list[str]
    spec: FileSpec = SPEC
    limits: TransferLimits = QUICK
    credentials: Callable[[], tuple[str, str] | None] = lambda: None

    @property
    def file(self):
        return self.folder / self.spec.name

    @property
    def part(self):
        return self.file.with_name(f"{self.spec.name}.part")

    @property
    def note(self):
        return self.file.with_name(f"{self.spec.name}.part.json")

    @property
    def rejected(self):
        return self.file.with_name(f"{self.spec.name}.rejected")

    def limit(self, **changes):
        self.limits = replace(self.limits, **changes)

    def __call__(self):
        fetcher = Fetcher(
            mirrors=self.mirrors, folder=self.folder, limits=self.limits, credentials=self.credentials()
        )
        return fetcher.fetch(self.spec)

    def refusal(self):
        with pytest.raises(Unavailable) as refused:
            self()
        return refused.value


@pytest.fixture
def fetching(tmp_path, server) -> Callable[[], Path]:
    return Fetching(tmp_path / "kept", [server.url])


@pytest.fixture
def logged(caplog):
    """All that was logged, at every level."""
    caplog.set_level(0)
    return lambda: caplog.text
