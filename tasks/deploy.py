"""`python -m tasks.deploy`: work pools, automations, deployments and schedules of this project."""

from perennial.orchestration.engine import this_run

if __name__ == "__main__":
    this_run.require_valid_settings(server=True)  # before an import of Prefect, which takes seconds
    from perennial.orchestration.provisioning import deploy

    deploy.main()
