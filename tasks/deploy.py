"""`python -m tasks.deploy`: work pools, automations, deployments and schedules of this project."""

from perennial.orchestration.deployments import deploy

if __name__ == "__main__":
    deploy.main()
