"""What a stage reads is edited while it runs: what DVC records is what ran, or nothing is recorded."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import sklearn
from support.checkout import Checkout

from perennial.base.dvc import dvc_digests, dvc_lock

DIGITS = Path(sklearn.__file__).parent / "datasets" / "data" / "digits.csv.gz"
CODE = "src/perennial/data/downloads/fetch.py"
NOTHING = "nothing was recorded, and the result is kept: set it back and run again"


class Source:
    """A server of the data set's file, which calls `edit` before it answers."""

    def __init__(self) -> None:
        self.requests, self.status = 0, 200
        self.edit: Callable[[], None] = lambda: None
        source = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                source.requests += 1
                source.edit()
                self.send_response(source.status)
                self.send_header("Content-Length", str(DIGITS.stat().st_size))
                self.end_headers()
                self.wfile.write(DIGITS.read_bytes())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def source() -> Iterator[Source]:
    """A server of the data set."""
    made = Source()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def downloading(make_checkout: Callable[[str], Checkout], source: Source) -> Checkout:
    """A checkout whose first stage fetches from that server."""
    checkout = replace(make_checkout("edits"), forked=True)
    checkout.set("dataset", base_url=source.url)
    checkout.commit("Source")
    checkout.must("git", "checkout", "-qb", "other")
    checkout.set("dataset", digests="record")
    checkout.commit("Digests")
    checkout.must("git", "branch", "start", "HEAD~1")
    return checkout


@pytest.fixture
def project(downloading: Checkout, source: Source) -> Checkout:
    """That checkout without any results."""
    source.requests, source.status, source.edit = 0, 200, lambda: None
    downloading.must("git", "checkout", "-qfB", "mine", "start")
    downloading.must("rm", "-rf", "dvc.lock", ".work", "data", ".dvc/cache")
    return downloading


def download(checkout: Checkout) -> subprocess.CompletedProcess[str]:
    return checkout.run("dvc", "repro", "download")


def recorded(checkout: Checkout) -> dict[tuple[str, str], object]:
    """The parameters of the first stage in dvc.lock."""
    return dict(dvc_lock.here(checkout.folder)["download"].params)


def replaced(checkout: Checkout, file: str, old: str, new: str) -> None:
    """Save a file as editors do: a new file takes the place of the old one."""
    path = checkout.folder / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.with_name(f".{path.name}.new").write_text(text.replace(old, new, 1), encoding="utf-8")
    path.with_name(f".{path.name}.new").replace(path)


# tests/base/stage_state/test_stage_inputs.py has a test of each of the others.
EDITS: dict[str, tuple[Callable[[Checkout], object], str]] = {
    "a parameter": (lambda it: it.set("dataset", digests="record"), "dataset.digests ('pinned', now 'record')"),
    "a comment of its code": (lambda it: replaced(it, CODE, "\n\n", "\n# A comment\n\n"), f"{CODE} (saved)"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_a_stage_read_changed_while_it_ran(project: Checkout, source: Source, name: str) -> None:
    edit, message = EDITS[name]
    source.edit = lambda: edit(project)
    done = download(project)
    assert "exited with 75" in done.stdout
    assert message in done.stdout
    assert NOTHING in done.stdout
    assert not (project.folder / "dvc.lock").exists()
    project.must("git", "checkout", "-q", ".")


@pytest.mark.slow
def test_set_back_the_kept_result_is_recorded_without_the_work(project: Checkout, source: Source) -> None:
    source.edit = lambda: project.set("dataset", digests="record")
    assert "exited with 75" in download(project).stdout
    project.must("git", "checkout", "-q", ".")
    assert download(project).returncode == 0
    assert source.requests == 1
    assert recorded(project)["params.yaml", "dataset.digests"] == "pinned"
    assert (project.folder / "data" / "raw" / DIGITS.name).read_bytes() == DIGITS.read_bytes()
    assert not (project.folder / ".work" / "kept").exists()


@pytest.mark.slow
def test_an_experiment_in_a_temporary_folder_reads_its_own_files(project: Checkout, source: Source) -> None:
    def edit() -> None:
        project.set("dataset", digests="record")
        replaced(project, CODE, "\n\n", "\n# A comment\n\n")

    source.edit = edit
    command = ("dvc", "exp", "run", "--temp", "-n", "mine", "download")
    done = project.run(*command)
    assert done.returncode == 0, done.stdout
    project.must("git", "checkout", "-q", ".")
    experiment = project.must("git", "for-each-ref", "--format=%(objectname)", "refs/exps/**/mine").split()[0]
    lock = dvc_lock.parse(project.must("git", "show", f"{experiment}:dvc.lock"), "dvc.lock")
    assert lock["download"].params["params.yaml", "dataset.digests"] == "pinned"
    assert lock["download"].deps[str(Path(CODE).parent)] == dvc_digests.digest(
        project.folder / Path(CODE).parent
    )


def test_by_hand_it_is_said_and_the_result_stays(project: Checkout, source: Source) -> None:
    source.edit = lambda: project.set("dataset", digests="record")
    done = project.run("perennial", "download")
    assert done.returncode == 75
    assert "the result stays in place, made as it was before" in done.stdout
    assert (project.folder / "data" / "raw" / DIGITS.name).is_file()


def test_a_run_does_not_start_a_stage_again_with_new_values(project: Checkout, source: Source) -> None:
    source.status, source.edit = 404, lambda: project.set("dataset", digests="record")
    command = ("perennial", "download")
    run = {"PERENNIAL_RUN": "night-1", "PERENNIAL_HOME": str(project.home)}
    assert project.run(*command, **run).returncode == 3
    again = project.run(*command, **run)
    source.status, source.edit = 200, lambda: None
    assert again.returncode == 75
    assert "dataset.digests ('pinned', now 'record') changed since this run started download" in again.stdout
    assert json.loads((project.folder / ".work" / "failure.json").read_bytes())["changed"] is True
    project.must(*command, **run | {"PERENNIAL_RUN": "night-2"})
