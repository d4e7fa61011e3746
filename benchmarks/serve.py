"""Times of requests to `perennial serve` from 32 clients at once, while versions change and while none does.

Beside it stand two servers that one writes in ten lines with FastAPI, and Keras' `predict` alone, called from
as many threads without HTTP. One server calls the exported signature once for each request, as ours does for
several requests at once. The other one calls Keras' `predict`, which sets up a data set each time: Keras
advises against that for few images. Servers and clients are processes of this machine, and the programs take
turns; every answer is compared with that of `perennial.load` for the version that it names.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from benchmarks import projects, results
from benchmarks.serving import CLIENTS, IMAGES, SIDE
from benchmarks.timing import ENVIRONMENT, PERENNIAL, RUNS, SCALE, run
from perennial.base import files
from perennial.release.publishing import publish_to_folder as published
from perennial.release.publishing.version_layout import AllowedExport

REQUESTS = int(os.environ.get("REQUESTS", str(int(100_000 * SCALE))))
COMPARED = max(CLIENTS, int(1_000 * SCALE))  # requests of each program in a round without changes
SWITCHES = 20
COLUMNS = ("requests/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms")


def measure() -> None:
    """Compares the programs, then changes versions under the clients; writes the results."""
    with projects.scratch() as folder:
        exports, answers, images = prepare(folder)
        rows = _rounds(folder, exports[0], images, answers)
        changing = _change(folder, exports, images, answers)
    results.write(
        "serve", compared=rows, requests=COMPARED, changing=changing, switches=SWITCHES, clients=CLIENTS
    )
    _show(rows, changing)


def _rounds(folder: Path, export: Path, images: Path, answers: Path) -> dict[str, list[dict[str, Any]]]:
    """What each program gave in each round, without changes; every other round goes backwards."""
    servers = {
        "perennial serve": ours(folder),
        "FastAPI and the signature": (*_program("signature"), str(export)),
        "FastAPI and Keras": (*_program("keras"), str(export)),
    }
    alone = (*_program("calls"), str(export), str(images), str(COMPARED))
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*servers, "Keras alone")}
    for number in range(RUNS):
        for name in list(rows)[:: -1 if number % 2 else 1]:
            if name in servers:
                with server(servers[name], folder) as url:
                    rows[name].append(ask(url, images, answers, COMPARED))
            else:
                rows[name].append(json.loads(run(alone, folder).splitlines()[-1]))
    return rows


def prepare(folder: Path) -> tuple[list[Path], Path, Path]:
    """Two exports, the right answers of both, and images; the first export is published."""
    images = folder / "images"
    images.mkdir()
    random = np.random.default_rng(0)
    for number in range(IMAGES):
        pixels = random.integers(0, 256, (7, 7), np.uint8)
        image = PIL.Image.fromarray(pixels).resize((SIDE, SIDE))
        image.save(images / f"{number:02}.png")
    exports, right = [], []
    for seed in range(2):
        export = folder / str(seed) / "export"
        export.parent.mkdir()
        run((*_program("export"), str(export), str(seed)), folder)
        run((*_program("right"), str(export), str(images), str(folder / "right.json")), folder)
        right.append(json.loads((folder / "right.json").read_text(encoding="utf-8")))
        exports.append(export)
    (folder / "right.json").write_text(json.dumps(right), encoding="utf-8")
    _publish(folder, exports[0])
    return exports, folder / "right.json", images


def _publish(folder: Path, export: Path) -> str:
    release = AllowedExport(export=export, digests=files.digests(export), decision={}, provenance=b"{}")
    return str(published.add(str(folder / "published"), release).version)


def _change(folder: Path, exports: list[Path], images: Path, answers: Path) -> dict[str, Any]:
    """Many requests while versions change, each once another share of the requests is answered."""
    with server(ours(folder), folder) as url:
        asking = subprocess.Popen(
            (*_program("clients"), url, str(images), str(answers), str(REQUESTS)),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for switch in range(1, SWITCHES + 1):
            while asking.poll() is None and _answered(url) < switch * REQUESTS / (SWITCHES + 1):
                time.sleep(0.1)
            version = _publish(folder, exports[switch % 2])
            while asking.poll() is None and json.loads(get(f"{url}ready"))["version"] != version:
                time.sleep(0.05)
        printed, _ = asking.communicate()
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        found["server_peak_mb"] = peak_mb()
    wrong = {name: count for name, count in found["answers"].items() if not name.isdecimal()}
    if wrong or len(found["answers"]) != SWITCHES + 1 or sum(found["answers"].values()) != REQUESTS:
        sys.exit(f"not every answer was right, or not every version answered: {found['answers']}")
    return found


def ask(url: str, images: Path, answers: Path, requests: int) -> dict[str, Any]:
    """Ask a server so often, and compare every answer; times and rate of the requests."""
    run((*_program("clients"), url, str(images), str(answers), str(2 * CLIENTS)), images)  # warm
    printed = run((*_program("clients"), url, str(images), str(answers), str(requests)), images)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    if found["answers"] != {"1": requests}:
        sys.exit(f"{url} did not answer every request: {found['answers']}")
    return found


class _Started:
    """The server that was started last."""

    last: "subprocess.Popen[bytes]"


@contextmanager
def server(command: tuple[str, ...], folder: Path, **environment: str) -> Iterator[str]:
    """The address of a server, whose port is the last argument; it ends with the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    _Started.last = process = subprocess.Popen(
        (*command, str(port)), cwd=folder, env={**ENVIRONMENT, **environment}
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        while True:
            try:
                get(f"{url}ready")
                break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended with {process.returncode}")
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


def peak_mb() -> float:
    """The largest memory so far of the server that was started last."""
    memory = Path(f"/proc/{_Started.last.pid}/status").read_text(encoding="utf-8")
    return int(memory.partition("VmHWM:")[2].split()[0]) / 1000


def get(url: str) -> str:
    """What a GET answers."""
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def _answered(url: str) -> float:
    lines = get(f"{url}metrics").splitlines()
    return sum(
        float(line.split()[-1])
        for line in lines
        if line.startswith("perennial_requests_total") and 'endpoint="predict"' in line
    )


def ours(folder: Path, *options: str) -> tuple[str, ...]:
    """The command of our server, without its port."""
    return *PERENNIAL, "serve", "--model", str(folder / "published"), *options, "--port"


def _program(kind: str) -> tuple[str, ...]:
    return sys.executable, "-m", "benchmarks.serving", kind


def _show(rows: dict[str, list[dict[str, Any]]], changing: dict[str, Any]) -> None:
    """Prints medians of the rounds, and the requests under changes."""
    print(f"\nserve, {CLIENTS} clients\n{'':<34}" + "".join(f"{column:>12}" for column in COLUMNS))
    for name, rounds in {**rows, f"perennial serve, {SWITCHES} new versions": [changing]}.items():
        rate = statistics.median(each["requests_per_second"] for each in rounds)
        times = (
            statistics.median(each["milliseconds"][key] for each in rounds)
            for key in ("p50", "p99", "p99.9", "max")
        )
        print(f"  {name:<32}{rate:>12.0f}" + "".join(f"{each:>12.1f}" for each in times))
    total = sum(changing["answers"].values())
    print(
        f"  {total} requests, none lost, none wrong; the server took {changing['server_peak_mb']:.0f} MB",
        flush=True,
    )


if __name__ == "__main__":
    measure()
