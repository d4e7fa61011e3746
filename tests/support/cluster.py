"""A stand-in for a cluster: it keeps the Jobs that a worker of Prefect creates, and runs their containers here.

It is no Kubernetes: it checks and schedules nothing, and knows Jobs of one pod. What a worker sends is real.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.small_servers import Answering, served

CONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{url}"}}}}]
contexts: [{{name: here, context: {{cluster: here, user: nobody}}}}]
users: [{{name: nobody, user: {{}}}}]
"""


@dataclass
class Cluster:
    """The Jobs that were created, and the processes of their pods once they have got a node."""

    config: Path  # for clients, as KUBECONFIG
    image: Mapping[str, str]  # variables that the image of the pods sets
    jobs: list[dict[str, Any]] = field(default_factory=list)
    pods: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def name(self, number: int) -> str:
        """The name of a Job, as the server makes it."""
        return f"{self.jobs[number]['metadata']['generateName']}{number:05}"

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Give the pod of a Job its node: run its container."""
        (container,) = self.jobs[number]["spec"]["template"]["spec"]["containers"]
        given = {each["name"]: each.get("value", self.name(number)) for each in container["env"]}
        log = self.config.with_name(f"{self.name(number)}.log")
        with log.open("wb") as output:
            self.pods[self.name(number)] = subprocess.Popen(
                container["args"], env={**os.environ, **self.image, **given}, stdout=output, stderr=output
            )
        return self.pods[self.name(number)]

    def evict(self, number: int) -> int:
        """Take back the node of a pod: SIGTERM, and SIGKILL after its time; returns its exit code."""
        pod = self.pods[self.name(number)]
        pod.send_signal(signal.SIGTERM)
        try:
            return pod.wait(self.jobs[number]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            pod.kill()
            return pod.wait()


@contextmanager
def cluster(folder: Path, image: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster during the block."""
    made = Cluster(folder / "kubeconfig", {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", **image})

    class Handler(Answering):
        def do_POST(self) -> None:
            asked = self.body()
            made.jobs.append(asked)
            answered = {"name": made.name(len(made.jobs) - 1), "namespace": asked["metadata"]["namespace"]}
            # The client sends the manifest as it is, and parses an answer of Kubernetes' form.
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({"kind": "Job", "metadata": answered}).encode())

        def do_GET(self) -> None:
            self.answer({}, 404)

    try:
        with served(Handler) as url:
            made.config.write_text(CONFIG.format(url=url))
            yield made
    finally:
        for pod in made.pods.values():
            pod.kill()
            pod.wait()
