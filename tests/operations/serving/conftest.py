"""Two exports whose answers differ, and a server of one of them."""

import pytest
from operations.serving.served import serving
from support.inference import World, classifier, world, write_export
from support.s3 import bucket, server

__all__ = ["bucket", "classifier", "server", "world"]


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> World:
    """An export that gives other probabilities than `world`."""
    return write_export(tmp_path_factory.mktemp("other") / "export", scale=3)


@pytest.fixture(scope="module")
def client(world: World):
    """A client of a server with small limits."""
    limits = {"request_bytes": 1 << 20, "instances": 4, "pixels": 100_000, "numbers": 50_000, "body_s": 0.3}
    with serving(world.folder, **limits) as (_, found):
        yield found
