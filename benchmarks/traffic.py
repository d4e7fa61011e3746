"""Times of requests to `perennial serve` while it keeps images and has a candidate in the shadow.

The peer is the same server with neither. The place of kept images works, has no room, answers only after
seconds, or is away; every answer is compared, and the programs take turns.
"""

import os
import socket
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import projects, results
from benchmarks.serve import ask, get, ours, peak_mb, prepare, server
from benchmarks.timing import RUNS, SCALE

REQUESTS = int(os.environ.get("REQUESTS", str(int(100_000 * SCALE))))  # of all rounds of a row together
SHARE = "0.05"  # of the images is kept, five times the default
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
ALONE = "neither"


def measure() -> None:
    """Compares the rows and writes the results."""
    with projects.scratch() as folder, _silent() as slow, _closed() as away:
        exports, answers, images = prepare(folder)
        shadow = ("--shadow", str(exports[1]))
        keep = ("--keep-share", SHARE, "--keep-per-day", "1000000", "--keep")
        rows: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
            ALONE: ((), {}),
            "keeping and shadow": ((*shadow, *keep, str(folder / "kept")), {}),
            "the place is full": ((*shadow, *keep, str(folder / "full"), "--keep-mb", "1"), {}),
            "the place is slow": (
                (*shadow, *keep, "s3://bucket/kept"),
                {"AWS_ENDPOINT_URL": slow, **CREDENTIALS},
            ),
            "the place is away": (
                (*shadow, *keep, "s3://bucket/kept"),
                {"AWS_ENDPOINT_URL": away, **CREDENTIALS},
            ),
        }
        _fill(folder / "full")
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in rows}
        for number in range(RUNS):
            for name in list(rows)[:: -1 if number % 2 else 1]:
                options, environment = rows[name]
                with server(ours(folder, *options), folder, **environment) as url:
                    asked = ask(url, images, answers, max(REQUESTS // RUNS, 1))
                    found[name].append({**asked, "peak_mb": peak_mb(), "counted": _counted(url)})
    results.write("traffic", rows=found, requests=REQUESTS)
    _show(found)


def _fill(folder: Path) -> None:
    """A kept image that takes all of the place."""
    images = folder / "2026-11-27" / "images"
    images.mkdir(parents=True)
    (images / f"{'0' * 64}.png").write_bytes(bytes(2 << 20))


@contextmanager
def _silent() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    held = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            try:
                while True:
                    held.append(listener.accept()[0])
            except OSError:  # the end
                return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def _closed() -> Iterator[str]:
    """The URL of a port on which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def _counted(url: str) -> dict[str, float]:
    """What became of the images that were drawn."""
    lines = [line.rpartition(" ") for line in get(f"{url}metrics").splitlines()]
    start = ("perennial_kept_images_total", "perennial_shadow_images_total")
    return {name: float(value) for name, _, value in lines if name.startswith(start)}


def _show(found: dict[str, list[dict[str, Any]]]) -> None:
    """Prints medians of the rounds, and p99 divided by that of the server alone in the same round."""
    print(f"\n{'':<24}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'of alone':>10}{'MB':>8}")
    for name, rounds in found.items():
        ratio = statistics.median(
            one["milliseconds"]["p99"] / alone["milliseconds"]["p99"]
            for one, alone in zip(rounds, found[ALONE], strict=True)
        )
        rate, p50, p99, peak = (
            statistics.median(values)
            for values in (
                [one["requests_per_second"] for one in rounds],
                [one["milliseconds"]["p50"] for one in rounds],
                [one["milliseconds"]["p99"] for one in rounds],
                [one["peak_mb"] for one in rounds],
            )
        )
        print(f"  {name:<22}{rate:>12.0f}{p50:>10.1f}{p99:>10.1f}{ratio:>10.2f}{peak:>8.0f}")
        print(f"    {rounds[-1]['counted']}", flush=True)


if __name__ == "__main__":
    measure()
