"""Tasks: how often each step of a run is tried, and for how long; `deploy` and `worker` are programs."""

import os
import signal
import sys
from pathlib import Path

# The code beside these tasks, whichever checkout is installed.
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

if sys.argv[0] == "-m":  # `python -m flows.retrain` is still importing: nothing has started
    signal.signal(signal.SIGINT, lambda *_: os._exit(75))

from perennial.base import files
from perennial.orchestration.client import settings
from perennial.orchestration.engine import this_run

sys.dont_write_bytecode = False  # as in `perennial.__main__`, and for DVC, which starts the stages
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
files.prepare_environment()
for name, value in settings.DEFAULTS.items():  # Prefect reads them when it is imported
    os.environ.setdefault(name, value)
this_run.require_valid_settings()
