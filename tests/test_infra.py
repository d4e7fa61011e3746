"""What infra/ describes, held against schemas, linters and what the code needs."""

import configparser
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from prefect.settings.models.root import Settings
from ruamel.yaml import YAML
from sqlalchemy.engine import make_url
from support.manifests import are_valid, passes

from perennial.base.errors import STARTED_AGAIN
from perennial.base.runtime import cluster, repro
from perennial.orchestration.provisioning import worker

INFRA = ROOT / "infra"
KUBERNETES = sorted((INFRA / "kubernetes").glob("*.yaml"))
UNITS = sorted((INFRA / "systemd").iterdir())
COMPOSE = YAML(typ="safe").load(INFRA / "compose.yaml")
WORKER_S = worker.SAVE_S + 2 * worker.REPORT_S  # from SIGTERM until no process of it is left, at most
FLOW_S = repro.GRACE_S + 10  # of a flow alone, with time to report
SECONDS = {
    "perennial-worker": WORKER_S,
    "perennial-retrain": FLOW_S,
    "training": FLOW_S,
    "training-workers-0": FLOW_S,
    "perennial-pool": WORKER_S,
}


def lint_dockerfile(file: Path) -> bool:
    return passes("hadolint", file)


def check_compose(file: Path) -> bool:
    return passes("check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)


def check_manifest(file: Path) -> bool:
    """Whether the schemas of the oldest and the newest version accept what Kubernetes itself has to know."""
    every = [*documents(file), *jobs(file)]
    return are_valid([each for each in every if each["kind"] != "JobSet"], file)


def check_proxy(file: Path) -> bool:
    text = file.read_text().replace("{$PERENNIAL_HOST}", "x.test").replace("{$PERENNIAL_TLS}", "internal")
    file.write_text(text)
    return passes("caddy", "validate", "--adapter", "caddyfile", "--config", file)


def check_unit(file: Path) -> bool:
    """Whether systemd accepts a unit, with a program and a user that are on this machine."""
    for unit in {file, *(file.parent / each.name for each in UNITS)}:  # a timer needs its service
        text = (unit if unit.exists() else INFRA / "systemd" / unit.name).read_text()
        text = re.sub(r"/opt/perennial/.venv/bin/\w+", shutil.which("true") or "", text)
        unit.write_text(text.replace("User=perennial", "User=daemon"))
    return passes("systemd-analyze", "verify", "--recursive-errors=no", file)


def documents(file: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(file))


def jobs(file: Path) -> Iterator[dict[str, Any]]:
    """The Jobs that a JobSet of the file makes."""
    for each in documents(file):
        for part in each["spec"].get("replicatedJobs", []) if each["kind"] == "JobSet" else []:
            for number in range(part["replicas"]):
                name = f"{each['metadata']['name']}-{part['name']}-{number}"
                made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, **part["template"]}
                made["spec"]["template"]["spec"]["subdomain"] = each["spec"]["network"]["subdomain"]
                yield made


CHECKS: dict[str, tuple[Callable[[Path], bool], list[Path], tuple[str, str]]] = {
    # what is checked: how, the files, and a mistake in the first of them
    "Dockerfile": (lint_dockerfile, [INFRA / "Dockerfile"], ("--no-install-recommends ", "")),
    "compose": (check_compose, [INFRA / "compose.yaml"], ("stop_grace_period: 45s", "grace_period: 45s")),
    "kubernetes": (check_manifest, KUBERNETES, ("terminationGracePeriodSeconds", "terminationGracePeriod")),
    "proxy": (check_proxy, [INFRA / "Caddyfile"], ("reverse_proxy", "reverse_proxies")),
    "systemd": (check_unit, UNITS, ("ExecStart=", "ExecStarts=")),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_every_file_is_accepted(kind: str, tmp_path: Path) -> None:
    check, files, _ = CHECKS[kind]
    assert files
    for file in files:
        assert check(Path(shutil.copy(file, tmp_path))), file


@pytest.mark.parametrize("kind", CHECKS)
def test_a_mistake_is_caught(kind: str, tmp_path: Path) -> None:
    check, (file, *_), (right, wrong) = CHECKS[kind]
    text = file.read_text(encoding="utf-8")
    assert right in text
    (tmp_path / file.name).write_text(text.replace(right, wrong, 1), encoding="utf-8")
    assert not check(tmp_path / file.name)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """The pods that the manifests describe, with the names of their objects."""
    for file in KUBERNETES:
        for each in [*documents(file), *jobs(file)]:
            spec = each.get("spec", {}).get("jobTemplate", each).get("spec", {})
            if "template" in spec:
                yield each["metadata"]["name"], spec["template"]["spec"]


def test_a_pod_has_time_to_save_before_it_is_killed() -> None:
    grace = {name: pod["terminationGracePeriodSeconds"] for name, pod in pods()}
    assert grace.keys() == SECONDS.keys()
    assert all(grace[name] > needed for name, needed in SECONDS.items())


def test_a_service_has_time_to_save_before_it_is_killed() -> None:
    assert int(COMPOSE["services"]["worker"]["stop_grace_period"].rstrip("s")) > WORKER_S
    for name, needed in (("perennial-worker", WORKER_S), ("perennial-retrain", FLOW_S)):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read(INFRA / "systemd" / f"{name}.service")
        assert unit["Service"]["KillMode"] == "mixed"  # a stage that gets a second SIGTERM ends without saving
        assert int(unit["Service"]["TimeoutStopSec"]) > needed


@pytest.mark.parametrize("file", [*KUBERNETES, *UNITS], ids=lambda file: file.name)
def test_what_starts_again_after_75_does_not_after_changed_inputs(file: Path) -> None:
    text = file.read_text()
    if "[75]" in text or "RestartPreventExitStatus=1 2 3 4\n" in text:
        assert STARTED_AGAIN in text
        assert "Status=1 2 3 4\n" in text or "2, 3, 4]" in text


@pytest.mark.parametrize(("name", "pod"), list(pods()))
def test_a_container_needs_no_root_and_writes_to_its_volumes_only(name: str, pod: dict[str, Any]) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    assert ("serviceAccountName" in pod) is pod.get("automountServiceAccountToken", True)
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(("name", "pod"), list(pods()))
def test_a_container_in_a_checkout_runs_the_code_of_the_checkout(name: str, pod: dict[str, Any]) -> None:
    for container in pod["containers"]:
        if "workingDir" in container:
            variables = {each["name"]: each.get("value") for each in container["env"]}
            assert variables["PYTHONPATH"] == f"{container['workingDir']}/src"


INDEXED = [
    each
    for file in KUBERNETES
    for each in [*documents(file), *jobs(file)]
    if each.get("spec", {}).get("completionMode") == "Indexed"
]


@pytest.mark.parametrize("job", INDEXED, ids=lambda job: job["metadata"]["name"])
def test_every_pod_of_a_job_knows_the_others_by_the_names_that_kubernetes_gives_them(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (port,) = [each["containerPort"] for each in container["ports"]]
    count = spec["completions"]
    names = tuple(f"{job['metadata']['name']}-{index}.{pod['subdomain']}:{port}" for index in range(count))
    assert spec["parallelism"] == count
    for index in range(count):
        monkeypatch.setenv("TF_CONFIG", "")
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(index))  # as the Job does
        for each in container["env"]:
            monkeypatch.setenv(each["name"], each["value"])
        assert cluster.this_worker() == cluster.Worker(index=index, addresses=names)


@pytest.mark.parametrize("job", INDEXED, ids=lambda job: job["metadata"]["name"])
def test_a_job_goes_on_after_a_disruption_and_75_and_ends_after_1_to_4(job: dict[str, Any]) -> None:
    first, *rules = job["spec"]["podFailurePolicy"]["rules"]
    assert first == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ends = [code for rule in rules if rule["action"] == "FailJob" for code in rule["onExitCodes"]["values"]]
    assert ends == [1, 2, 3, 4]
    # What is ignored does not count, so a worker without peers would keep its GPU for ever.
    assert not [rule for rule in rules if rule["action"] == "Ignore"]


def test_a_password_of_the_database_may_hold_any_character(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = COMPOSE["services"]["server"]["environment"]
    for name, value in declared.items():
        if "DATABASE" in name:
            monkeypatch.setenv(name, value.replace("${POSTGRES_PASSWORD:?}", "a@b%c/d#e"))
    address = Settings().server.database.connection_url
    assert address is not None
    url = make_url(address.get_secret_value())
    assert url.password == "a@b%c/d#e"
    assert url.host == "database"
    assert url.database == "prefect"


def test_only_the_proxy_of_the_services_has_a_port_outside() -> None:
    services = COMPOSE["services"]
    assert [name for name, each in services.items() if "ports" in each] == ["proxy"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert all(services[name]["networks"] == ["inside"] for name in ("database", "s3", "deploy"))


def test_images_of_others_are_pinned_by_digest() -> None:
    dockerfile = (INFRA / "Dockerfile").read_text(encoding="utf-8")
    named = [
        each["image"] for each in COMPOSE["services"].values() if not each["image"].startswith("perennial:")
    ]
    named += [line.partition("=")[2] for line in dockerfile.splitlines() if line.startswith("ARG BASE=")]
    assert len(named) == 4
    assert all(len(image.partition("@sha256:")[2]) == 64 for image in named), named


def test_an_image_holds_the_programs_and_neither_secrets_nor_data() -> None:
    lines = (INFRA / "Dockerfile.dockerignore").read_text(encoding="utf-8").split()
    assert "*" in lines
    taken = {line.removeprefix("!").partition("/")[0] for line in lines if line.startswith("!")}
    assert {"flows", "src", "tasks", "requirements", "environment"} <= taken
    assert not taken & {".git", ".env", ".work", "data", "models", "runs"}
