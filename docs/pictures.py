"""Draw the pictures of the documentation: `python docs/pictures.py FOLDER`, where `make run` has run in FOLDER.

The terminal is an SVG of the real output of `make run`; the pages are screenshots of Chromium. With the address
of a Prefect server, such as http://127.0.0.1:4200, instead of a folder: screenshots of its runs and artifacts.
"""

import io
import os
import pty
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import chromium

IMAGES = Path(__file__).parent / "images"
COLUMNS, LINES = 120, 40
ERASED = "\x1b[1A\x1b[2K"  # of a line of a live view, before it is drawn again
LOADED_S = 6  # until the UI has asked the server for what it shows
PAGES = [
    ("report.html", "report-1280-light.png", 1280, "light", 0, 1420),
    ("report.html", "report-1280-dark.png", 1280, "dark", 1420, 1640),
    ("report.html", "report-390-light.png", 390, "light", 0, 1500),
    ("report.html", "report-390-dark.png", 390, "dark", 1500, 1580),
    ("data/validation.html", "validation.png", 1240, "light", 0, 1500),
    ("runs.html", "runs-1280-light.png", 1280, "light", 0, 1560),
    ("runs.html", "runs-390-dark.png", 390, "dark", 0, 1560),
]  # page, picture, width, scheme, first row, rows


def record(folder: Path, *command: str) -> str:
    """The output of a command on a terminal, with its colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=folder, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    output = b""
    try:
        while block := os.read(ours, 1 << 16):
            output += block
    except OSError:  # Linux ends the reading of a closed terminal with EIO
        pass
    assert process.wait() == 0, output.decode()
    return output.decode()


def draw_terminal(prompt: str, output: str, file: Path) -> None:
    """The prompt and the last lines of an output, without what a live view or progress bar has overwritten."""
    output = output.rpartition(ERASED)[2]
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in output.rstrip().split("\n")]
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(f"[bold]$ {prompt}[/bold]")
    for line in lines[-LINES:]:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    svg = console.export_svg(title="perennial")
    file.write_text(re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL), encoding="utf-8")  # no web fonts


def photograph(folder: Path) -> None:
    """The screenshots of the pages of a run."""
    for page, picture, width, scheme, top, rows in PAGES:
        with tempfile.TemporaryDirectory() as profile, chromium.opened(folder / page, Path(profile)) as shown:
            shown.show(width=width, scheme=scheme, height=rows)
            height = shown.evaluate("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": min(top, max(0, height - rows)), "width": width, "height": min(rows, height)}
            (IMAGES / picture).write_bytes(shown.picture(clip={**clip, "scale": 1}))


def photograph_serve(folder: Path) -> None:
    """The screenshots of the page of `perennial serve`, after two images of the test split were chosen."""
    # In the order of the page: the newest comes first.
    images = [folder / ".work" / name for name in ("digit-2.png", "digit-1.png")]
    for number, image in zip(("8", "7"), images, strict=True):
        image.unlink(missing_ok=True)
        record(folder, "perennial", "show", number, "--split", "test", "--save", str(image))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"
    process = subprocess.Popen(("perennial", "serve", "--port", str(port)), cwd=folder)
    try:
        while not _is_ready(url):
            time.sleep(0.2)
        for picture, width, scheme in (
            ("serve-1280-light.png", 1280, "light"),
            ("serve-390-dark.png", 390, "dark"),
        ):
            with tempfile.TemporaryDirectory() as profile, chromium.opened(url, Path(profile)) as shown:
                shown.show(width=width, scheme=scheme, height=800)
                shown.choose("#file", images)
                shown.wait_for("document.querySelectorAll('article').length === 2")
                shown.evaluate("document.getElementById('status').textContent = ''")
                height = shown.evaluate("document.documentElement.scrollHeight")
                clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
                (IMAGES / picture).write_bytes(shown.picture(clip=clip))
    finally:
        process.terminate()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}ready").is_success
    except httpx.TransportError:
        return False


def photograph_server(url: str) -> None:
    """The screenshots of the newest runs and artifacts of a server, as far as it has them."""

    def found(kind: str, **query: object) -> dict[str, Any] | None:
        """The newest of its kind."""
        answer = httpx.post(f"{url}/api/{kind}/filter", json={"limit": 1, **query}).raise_for_status().json()
        return answer[0] if answer else None

    def run(state: str) -> str:
        chosen = {"state": {"type": {"any_": [state]}}}
        newest = found("flow_runs", flow_runs=chosen, sort="START_TIME_DESC")
        return f"runs/flow-run/{newest['id']}" if newest else ""

    def artifact(key: str) -> str:
        newest = found("artifacts", artifacts={"key": {"any_": [key]}}, sort="CREATED_DESC")
        return f"artifacts/artifact/{newest['id']}" if newest else ""

    for page, picture, rows in (
        (run("RUNNING"), "prefect-run.png", 496),
        (artifact("training"), "prefect-training.png", 420),
        (artifact("retrain"), "prefect-decision.png", 900),
        (run("FAILED"), "prefect-failed.png", 620),
    ):
        if not page:
            sys.stderr.write(f"{picture}: the server has nothing to show\n")
            continue
        with (
            # The browser may still write to it after it was asked to end.
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
            chromium.opened(f"{url}/{page}", Path(profile)) as shown,
        ):
            shown.show(width=1280, height=rows)
            time.sleep(LOADED_S)
            clip = {"x": 0, "y": 0, "width": 1280, "height": rows, "scale": 1}
            (IMAGES / picture).write_bytes(shown.picture(clip=clip))


if __name__ == "__main__":
    if sys.argv[1].startswith("http"):
        photograph_server(sys.argv[1].rstrip("/"))
    else:
        where = Path(sys.argv[1])
        record(where, "perennial", "runs", "--page")
        photograph(where)
        photograph_serve(where)
        draw_terminal("make run", record(where, "make", "run"), IMAGES / "make-run.svg")
