"""A training as far as its process goes: steps, checkpoints, a lock, an end with its parent."""

import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from ruamel.yaml import YAML

STEP_S = 0.5
WORK = Path(".work")
CHECKPOINT = WORK / "checkpoint.json"


def main() -> None:
    total = int(YAML(typ="safe").load(Path("params.yaml"))["seconds"] / STEP_S)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(75))
    state = {"step": 0, "weights": ""}
    if CHECKPOINT.exists():
        state = json.loads(CHECKPOINT.read_text())
    print(f"training from step {state['step']} of {total}", flush=True)
    flow = int(os.environ["PERENNIAL_STARTED_BY"])
    hold = Path(os.environ.get("PERENNIAL_HOME", "."), "hold")
    while state["step"] < total:
        time.sleep(STEP_S)
        while hold.exists() and state["step"] == total - 1 and Path(f"/proc/{flow}").exists():
            time.sleep(STEP_S)
        if not Path(f"/proc/{flow}").exists():
            sys.exit(75)
        step = state["step"] + 1
        state = {"step": step, "weights": hashlib.sha256(f"{state['weights']}{step}".encode()).hexdigest()}
        partial = CHECKPOINT.with_suffix(".partial")
        partial.write_text(json.dumps(state))
        partial.rename(CHECKPOINT)
        with (WORK / "steps.log").open("a") as log:
            log.write(f"{os.getpid()} {step}\n")
    Path("model.json").write_text(json.dumps(state))


if __name__ == "__main__":
    WORK.mkdir(exist_ok=True)
    with (WORK / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        main()
