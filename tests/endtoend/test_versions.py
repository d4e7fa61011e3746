"""What DVC does with data and models: stale stages, damaged files, S3, a folder without git."""

import json
import os
import sys
from collections.abc import Callable

import pytest
from support.checkout import Checkout

pytestmark = pytest.mark.timing


def test_a_parameter_of_train_reruns_train_and_what_follows(reproduced: Checkout) -> None:
    reproduced.set("train", learning_rate=0.002)
    stale = json.loads(reproduced.dvc("status", "--json"))
    reproduced.restore()
    assert list(stale) == ["train", "export"]  # whose model card names the parameters


def test_dvc_repro_restores_a_damaged_shard(reproduced: Checkout) -> None:
    shard = next((reproduced.folder / "data" / "records").glob("*_train_*"))
    before = shard.read_bytes()
    shard.write_bytes(before[:-1] + b"\0")
    output = reproduced.must("dvc", "repro")
    assert "'convert' is cached" in output
    assert shard.read_bytes() == before


@pytest.mark.slow
def test_a_folder_without_git_works(make_checkout: Callable[[str], Checkout]) -> None:
    unpacked = make_checkout("unpacked")
    unpacked.must("rm", "-rf", ".git")
    unpacked.must("dvc", "config", "--local", "core.no_scm", "true")
    assert "Running stage 'validate'" in unpacked.must("dvc", "repro", "validate")


def test_everything_but_the_remote_works_without_the_extra(reproduced: Checkout) -> None:
    blocker = reproduced.home / "sitecustomize.py"
    blocker.write_text(
        "import sys\nfor name in ('boto3', 'dvc_s3', 's3fs', 'botocore'):\n    sys.modules[name] = None\n"
    )
    path = os.pathsep.join((str(reproduced.folder / "src"), str(reproduced.home)))
    assert reproduced.run("python", "-c", "import boto3", PYTHONPATH=path).returncode == 1
    assert "up to date" in reproduced.must(sys.executable, "-m", "dvc", "status", PYTHONPATH=path)
    reproduced.must(sys.executable, "-m", "perennial", "validate", PYTHONPATH=path)
