"""What the work pool runs: the flow run's own checkout, then Prefect's engine in it."""

import os
import shutil
import sys
from pathlib import Path

from perennial.orchestration.client.prefect_server import connect
from perennial.orchestration.run_setup.flow_run import take

take(connect(), os.environ["PREFECT__FLOW_RUN_ID"])
source = Path(os.environ["PERENNIAL_REPOSITORY"])
run = Path(os.environ["PERENNIAL_HOME"], "runs", os.environ["PREFECT__FLOW_RUN_ID"])
if not run.exists():
    partial = run.with_suffix(f".{os.getpid()}")
    shutil.copytree(source, partial)
    partial.rename(run)
os.chdir(run)
os.execv(sys.executable, [sys.executable, "-m", "prefect.engine"])
