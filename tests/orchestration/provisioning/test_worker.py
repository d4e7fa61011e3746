"""How the supervisor of workers stops their runs, and says why they do not work."""

import subprocess
import sys

import prefect
import pytest
from conftest import ROOT
from support.small_servers import Answering, served

from perennial.orchestration.provisioning import worker

# Each starts the next: worker, run, DVC in a session of its own, stage. The run passes SIGTERM on to the
# session; DVC ends at once, and the stage saves for a while.
STAGE = """
import signal, sys, time
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(1))
print("stage", flush=True)
while not signals:
    time.sleep(0.05)
time.sleep(2)
print(f"saved after {len(signals)}", flush=True)
"""
DVC = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {STAGE!r}])
"""
RUN = f"""
import os, signal, subprocess, sys
dvc = subprocess.Popen([sys.executable, "-c", {DVC!r}], stdout=subprocess.PIPE, start_new_session=True)
signal.signal(signal.SIGTERM, lambda *_: os.killpg(dvc.pid, signal.SIGTERM))
for line in dvc.stdout:
    os.write(1, line)
"""
WORKER = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {RUN!r}], process_group=0)
"""
SUPERVISOR = f"""
import signal, sys
from perennial.orchestration.provisioning import worker
worker.LIBC.prctl(worker.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
one = worker.SupervisedProcess([sys.executable, "-c", {WORKER!r}])
one.keep_alive()
sys.stdin.readline()
worker._stop([one], [signal.SIGTERM])
"""


def test_a_stage_gets_one_signal_and_has_time_to_save() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "stage\n"
        out, _ = supervisor.communicate("stop\n")
    assert out == "saved after 1\n"


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([(401, {"detail": "Not authenticated"})], "look at PREFECT_API_AUTH_STRING"),
        ([(200, prefect.__version__), (200, {"type": "ecs"})], "is of type ecs, not process"),
        ([(200, prefect.__version__), (404, {"detail": "Not found"})], "the server has no pool cpu"),
    ],
)
def test_what_keeps_workers_from_working_is_named(answers, words, monkeypatch, caplog) -> None:
    left = list(answers)

    class Handler(Answering):
        def do_GET(self) -> None:
            status, found = left.pop(0)
            self.answer(found, status)

    with served(Handler) as address:
        monkeypatch.setenv("PREFECT_API_URL", f"{address}/api")
        worker._explain(["cpu"])
    (line,) = caplog.messages
    assert words in line
