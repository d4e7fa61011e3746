"""An S3 server, a proxy before it, and a project with objects of DVC."""

import pytest
from support.garbage import World
from support.s3 import bucket, proxy, server

__all__ = ["bucket", "proxy", "server"]


@pytest.fixture
def world(tmp_path, monkeypatch, forked_dvc):
    made = World(tmp_path)
    monkeypatch.chdir(made.project)
    return made
