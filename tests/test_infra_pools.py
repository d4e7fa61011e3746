"""The templates of infra/pools, rendered by Prefect's own classes, are what Kubernetes and Docker take."""

import asyncio
import copy
import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from conftest import ROOT
from docker.models.containers import _create_container_args
from prefect import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_docker.worker import DockerWorker, DockerWorkerJobConfiguration
from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration
from support.manifests import are_valid, is_compose

from perennial.base.dvc import repro
from perennial.orchestration.provisioning import infra

Template = dict[str, Any]
CLASSES = {"kubernetes": KubernetesWorkerJobConfiguration, "docker": DockerWorkerJobConfiguration}
URL = "https://prefect.example.com/api"
NAMES = ("classifier 2026-11-27 02:00, nightly", "猫" * 40, "x" * 300, "pipelines/birds=a#b")  # of runs
LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
SPOT = {
    "image": "registry.example.com/perennial@sha256:" + "0" * 64,
    "gpus": 2,
    "namespace": "training",
    "node_selector": {"cloud.google.com/gke-spot": "true"},
    "tolerations": [{"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true"}],
    "priority_class_name": "low",
    "service_account_name": "perennial-run",
    "image_pull_secrets": [{"name": "registry"}],
    "env_from": [{"secretRef": {"name": "aws"}}, {"configMapRef": {"name": "settings"}}],
    "labels": {"kueue.x-k8s.io/queue-name": "gpu"},
    "env": {"PERENNIAL_REPOSITORY": "https://git.example.com/project.git"},
    "volumes": [{"name": "home", "emptyDir": {"sizeLimit": "200Gi"}}, {"name": "tmp", "emptyDir": {}}],
    "volume_mounts": [
        {"name": "home", "mountPath": "/var/lib/perennial"},
        {"name": "tmp", "mountPath": "/tmp"},
    ],
}


def template(kind: str) -> Template:
    return json.loads((ROOT / infra.POOLS / f"{kind}.json").read_text(encoding="utf-8"))


def rendered(kind: str, values: Template, given: Template | None = None, *, name: str = NAMES[0]) -> Any:
    """What a worker of Prefect makes of a template for a run."""

    async def render() -> Any:
        async with get_client() as client:
            configuration = await CLASSES[kind].from_template_and_values(
                base_job_template=given or template(kind), values=values, client=client
            )
        configuration.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name=name))
        return configuration

    with temporary_settings({PREFECT_API_URL: URL}):
        return asyncio.run(render())


def job(values: Template, given: Template | None = None, *, name: str = NAMES[0]) -> Template:
    """The Job of a run, with a name as the server gives it one.

    Prefect demands two fields of a Job in the pod, where they mean nothing; the server drops them.
    """
    manifest = copy.deepcopy(rendered("kubernetes", values, given, name=name).job_manifest)
    pod = manifest["spec"]["template"]["spec"]
    assert (pod.pop("parallelism"), pod.pop("completions")) == (1, 1)
    manifest["metadata"]["name"] = f"{manifest['metadata']['generateName']}x7k2p"
    return manifest  # type: ignore[no-any-return]


def settings(values: Template, given: Template | None = None, *, name: str = NAMES[0]) -> Template:
    """What a worker asks Docker's client for."""
    with temporary_settings({PREFECT_API_URL: URL}):
        configuration = rendered("docker", values, given, name=name)
        worker = DockerWorker(work_pool_name="docker")
        found: Template = worker._build_container_settings(None, configuration)  # type: ignore[arg-type]
    return found


def container(wanted: Template) -> Template:
    """What Docker's client sends to the engine."""
    return _create_container_args({**wanted, "version": "1.47"})


def is_service(wanted: Template, file: Path) -> bool:
    """Whether the schema of compose, whose words are those of the client, accepts a container as a service."""
    given = {key: value for key, value in wanted.items() if value is not None}
    devices = [{key.lower(): value for key, value in each.items()} for each in given.pop("device_requests")]
    given |= {"tmpfs": list(given["tmpfs"]), "deploy": {"resources": {"reservations": {"devices": devices}}}}
    for key, other in (("name", "container_name"), ("auto_remove", ""), ("network", "")):
        value = given.pop(key, None)
        given |= {other: value} if other else {}
    for each in devices:
        each["capabilities"] = [one for group in each["capabilities"] for one in group]
    file.write_text(json.dumps({"services": {"run": given}}))
    return is_compose(file)


@pytest.mark.parametrize("values", [{}, SPOT, {"gpus": 0}], ids=["defaults", "spot", "cpu"])
def test_kubernetes_accepts_the_job_of_a_run(values: Template, tmp_path: Path) -> None:
    assert are_valid([job(values)], tmp_path / "job.yaml")


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_any_name_has_names_and_labels_that_kubernetes_and_docker_take(name: str) -> None:
    made = job(SPOT, name=name)
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,51}-", made["metadata"]["generateName"])
    for labels in (made["metadata"]["labels"], made["spec"]["template"]["metadata"]["labels"]):
        assert all(LABEL.fullmatch(value) for value in labels.values()), labels
        assert labels["kueue.x-k8s.io/queue-name"] == "gpu"
    shown = settings({}, name=name)["name"]
    assert shown is None or re.fullmatch(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+", shown)


def pod_and_container(values: Template) -> tuple[Template, Template]:
    pod = job(values)["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    return pod, only


@pytest.mark.parametrize("values", [{}, SPOT], ids=["defaults", "spot"])
def test_a_pod_needs_no_root_and_writes_to_its_volumes_only(values: Template) -> None:
    pod, only = pod_and_container(values)
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert only["securityContext"]["readOnlyRootFilesystem"]
    assert only["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {each["name"] for each in only["volumeMounts"]} <= {each["name"] for each in pod["volumes"]}
    assert {"/var/lib/perennial", "/tmp"} <= {each["mountPath"] for each in only["volumeMounts"]}


def test_a_pod_has_time_to_save_and_only_perennial_starts_it_again() -> None:
    made = job({})
    assert made["spec"]["backoffLimit"] == 0
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > repro.GRACE_S + 10
    assert "podFailurePolicy" not in made["spec"]  # a pod that Kubernetes replaces, and a new Job: two at once


def test_what_a_deployment_names_reaches_the_pod() -> None:
    pod, only = pod_and_container(SPOT)
    assert {"args": ["perennial", "flow-run"], "image": SPOT["image"]}.items() <= only.items()
    assert only["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert {"nodeSelector": SPOT["node_selector"], "tolerations": SPOT["tolerations"]}.items() <= pod.items()
    assert only["envFrom"] == SPOT["env_from"]
    variables = {each["name"]: each.get("value", each.get("valueFrom")) for each in only["env"]}
    assert variables["PERENNIAL_REPOSITORY"] == "https://git.example.com/project.git"
    assert variables["PREFECT_API_URL"] == URL
    assert "job-name" in str(variables["PERENNIAL_JOB"])


def test_a_container_of_docker_needs_no_root_and_has_its_gpus_and_shared_memory() -> None:
    made = container(settings({"env": {"PERENNIAL_REPOSITORY": "https://git.example.com/project.git"}}))
    host = made["host_config"]
    assert (host["ReadonlyRootfs"], host["CapDrop"], made["user"]) == (True, ["ALL"], "1000")
    assert host["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
    assert {"ShmSize": 2 << 30, "Binds": ["perennial:/var/lib/perennial"]}.items() <= host.items()
    assert host["Tmpfs"] == {"/tmp": ""}
    assert made["command"] == "perennial flow-run"
    assert made["environment"]["PERENNIAL_REPOSITORY"] == "https://git.example.com/project.git"


@pytest.mark.parametrize("values", [{}, {"device_requests": []}], ids=["defaults", "cpu"])
def test_docker_accepts_the_container_of_a_run(values: Template, tmp_path: Path) -> None:
    wanted = settings(values)
    container(wanted)
    assert is_service(wanted, tmp_path / "service.json")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_value_of_a_template_is_a_variable_with_a_default_of_its_type(kind: str) -> None:
    given = template(kind)
    variables = given["variables"]["properties"]
    used = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(given["job_configuration"])))
    assert used == set(variables)
    for name, variable in variables.items():
        types = {"string": str, "integer": int, "array": list, "object": dict, "boolean": bool}
        if variable.get("default") is not None and "type" in variable:
            assert isinstance(variable["default"], types[variable["type"]]), name
        assert variable["description"], name


def test_a_template_is_of_the_type_that_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert {name: each.kind for name, each in infra.pools(CLASSES).items()} == {
        "cpu": "process", "gpu": "process", "kubernetes": "kubernetes", "docker": "docker",
    }  # fmt: skip
