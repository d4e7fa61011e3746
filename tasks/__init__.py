"""Tasks: how each stage runs (retries, time limits), and all calls to DVC."""

import sys
from pathlib import Path

# The code beside these tasks, whichever checkout is installed.
sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from perennial import files
from perennial.worker import server

files.name_user()
server.require_usable()
