"""Another process that fetches, forked from one that has imported the modules."""

import multiprocessing
import signal
from pathlib import Path

from perennial.base.processes.process import SIGNALS
from perennial.data.downloads.fetch import Fetcher
from perennial.data.downloads.spec import FileSpec

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["data.downloads.client"])


def start(spec: FileSpec, url: str, folder: Path, barrier=None):
    process = PROCESSES.Process(target=_run, args=(spec, url, folder, barrier), daemon=True)
    process.start()
    return process


def _run(spec, url, folder, barrier):
    # The fork server may have inherited blocked signals from an earlier test.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if barrier is not None:
        barrier.wait(600)
    Fetcher(mirrors=[url], folder=folder).fetch(spec)
