"""Checkouts and a Prefect server, all real."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from support import forks
from support.checkout import (
    Beside,
    Checkout,
    Server,
    copy_project,
    free_port,
    responds,
    start_repository,
    wait_until,
)

EPOCHS = 2  # enough to see every stage work
# Of a server, which take a tenth of a core by default: schedules are looked at often, and all else seldom.
# Events are written within a second, instead of five.
SERVICES = {
    "PREFECT_SERVER_EVENTS_PROACTIVE_GRANULARITY": "PT1S",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "0.2",
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "3",
    "PREFECT_SERVER_SERVICES_SCHEDULER_MAX_RUNS": "5",  # of each schedule, instead of 100
    **{
        f"PREFECT_SERVER_SERVICES_{service}_LOOP_SECONDS": "60"
        for service in (
            "CANCELLATION_CLEANUP", "CLEANUP_RECONCILER", "FOREMAN", "LATE_RUNS", "PAUSE_EXPIRATIONS",
            "REPOSSESSOR",
        )
    },
}  # fmt: skip


@pytest.fixture(scope="session")
def make_checkout(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkout]:
    """Makes checkouts of the working tree as it is, in folders with a space in their name."""

    def make(name: str) -> Checkout:
        base = tmp_path_factory.mktemp(name)
        checkout = Checkout(base / "the project", base / "home")
        checkout.home.mkdir()
        copy_project(checkout.folder, {"dvc.lock"})
        checkout.set("train", epochs=EPOCHS)
        checkout.set("gate", min_accuracy=0.1)
        start_repository(checkout.folder)
        return checkout

    return make


@pytest.fixture(scope="session")
def reproduced(make_checkout: Callable[[str], Checkout], tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout in which `dvc repro` has run every stage. Tests that change it put it back.

    One process of pytest runs the stages; the others copy its checkout.
    """
    base, shared = tmp_path_factory.getbasetemp(), of_all_processes(tmp_path_factory)
    checkout, finished = replace(make_checkout("reproduced"), forked=True), shared / "finished"
    with FileLock(shared / "finished.lock"):
        if finished.exists():
            shutil.rmtree(checkout.folder)
            shutil.copytree(finished, checkout.folder, symlinks=True)
        else:
            checkout.must("dvc", "repro")
            checkout.must("git", "add", "dvc.lock", "metrics")
            shutil.copytree(checkout.folder, base / "copy", symlinks=True)
            (base / "copy").rename(finished)
    return checkout


def of_all_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of pytest have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module")  # a server takes a tenth of a core
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Prefect server on this machine, its database in a temporary folder.

    Making the tables takes most of a server's start, so one server makes them and the others begin with a copy.
    """
    home, new = tmp_path_factory.mktemp("server"), of_all_processes(tmp_path_factory) / "new.db"
    making = FileLock(new.with_suffix(".lock"))
    making.acquire()
    if made := new.exists():
        making.release()
        shutil.copy(new, home / "prefect.db")
    port = str(free_port())
    url = f"http://127.0.0.1:{port}/api"
    environment = {
        **os.environ,
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",  # for all that these tests do
        "PREFECT_SERVER_DATABASE_MIGRATE_ON_START": str(not made),
        "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": str(not made),
        "PREFECT_SERVER_UI_ENABLED": "false",
        "PYTHONTZPATH": "",  # it lists all time zones for each schedule: the system's files, or one of tzdata
        **SERVICES,
        # SQLite lets one connection write at a time; on a busy machine the others wait longer than by default.
        "PREFECT_SERVER_DATABASE_TIMEOUT": "300",
        "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "300",
        "DO_NOT_TRACK": "1",
    }
    prefect = str(Path(forks.python()).with_name("prefect"))
    arguments = f"server start --host 127.0.0.1 --port {port}".split()
    with Beside([prefect, *arguments], home, environment) as started:
        wait_until(lambda: responds(f"{url}/health"))
        if not made:
            copy = tmp_path_factory.mktemp("tables") / new.name
            with (
                closing(sqlite3.connect(home / "prefect.db")) as tables,
                closing(sqlite3.connect(copy)) as target,
            ):
                tables.backup(target)
            copy.rename(new)
            making.release()
        yield Server(url, started)
