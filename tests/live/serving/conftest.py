"""Two exports whose answers differ, and a server of one of them."""

import shutil

import pytest
from live.serving.served import serving
from support.inference import CLASSES, World, classifier, world, write_export
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


@pytest.fixture(scope="session")
def turned(world, tmp_path_factory):
    """The served model with its classes in another order: it disagrees on every image."""
    folder = tmp_path_factory.mktemp("turned") / "export"
    shutil.copytree(world.folder, folder)
    names = [*CLASSES[1:], CLASSES[0]]
    text = "".join(f"{index}:{name}\n" for index, name in enumerate(names))
    (folder / "assets" / "labels.txt").write_text(text, encoding="utf-8")
    (folder / "assets.extra" / "files.json").unlink(missing_ok=True)
    return folder
