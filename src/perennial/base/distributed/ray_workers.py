"""The workers of one training on the nodes of a Ray cluster, one on each.

Ray places them, and an actor on each node (`ray_agent`) runs the worker as a child process with TF_CONFIG. Ray
Train is not used: it needs pandas and pyarrow, and runs a training in a thread, where no signal can save it.
"""

import json
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perennial.base import files, layout
from perennial.base.config import Config
from perennial.base.distributed import cluster, ray_agent, workers
from perennial.base.errors import ConfigError, InputsChanged, Interrupted
from perennial.base.parallel import ray_driver
from perennial.base.processes import process
from perennial.base.retries import RESTARTS

log = logging.getLogger(__name__)
START_S = 300.0  # for processes of Ray on a busy machine
CALL_S = 10.0  # for a short call while all is well
SAVED_S = workers.GRACE_S + CALL_S  # for the workers to end after a signal
PATIENCE_S = 5.0
POLL_S = 0.2
TRAINED = Path("train")  # in paths.work: the checkpoints
TOKEN = ".seen-by-nodes"  # noqa: S105 - a file's name


class Busy(Interrupted):
    """Others use the nodes that the workers need; waiting took its time already."""


@dataclass(frozen=True)
class Job:
    """A training that several nodes do together."""

    arguments: Sequence[str]
    count: int
    devices: str  # of one worker
    gpus: int  # of one worker
    work: Path


def run(arguments: Sequence[str], config: Config) -> None:
    """Run `perennial` in compute.workers workers; after a loss all start again from the newest checkpoint."""
    work = config.paths.work
    left, seen, given = RESTARTS, _checkpoints(work), list(arguments)
    lost: Interrupted | None = None
    while True:
        try:
            return _run_once(given, config)
        except ConfigError as error:
            if lost is None:
                raise
            raise Interrupted(f"{lost}; it could not start again: {error}") from error
        except Interrupted as error:
            now = _checkpoints(work)
            left, seen = RESTARTS if now != seen else left - 1, now
            if isinstance(error, InputsChanged | Busy) or process.signalled() or left < 0:
                raise
            log.warning("%s; all workers start again", error)
            lost = error
        given = [each for each in given if each != "--clean"]  # what is there now is ours


def _run_once(arguments: Sequence[str], config: Config) -> None:
    """Start all workers, and wait until they have ended."""
    with ray_driver.Driver(_train, arguments, config) as driver:
        try:
            driver.receive()
        except process.Signalled as signalled:
            interrupted = str(signalled) == process.NAMES[signal.SIGINT]
            driver.signal(signal.SIGINT if interrupted else signal.SIGTERM)
            driver.receive(SAVED_S)
            raise Interrupted(f"{signalled} ended the workers; run it again") from None


def _train(_caller: ray_driver.Caller, arguments: Sequence[str], config: Config) -> None:
    """The same, in a process that Ray may end."""
    with ray_driver.connected(processes=config.compute.workers) as ray:
        job = _job(ray, arguments, config)
        with _placed(ray, job) as agents:
            _supervise(ray, job, agents)


def _checkpoints(work: Path) -> set[str]:
    return {path.name for path in (work / TRAINED).glob("*/step-*")}


def _job(ray: Any, arguments: Sequence[str], config: Config) -> Job:
    """Choose the devices of each worker; train.devices are those of all workers together."""
    count, devices = config.compute.workers, config.train.devices
    kind, _, which = devices.partition(":")
    gpus = 0
    if kind == "auto":
        if config.compute.gpus == "all":
            gpus = _gpus_on_each(ray, count)
        else:
            gpus = _shared(int(config.compute.gpus), count)
        own = "auto"
    elif "," in which:
        raise ConfigError(
            f"train.devices is {devices}, but Ray chooses the GPUs of a worker; nothing was started; "
            f"set train.devices to gpu:{len(which.split(','))}"
        )
    elif kind == "gpu":
        gpus = _shared(int(which), count)
        own = f"gpu:{gpus}"
    elif int(which) == count:
        own = "cpu:1"
    else:
        raise ConfigError(
            f"compute.workers is {count}, but train.devices is {devices}, and each worker has one CPU; "
            f"nothing was started; set train.devices to cpu:{count}"
        )
    return Job(arguments, count, own, gpus, config.paths.work)


def _shared(number: int, count: int) -> int:
    """How many of the GPUs each worker gets."""
    each, rest = divmod(number, count)
    if rest or not each:
        raise ConfigError(
            f"compute.workers is {count}, but there are {number} GPUs to share; "
            "nothing was started; set compute.gpus or train.devices to a multiple of compute.workers"
        )
    return each


def _gpus_on_each(ray: Any, count: int) -> int:
    """The most GPUs that so many nodes have; on one machine, what each worker gets of them."""
    found = sorted((int(each["Resources"].get("GPU", 0)) for each in _nodes(ray)), reverse=True)
    if ray_driver.on_local_ray():
        return found[0] // count
    return found[min(count, len(found)) - 1] if found else 0


def _nodes(ray: Any) -> list[dict[str, Any]]:
    return [each for each in ray.nodes() if each["Alive"]]


@contextmanager
def _placed(ray: Any, job: Job) -> Iterator[list[Any]]:
    """Reserve a node for each worker while the block runs, and start an agent on each."""
    from ray.util import scheduling_strategies as strategies  # noqa: PLC0415 - an extra

    bundle = {"CPU": 1, **({"GPU": job.gpus} if job.gpus else {})}
    strategy = "PACK" if ray_driver.on_local_ray() else "STRICT_SPREAD"
    group = ray.util.placement_group([bundle] * job.count, strategy=strategy)
    agents: list[Any] = []
    try:
        _wait_for_nodes(ray, job, group, bundle)
        remote = ray.remote(ray_agent.Agent)
        for index in range(job.count):
            place = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index)
            agents.append(
                remote.options(
                    num_cpus=1,
                    num_gpus=job.gpus,
                    max_concurrency=4,  # a signal while it reports
                    scheduling_strategy=place,
                ).remote()
            )
        yield agents
    finally:
        with suppress(ray.exceptions.RayError):
            for agent in agents:
                ray.kill(agent)
            ray.util.remove_placement_group(group)


def _wait_for_nodes(ray: Any, job: Job, group: Any, bundle: Mapping[str, int]) -> None:
    """Wait until Ray has reserved a node for each worker."""
    limit_s = cluster.wait_s()  # a cluster that grows on demand needs minutes
    started, announced = time.monotonic(), False
    while ray.util.placement_group_table(group)["state"] != "CREATED":
        waited_s = time.monotonic() - started
        nodes = _nodes(ray)
        large = [node for node in nodes if all(_has(node, name) >= bundle[name] for name in bundle)]
        needs = ", ".join(f"{name} {number}" for name, number in bundle.items())
        wanted = f"{job.count} nodes with {needs} free on each, for compute.workers: {job.count}"
        each = (
            f"{node['NodeManagerAddress']} (CPU {_has(node, 'CPU')}, GPU {_has(node, 'GPU')})" for node in nodes
        )
        found = f"its nodes: {', '.join(each)}"
        if waited_s > limit_s and len(large) < job.count:
            raise ConfigError(
                f"the Ray cluster has {len(large)} of {wanted}; {found}; nothing was trained after "
                f"{waited_s:.0f} s; add nodes, or set compute.workers to {max(len(large), 1)}"
            )
        if waited_s > limit_s:
            raise Busy(
                f"the nodes of the Ray cluster are busy: waited {waited_s:.0f} s for {wanted}; {found}; "
                "nothing was trained; run it again when they are free"
            )
        if waited_s > PATIENCE_S and not announced:
            log.info("waiting up to %.0f s for %s; %s", limit_s, wanted, found)
            announced = True
        time.sleep(POLL_S)


def _has(node: Mapping[str, Any], resource: str) -> int:
    return int(node["Resources"].get(resource, 0))


def _supervise(ray: Any, job: Job, agents: Sequence[Any]) -> None:
    """Start a worker with each agent, and wait until all have ended."""
    folder = Path.cwd()
    try:
        facts = _look(ray, job, agents, folder)
    except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
        raise Interrupted(
            f"a process of Ray did not start: {' '.join(str(error).split())}; nothing was trained; run it again"
        ) from error
    addresses = [each["address"] for _, each in facts]
    log.info("training on %s", ", ".join(f"{each['node']} (worker {i})" for i, (_, each) in enumerate(facts)))
    given = ray_agent.passed_on(os.environ)
    if process.STARTED_BY in os.environ:
        given[process.STARTED_BY] = "node"

    def start(index: int) -> workers.Worker:
        agent, found = facts[index]
        command = [found["python"], "-m", "perennial", *job.arguments]
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        own = {cluster.VARIABLE: json.dumps(task), "PYTHONPATH": layout.python_path()}
        ray.get(agent.start.remote(command, str(folder), given | own, job.devices), timeout=CALL_S)
        failure = folder / workers.failure_file(job.work, index)
        return RemoteWorker(ray, agent, index, found["node"], failure)

    workers.supervise(start, job.count, job.work)


def _look(ray: Any, job: Job, agents: Sequence[Any], folder: Path) -> list[tuple[Any, dict[str, Any]]]:
    """The agents and what they see of this machine's files."""
    file, token = job.work / TRAINED / TOKEN, secrets.token_hex(16)
    files.write_bytes(file, token.encode())
    try:
        calls = [agent.look.remote(str(folder), str(file), sys.executable) for agent in agents]
        found = ray.get(calls, timeout=START_S)
    finally:
        file.unlink(missing_ok=True)
    if apart := sorted({each["node"] for each in found if each["token"] != token}):
        raise ConfigError(
            f"nodes of the Ray cluster do not share {folder} and {(folder / file.parent).resolve()} with this "
            f"machine: {', '.join(apart)}; nothing was trained; mount both there under the same paths"
        )
    return list(zip(agents, found, strict=True))


class RemoteWorker:
    """A worker on a node. Its lines come with the answers of its agent, which are awaited one at a time."""

    def __init__(self, ray: Any, agent: Any, index: int, node: str, failure: Path) -> None:
        self._code: int | None = None
        self._ray, self._agent = ray, agent
        self._index, self._node, self._failure = index, node, failure
        self._known = 0
        self._answer: Any = None

    def poll(self) -> int | None:
        """Write what the worker said, and return its exit code; 75 if it was lost."""
        if self._code is not None:
            return self._code
        try:
            if self._answer is None:
                self._answer = self._agent.report.remote(self._known, str(self._failure))
            if self._ray.wait([self._answer], timeout=0)[0]:
                answer, self._answer = self._answer, None
                self._take(*self._ray.get(answer))
        except self._ray.exceptions.ActorUnavailableError:
            self._answer = None  # it may come back
        except self._ray.exceptions.RayActorError:
            text = f"worker {self._index} was lost: node {self._node} or its Ray process ended"
            log.warning(text)
            self._fail(json.dumps({"code": Interrupted.exit_code, "message": text}))
            self._code = Interrupted.exit_code
        return self._code

    def _take(self, lines: Sequence[str], code: int | None, failure: str) -> None:
        for line in lines:
            sys.stderr.write(f"worker {self._index}: {line}" if self._index else line)
        sys.stderr.flush()
        self._known += len(lines)
        if failure:
            self._fail(failure)
        self._code = code

    def _fail(self, text: str) -> None:
        """Write the worker's failure here, unless the machines share the file."""
        if not self._failure.exists():
            files.write_bytes(self._failure, text.encode())

    def signal(self, number: int) -> None:
        """Send a signal to the worker, if it runs."""
        if self._code is None:
            self._agent.signal.remote(int(number))

    def wait(self, limit_s: float) -> int | None:
        """Wait for the end of the worker."""
        deadline = time.monotonic() + limit_s
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return self._code
