"""Downloads that are killed while they fetch a source: the next one fetches what is missing, and only that."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import raw, s3

from perennial.base import files
from perennial.data.sources.copies import COPY
from perennial.data.sources.pin import pin
from perennial.stages.download import download

KILLS = int(os.environ.get("KILLS", "3"))
OBJECTS = 120
LARGE_BYTES = 300_000
SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture
def source(bucket, tmp_path):
    """A bucket of many small pictures and a few larger ones, and the folder with them."""
    folder = tmp_path / "photos"
    for number in range(OBJECTS):
        content = raw.encoded(raw.picture(number)) + bytes(LARGE_BYTES if number % 40 == 0 else 0)
        files.make_folder(folder / str(number % 3))
        (folder / str(number % 3) / f"{number:03}.png").write_bytes(content)
    bucket.put_folder(folder)
    bucket.folder = folder
    return bucket


def kill_at(request, delay_s, proxy):
    """Start a download in the working directory, and kill it some time after its N-th request."""
    command = [sys.executable, "-m", "perennial", "download"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while len(proxy.asked) < request and process.poll() is None:
            time.sleep(0.001)
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("kill", range(KILLS))
def test_after_a_kill_what_is_missing_is_fetched_once(source, load, kill, server, monkeypatch):
    config = load(**{"dataset.name": "image_folder", "dataset.url": source.url})
    pin(config)
    source.requests()
    # At a random moment, which does not decide the result.
    kill_at(random.randint(2, OBJECTS), random.uniform(0, 0.05), source.proxy)
    folder = config.paths.work / "source"
    complete = [match for file in folder.glob("*/*/*") if (match := COPY.fullmatch(file.name))]
    # A proxy of its own: requests of the killed process may still arrive at the first one.
    proxy = s3.Proxy(server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    source.proxy = proxy
    download(config)
    fetched, _ = source.requests()
    proxy.end()
    # No object twice: also one of which all bytes had arrived.
    assert len(fetched) == len(set(fetched)) == OBJECTS - len(complete)
    left = {file.name for file in folder.rglob("*") if file.is_file()}
    assert len([name for name in left if COPY.fullmatch(name)]) == len(left - {"lock"}) == OBJECTS
    found = files.digests(config.paths.raw)
    local = load(**{"dataset.url": str(source.folder)})
    pin(local)
    download(local)
    assert files.digests(local.paths.raw) == found
