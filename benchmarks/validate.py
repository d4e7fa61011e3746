"""Record folders checked on one core: without decoding against tf.data and TFDV, with it against Pillow."""

from pathlib import Path
from typing import Any

from benchmarks import data, peers, projects, results
from benchmarks.timing import PERENNIAL, Case, Program, compare

# The side of a grey image that makes records of such a size, how many of them, and the MB/s to reach:
# 0.5 and 1 GB, so that reading them takes several times as long as the start.
RECORDS = {"800-byte records": (24, 625_000, 300), "3 KB records": (53, 325_000, 900)}
ONE_PROCESS = {"compute.processes": 1}
TFDV = "tensorflow-data-validation"


def measure() -> None:
    """Measures every case and writes the results."""
    cases: dict[str, Any] = {}
    versions = {"peers": peers.versions("tensorflow-cpu", "pillow")}
    try:
        versions["TFDV"] = peers.versions(TFDV, "tensorflow", "apache-beam", lock="tfdv")
        without = None
    except peers.NotInstallable as error:
        without = str(error)
        print(f"without TFDV: {without}")
    for name, (side, count, target) in RECORDS.items():
        with projects.scratch() as folder:
            case = reading_case(name, side, count, folder, tfdv=without is None)
            result = compare(case)
            print(f"  past its start: {result['megabytes_per_second_past_start']:.0f} MB/s; target: {target}")
            cases[case.name] = result | {"target_megabytes_per_second": target}
    for dataset, originals in (
        ("mnist", data.mnist()),
        ("cifar10", data.cifar10()),
        ("flowers", data.flowers(distinct=True)),
    ):
        with projects.scratch() as folder:
            case = decoding_case(dataset, originals, folder)
            cases[case.name] = compare(case)
    results.write("validate", cases=cases, peer_versions=versions, without_tfdv=without, data=data.origins())


def reading_case(name: str, side: int, count: int, folder: Path, *, tfdv: bool) -> Case:
    """Checksums and fields of every record, no image decoded; 120 records tell what the start takes."""
    values = {"validate.decode": "none", **ONE_PROCESS}
    originals = data.mnist(count, count // 100, side=side)
    project = projects.converted(folder / "perennial", "mnist", originals, values)
    small = projects.converted(folder / "small", "mnist", data.mnist(60, 60, side=side), values)
    records, examples = projects.records(project), projects.count_records(projects.records(project))
    programs = [_ours(project, examples), _peer("tf.data", "tfdata_labels", records, examples)]
    if tfdv:
        programs.append(_peer("TFDV", "tfdv_statistics", records, examples, lock="tfdv"))
    return Case(
        name=f"validate {name} ({projects.record_bytes(project) / examples:.0f} bytes)",
        programs=programs,
        targets={},
        one_core=True,
        megabytes=projects.record_bytes(project) / 1e6,
        start=_ours(small, projects.count_records(projects.records(small)), name="perennial's start"),
    )


def decoding_case(dataset: str, originals: Path, folder: Path) -> Case:
    """Every image decoded and checked, against Pillow decoding the same images and nothing else."""
    values = {"validate.decode": "all", **ONE_PROCESS}
    project = projects.converted(folder / "perennial", dataset, originals, values)
    records, examples = projects.records(project), projects.count_records(projects.records(project))
    return Case(
        name=f"validate {dataset}, decoded",
        programs=[_ours(project, examples), _peer("Pillow alone", "pillow_records", records, examples)],
        targets={"Pillow alone": 0.8},
        one_core=True,
        megabytes=projects.record_bytes(project) / 1e6,
    )


def _ours(project: Path, examples: int, *, name: str = "perennial") -> Program:
    def verify(_: str) -> None:
        found = projects.count_validated(project)
        assert found == examples, f"it validated {found} records, expected {examples}"

    return Program(
        name=name,
        command=(*PERENNIAL, "validate"),
        folder=project,
        outputs=projects.validation(project),
        verify=verify,
    )


def _peer(name: str, program: str, records: Path, examples: int, *, lock: str = "peers") -> Program:
    def verify(printed: str) -> None:
        found = printed.split(maxsplit=1)[0]
        assert found == str(examples), f"it read {found} records, expected {examples}"

    return Program(
        name=name,
        command=peers.command(program, records, lock=lock),
        folder=records.parent,
        verify=verify,
    )
