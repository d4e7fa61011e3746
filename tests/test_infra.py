"""What infra/ describes, held against schemas, linters and what the code needs."""

import configparser
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from prefect.settings.models.root import Settings
from ruamel.yaml import YAML
from sqlalchemy.engine import make_url
from support.manifests import are_valid, is_compose, passes

from perennial.base.devices import cluster
from perennial.base.dvc import repro
from perennial.base.errors import STARTED_AGAIN
from perennial.orchestration.provisioning import worker

INFRA = ROOT / "infra"
KUBERNETES = sorted((INFRA / "kubernetes").glob("*.yaml"))
UNITS = sorted((INFRA / "systemd").iterdir())
COMPOSE = YAML(typ="safe").load(INFRA / "compose.yaml")
WORKER_S = worker.SAVE_S + 2 * worker.REPORT_S  # from SIGTERM until no process of it is left, at most
FLOW_S = repro.GRACE_S + 10  # of a flow alone, with time to report
SECONDS = {
    "perennial-worker": WORKER_S, "perennial-retrain": FLOW_S, "training": FLOW_S,
    "training-workers-0": FLOW_S, "perennial-pool": WORKER_S,
}  # fmt: skip


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
    "Dockerfile": (partial(passes, "hadolint"), [INFRA / "Dockerfile"], ("--no-install-recommends ", "")),
    "compose": (is_compose, [INFRA / "compose.yaml"], ("stop_grace_period: 45s", "grace_period: 45s")),
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


def test_a_pod_and_a_service_have_time_to_save_before_they_are_killed() -> None:
    grace = {name: pod["terminationGracePeriodSeconds"] for name, pod in pods()}
    assert grace.keys() == SECONDS.keys()
    assert all(grace[name] > needed for name, needed in SECONDS.items())
    for name in ("worker", "gpu-worker"):
        assert int(COMPOSE["services"][name]["stop_grace_period"].rstrip("s")) > WORKER_S
    for name in ("perennial-worker", "perennial-retrain"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read(INFRA / "systemd" / f"{name}.service")
        assert unit["Service"]["KillMode"] == "mixed"  # a stage that gets a second SIGTERM ends without saving
        assert int(unit["Service"]["TimeoutStopSec"]) > SECONDS[name]


@pytest.mark.parametrize("file", [*KUBERNETES, *UNITS], ids=lambda file: file.name)
def test_what_starts_again_after_75_does_not_after_changed_inputs(file: Path) -> None:
    text = file.read_text()
    if "[75]" in text or "RestartPreventExitStatus=1 2 3 4\n" in text:
        assert STARTED_AGAIN in text
        assert "Status=1 2 3 4\n" in text or "2, 3, 4]" in text


@pytest.mark.parametrize(("name", "pod"), list(pods()))
def test_a_container_needs_no_root_and_has_its_volumes_shared_memory_and_the_code_of_its_checkout(
    name: str, pod: dict[str, Any]
) -> None:
    assert pod["securityContext"]["runAsNonRoot"]
    assert ("serviceAccountName" in pod) is pod.get("automountServiceAccountToken", True)
    volumes = {each["name"] for each in pod["volumes"]}
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
        assert set(mounted.values()) == volumes
        assert ("/dev/shm" in mounted) is (name != "perennial-pool")  # whose runs are in other pods
        if "workingDir" in container:
            variables = {each["name"]: each.get("value") for each in container["env"]}
            assert variables["PYTHONPATH"] == f"{container['workingDir']}/src"


INDEXED = [
    each
    for file in KUBERNETES
    for each in [*documents(file), *jobs(file)]
    if each.get("spec", {}).get("completionMode") == "Indexed"
]


def values(node: Any, *keys: str) -> Iterator[Any]:
    """What stands under keys, at any depth."""
    for key, value in (
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    ):
        if key in keys:
            yield value
        yield from values(value, *keys)


TEMPLATE = json.loads((INFRA / "pools" / "kubernetes.json").read_text(encoding="utf-8"))
MANIFESTS = [each for file in KUBERNETES for each in documents(file)]
COMMANDS = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")
MADE = {
    # kind of object: the keys that name one
    "PersistentVolumeClaim": ("persistentVolumeClaim",),
    "Secret": ("secretRef", "secretKeyRef", "secret", "imagePullSecrets"),
    "ConfigMap": ("configMapRef", "configMapKeyRef", "configMap"),
    "ServiceAccount": ("serviceAccountName",),
    "Role": ("roleRef",),
}


@pytest.mark.parametrize("kind", MADE)
def test_what_a_manifest_names_is_in_a_manifest_or_made_by_a_command_of_the_page(kind: str) -> None:
    named = set()
    for each in values([*MANIFESTS, TEMPLATE], *MADE[kind]):
        for one in each if isinstance(each, list) else [each]:
            named.add(one if isinstance(one, str) else one.get("claimName") or one.get("name"))
    if kind == "Secret":
        variables = [one for each in values(MANIFESTS, "env") for one in each]
        named |= {each["value"] for each in variables if each["name"].endswith("_SECRET_NAME")}
    defined = {each["metadata"]["name"] for each in MANIFESTS if each["kind"] == kind}
    created = re.findall(rf"kubectl create {kind.lower()} (?:generic )?(\S+)", COMMANDS)
    assert {each for each in named if not each.startswith("{{")} <= defined.union(created)


def test_only_a_volume_for_many_nodes_is_named_by_several_workloads() -> None:
    claims = {each["metadata"]["name"]: each for each in MANIFESTS if each["kind"] == "PersistentVolumeClaim"}
    users = Counter(each["claimName"] for _, pod in pods() for each in values(pod, "persistentVolumeClaim"))
    # Any number of runs.
    users.update({each["claimName"]: 2 for each in values(TEMPLATE, "persistentVolumeClaim")})
    parallel = {each["claimName"] for job in INDEXED for each in values(job, "persistentVolumeClaim")}
    for name in {name for name, count in users.items() if count > 1} | parallel:
        assert claims[name]["spec"]["accessModes"] == ["ReadWriteMany"], name


def test_every_image_of_ours_is_a_target_of_the_dockerfile() -> None:
    targets = re.findall(
        r"^FROM .* AS (\w+)$", (INFRA / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    services = COMPOSE["services"].values()
    images = [*values([MANIFESTS, TEMPLATE["variables"]], "image"), *(each["image"] for each in services)]
    ours = [each if isinstance(each, str) else each["default"] for each in images]
    assert {each.partition(":")[2] for each in ours if "perennial:" in each} <= set(targets)
    for each in services:
        assert "build" not in each or each["image"] == f"perennial:{each['build']['target']}"


def test_compose_names_only_what_is_there() -> None:
    services = COMPOSE["services"]
    for each in services.values():
        assert set(each.get("depends_on", ())) <= services.keys()
        assert set(each["networks"]) <= COMPOSE["networks"].keys()
        for source in (volume.partition(":")[0] for volume in each.get("volumes", ())):
            assert (INFRA / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
        assert "tasks.worker" not in each.get("command", ()) or each["shm_size"] == "2gb"
    commented = (INFRA / "compose.yaml").read_text(encoding="utf-8").partition("\nname:")[0]
    required = set(re.findall(r"\$\{(\w+):", (INFRA / "compose.yaml").read_text(encoding="utf-8")))
    assert required <= set(re.findall(r"#     (\w+)=", commented))


def test_a_unit_names_units_that_are_there_and_files_that_its_comment_makes() -> None:
    for file in UNITS:
        text = file.read_text(encoding="utf-8")
        ours = re.findall(r"^(?:Unit|Requires|Wants|After)=.*\b(perennial-\S+)$", text, re.MULTILINE)
        assert set(ours) <= {each.name for each in UNITS}
        for needed in re.findall(r"^EnvironmentFile=(/\S+)$", text, re.MULTILINE):  # `-/...` may be missing
            assert f"install -m 600 /dev/null {needed}" in text
        assert file.suffix != ".timer" or file.with_suffix(".service") in UNITS


@pytest.mark.parametrize("job", INDEXED, ids=lambda job: job["metadata"]["name"])
def test_every_pod_of_a_job_knows_the_others_and_it_goes_on_after_a_disruption_and_75(job, monkeypatch) -> None:
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
    first, *rules = spec["podFailurePolicy"]["rules"]
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
    url = make_url(address.get_secret_value())
    assert url.password == "a@b%c/d#e"
    assert (url.host, url.database) == ("database", "prefect")


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
    assert {"flows", "src", "tasks", "requirements"} <= taken
    assert not taken & {".git", ".env", ".work", "data", "models", "runs"}
