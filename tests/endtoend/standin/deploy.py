"""Two work pools of one run each, a deployment of the stand-in for each, and the project's automations."""

import os
import shlex
import sys
from pathlib import Path

from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.workers.process import ProcessWorker

from perennial.orchestration.provisioning import infra

ROOT = Path(__file__).parents[3]
REPOSITORY = os.environ["PERENNIAL_REPOSITORY"]
JOB = {
    "command": shlex.join([sys.executable, "start.py"]),
    "working_dir": REPOSITORY,
    "env": {
        "PERENNIAL_REPOSITORY": REPOSITORY,
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    },
}

os.chdir(ROOT)
with get_client(sync_client=True) as client:
    infra.install_automations(client)
    flow = client.create_flow_from_name("retrain")
    template = ProcessWorker.get_default_base_job_template()
    for pool in ("one", "other"):
        client.create_work_pool(WorkPoolCreate(name=pool, type="process", base_job_template=template))
        client.update_work_pool(pool, WorkPoolUpdate(concurrency_limit=1))
        client.create_deployment(
            flow_id=flow,
            name=pool,
            tags=["perennial"],
            entrypoint="flow.py:retrain",
            path=".",
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": "."}}],
            work_pool_name=pool,
            job_variables=JOB,
        )
