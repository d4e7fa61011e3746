"""What is checked before Prefect is used."""

import os
import subprocess
import sys

import pytest
from prefect.settings import PREFECT_FLOWS_DEFAULT_RETRIES, temporary_settings

from perennial.orchestration.engine import decorators


@pytest.mark.fast_rows("PREFECT_SERVER_DATABASE_TIMEOUT-soon")
@pytest.mark.parametrize(
    ("name", "value"), [("PREFECT_LOGGING_LEVEL", "loud"), ("PREFECT_SERVER_DATABASE_TIMEOUT", "soon"),
                        ("PREFECT_TASKS_DEFAULT_RETRIES", "many"), ("PREFECT_CLIENT_MAX_RETRIES", "x")],
)  # fmt: skip
def test_a_value_that_prefect_refuses_is_one_line_that_names_the_variable(name: str, value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tasks"],
        env=os.environ | {"PREFECT_API_URL": "http://127.0.0.1:9/api", name: value},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert name in done.stderr


def test_flows_are_not_retried_whatever_the_default_of_a_site_is() -> None:
    with temporary_settings({PREFECT_FLOWS_DEFAULT_RETRIES: 2}):
        assert decorators._of_prefect(lambda: None, str, None).retries == 0
