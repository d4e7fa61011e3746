"""Another process that fetches; the one that it is forked from has the modules already."""

import multiprocessing
import signal
from pathlib import Path

from perennial.downloads.fetch import fetch
from perennial.downloads.spec import LIMITS, FileSpec
from perennial.runtime.process import SIGNALS

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["downloads.client"])


def start(spec: FileSpec, url: str, folder: Path, barrier=None):
    process = PROCESSES.Process(target=_run, args=(spec, url, folder, barrier), daemon=True)
    process.start()
    return process


def _run(spec, url, folder, barrier):
    # Where a test before had tasks done in processes, the server that this comes from holds signals back.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    if barrier is not None:
        barrier.wait(20)
    fetch(spec, [url], folder, LIMITS)
