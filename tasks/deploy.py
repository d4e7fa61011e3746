"""`python -m tasks.deploy`: work pools, automations, deployments and schedules of this project."""

from perennial.orchestration.provisioning import deploy

if __name__ == "__main__":
    deploy.main()
