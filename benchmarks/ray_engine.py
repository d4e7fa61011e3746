"""What `compute.engine: ray` costs on one machine: convert and validate, beside processes and plain Ray tasks.

Once with a cluster that is there, as on several machines, and once with one that the command starts and ends.
"""

import os
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from benchmarks import data, projects, results
from benchmarks.timing import PERENNIAL, ROOT, Case, Program, compare, unadopted

PEER = ROOT / "benchmarks" / "peers" / "ray_files.py"
START_S = 120
OPEN = "RAY_AUTH_MODE=disabled"  # else a token of the user decides who may connect
THERE, STARTED, PLAIN = "Ray, cluster there", "Ray, started for it", "plain Ray tasks"


def measure() -> None:
    """Measures both stages on photographs and writes the results."""
    with projects.scratch() as folder, _cluster() as address:
        originals = data.flowers()
        with tarfile.open(originals / "flower_photos.tgz") as archive:
            archive.extractall(folder / "extracted", filter="data")
        cases = {stage: compare(_case(stage, originals, folder, address)) for stage in ("convert", "validate")}
    results.write("ray", cases=cases, ray=version("ray"), data=data.origins())


def _case(stage: str, originals: Path, folder: Path, address: str) -> Case:
    """The stage with each engine, whose outputs must be the same; plain tasks only decode the photographs."""
    expected: list[str] = []

    def program(name: str, engine: str, *variables: str) -> Program:
        make = projects.converted if stage == "validate" else projects.downloaded
        project = make(folder / stage / name, "flowers", originals, {"compute.engine": engine})
        outputs = (
            (projects.records(project),) if stage == "convert" else (project / "data" / "validation.json",)
        )

        def verify(_: str) -> None:
            files = sorted(file for each in outputs for file in (each, *each.rglob("*")) if file.is_file())
            found = sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()
            expected.append(found)
            assert files
            assert found == expected[0], "its output differs from that of processes"

        command = ("env", *variables, *PERENNIAL, stage)
        return Program(name=name, command=command, folder=project, outputs=outputs, verify=verify)

    there = (f"RAY_ADDRESS={address}", OPEN)
    programs = [
        program("processes", "processes"),
        program(THERE, "ray", *there),
        program(STARTED, "ray", "-u", "RAY_ADDRESS"),
    ]
    if stage == "convert":
        count = sum(1 for _ in (folder / "extracted").rglob("*.jpg"))

        def decoded(printed: str) -> None:
            assert printed.split(maxsplit=1)[0] == str(count), f"it decoded {printed}, expected {count}"

        command = ("env", *there, sys.executable, str(PEER), str(folder / "extracted"))
        programs.append(Program(name=PLAIN, command=command, folder=folder, verify=decoded))
    return Case(name=f"{stage} flowers", programs=programs, targets={})


@contextmanager
def _cluster() -> Iterator[str]:
    """A Ray cluster of this machine's cores; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    head = ["--head", "--block", f"--port={port}", "--include-dashboard=false", "--disable-usage-stats"]
    reach = ["env", OPEN, sys.executable, "-c", f"import ray; ray.init('127.0.0.1:{port}')"]
    pid = unadopted(["env", OPEN, str(Path(sys.executable).with_name("ray")), "start", *head])
    try:
        deadline = time.monotonic() + START_S
        while subprocess.run(reach, capture_output=True, check=False).returncode:
            assert time.monotonic() < deadline, "the Ray cluster did not start"
        yield f"127.0.0.1:{port}"
    finally:
        os.kill(pid, signal.SIGTERM)
