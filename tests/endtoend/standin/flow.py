"""A pipeline of one stage under the project's own guard, watch and door to DVC."""

from typing import Literal

from prefect import flow, get_run_logger

from perennial.orchestration.guard.one_at_a_time import one_at_a_time
from perennial.orchestration.terminal import flow_command
from perennial.orchestration.work.dvc_repo import reproduce
from tasks.policy import retried


@retried(limit_s=3600)
def train() -> str:
    return reproduce("train", get_run_logger().info)


@flow(name="retrain", log_prints=True)
def retrain(pipeline: str = "classifier", when_busy: Literal["end", "wait"] = "end") -> dict[str, str]:
    with one_at_a_time(pipeline, when_busy):
        return {"train": train()}


if __name__ == "__main__":
    # It has no parameters of the project.
    flow_command.check_parameters, flow_command.pipeline = lambda: None, lambda: "classifier"
    flow_command.run(retrain)
