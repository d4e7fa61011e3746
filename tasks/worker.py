"""`python -m tasks.worker`: workers for the runs of this project's deployments."""

from pathlib import Path

from perennial.orchestration.provisioning import worker

if __name__ == "__main__":
    worker.main(Path(__file__).parents[1])
