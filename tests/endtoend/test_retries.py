"""How often a run tries a stage, with a real server, DVC and processes."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.checkout import Server

ROOT = Path(__file__).parents[2]
FLOW = """
from prefect import flow
from tasks.stages import gate

@flow
def train():
    gate.with_options(retry_delay_seconds=0)()

train()
"""
BUG = "{}['x']"
KILLED = "import os; os.kill(os.getpid(), 9)"
NETWORK = """
import json, pathlib
failure = {"code": 1, "message": "no route", "kind": "network"}
pathlib.Path(".work").mkdir(exist_ok=True)
pathlib.Path(".work/failure.json").write_text(json.dumps(failure))
raise SystemExit(1)
"""


@pytest.mark.parametrize(
    ("code", "tries"), [(BUG, 1), (KILLED, 3), (NETWORK, 3)], ids=["bug", "killed", "network"]
)
def test_a_bug_is_tried_once_and_what_may_pass_three_times(
    server: Server, tmp_path: Path, code: str, tries: int
) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (tmp_path / "stage.py").write_text(f"with open('tries', 'a') as file:\n    file.write('x')\n{code}\n")
    (tmp_path / "params.yaml").write_text("paths: {work: .work}\n")
    (tmp_path / "dvc.yaml").write_text(
        json.dumps({"stages": {"gate": {"cmd": f"{shlex.quote(sys.executable)} stage.py"}}})
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "PREFECT_API_URL": server.url,
    }
    command = [sys.executable, "-c", FLOW]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "tries").read_text()) == (1, "x" * tries), done.stderr
