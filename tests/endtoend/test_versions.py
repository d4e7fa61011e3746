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


@pytest.mark.fast_rows(
    'requirements/train.yaml-keras: "-keras: "9-stale1', "requirements/train.yaml-# Decides-# It decides-stale3"
)
@pytest.mark.parametrize(
    ("file", "old", "new", "stale"),
    [
        ("requirements/data.yaml", 'pillow: "', 'pillow: "9', {"download", "convert", "validate"}),
        (
            "requirements/train.yaml",
            'keras: "',
            'keras: "9',
            {"train", "evaluate", "export", "champion", "gate"},
        ),
        ("requirements/evaluate.yaml", 'matplotlib: "', 'matplotlib: "9', {"evaluate"}),
        ("requirements/train.yaml", "# Decides", "# It decides", set()),
        ("requirements/base.txt", "\nprefect==", "\nprefect==9", set()),
    ],
)
def test_an_upgrade_makes_stale_what_depends_on_the_package(reproduced, file, old, new, stale) -> None:
    path = reproduced.folder / file
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    found = json.loads(reproduced.dvc("status", "--json"))
    reproduced.restore()
    assert found.keys() == stale


def test_the_mark_of_an_output_folder_is_not_a_source_file(reproduced: Checkout) -> None:
    data = reproduced.folder / "data"
    manifest = json.loads((data / "records" / "manifest.json").read_text(encoding="utf-8"))
    assert (data / "raw" / ".perennial").is_file()
    assert ".perennial" not in manifest["source"]


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
