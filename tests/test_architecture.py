"""The shape of the project, kept by tests: who imports whom, one order of stages, files of readable size."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from perennial.base.config.data import ModelConfig
from perennial.base.config.release import GateConfig
from perennial.base.config.training import TrainConfig, WarmStartConfig
from perennial.base.project import source_code
from perennial.base.project.stage_table import STAGES
from perennial.orchestration.remote_runs import start_run, status
from perennial.orchestration.run_setup import flow_run
from perennial.orchestration.server import dead_runs

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# A layer imports only itself and those before it.
LAYERS = (
    "base",
    "data",
    "model",
    "release",
    "stages",
    "live",
    "reports",
    "orchestration",
    "project",
    "reproduce",
    "cli",
)
# Lines that a layer may have. A layer that needs more makes room first; numbers only fall.
LINES = {
    "base": 8_935,
    "data": 12_619,
    "model": 11_935,
    "release": 5_339,
    "stages": 1_225,
    "live": 4_264,
    "reports": 1_711,
    "orchestration": 5_499,
    "project": 3_920,
    "reproduce": 2_606,
    "cli": 3_333,
}
ALL_LINES = 61_974  # of src, tasks and flows
# Layers whose functions are imported by their bare name only if no other module has a function of that name.
OWN_NAMES = ("model", "stages", "reports", "project", "reproduce", "cli")
# Names for programs that use the package; nothing here does.
PUBLIC = ("components.py", "config.py", "datasets.py")
# Forks of this process, which have all modules already: workers of a pool, a stage's check, a run's commands.
FORKS = {"base/parallel/process_pool", "model/export/parity_process", "orchestration/work/perennial_command"}
PUBLIC_FUNCTION = re.compile(r"^(?:async )?def ([^_]\w*)", re.MULTILINE)
STARTING = re.compile(r"posix_spawn|forkserver\.|\bos\.(fork|spawn|popen|system)")
# Packages of `orchestration` that a run imports; the others prepare runs, start them and watch them.
IN_RUNS = ("engine", "guard", "provisioning", "server", "steps", "terminal", "work")
WITHOUT_TENSORFLOW = (
    *(f"stages/{name}" for name, stage in STAGES.items() if not stage.tensorflow),
    "live/monitor/rules",
    "reports/report/report_page",
    "reports/report/summary",
    "reports/runs/run_comparison",
    "reports/runs/runs_page",
    "project/start/start",
    "release/publishing/publish",
    "release/publishing/fetch_version",
    "reproduce/why/why",
)


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(file: Path) -> tuple[str, ...]:
    """The modules that a file imports; `from a import b` gives a and a.b."""
    return source_code.facts(file.read_bytes()).imports


def package(module: str) -> str:
    """The layer and package of a module: perennial.data.images.png belongs to data.images."""
    return ".".join(module.split(".")[1:3])


def imports_of_packages() -> Iterator[tuple[str, str]]:
    """Who imports whom, as packages or modules of a layer."""
    for file in python_files("src/perennial"):
        me = package(".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))
        for module in imported(file):
            if module.startswith("perennial.") and package(module) != me:
                yield me, package(module)


def test_a_layer_imports_only_itself_and_those_before_it() -> None:
    place = {layer: number for number, layer in enumerate(LAYERS)}
    layers = {(me.split(".")[0], other.split(".")[0]) for me, other in imports_of_packages()}
    assert [(me, to) for me, to in layers if me in place and place.get(to, len(LAYERS)) > place[me]] == []


def test_packages_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for me, other in imports_of_packages():
        if "." in other:
            graph.setdefault(me, set()).add(other)
    TopologicalSorter(graph).prepare()


def test_no_layer_grows() -> None:
    lines = {each: sum(len(lines_of(file)) for file in python_files(f"src/perennial/{each}")) for each in LINES}
    assert {layer: count for layer, count in lines.items() if count > LINES[layer]} == {}
    assert sum(len(lines_of(file)) for file in python_files("src", "tasks", "flows")) <= ALL_LINES
    assert list(LINES) == list(LAYERS)


def lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def public_functions() -> dict[str, set[str]]:
    """The modules that define a function of each name."""
    found: dict[str, set[str]] = {}
    for file in python_files("src/perennial"):
        module = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for name in PUBLIC_FUNCTION.findall(file.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(module)
    return found


def test_a_function_whose_name_others_share_is_called_with_its_module() -> None:
    """`manifest.read(...)` says what is read; `read(...)` does not."""
    modules = public_functions()
    bare = {
        f"{file.relative_to(ROOT)}: {each}"
        for file in python_files("src", "flows", "tasks")
        for each in imported(file)
        if each.startswith(tuple(f"perennial.{layer}." for layer in OWN_NAMES))
        for module, _, name in [each.rpartition(".")]
        if module in modules.get(name, ()) and len(modules[name]) > 1
    }
    assert bare == set()


def test_programs_are_run_in_one_place() -> None:
    """All others go through `base/processes/programs.py`, which gives each an end."""
    users = {
        file.relative_to(SOURCE / "perennial").with_suffix("").as_posix()
        for file in python_files("src", "flows", "tasks")
        if "subprocess" in imported(file) or STARTING.search(file.read_text(encoding="utf-8"))
    }
    assert users == FORKS | {"base/processes/programs"}


def test_no_two_modules_have_one_name() -> None:
    """Only flows and tasks have the names of what they run."""
    names = Counter(file.stem for file in python_files("src") if not file.stem.startswith("__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_module_belongs_to_a_layer() -> None:
    beside = {"__pycache__", "py.typed", "__init__.py", "__main__.py", *PUBLIC}
    assert {path.name for path in (SOURCE / "perennial").iterdir()} - beside == set(LAYERS)


@pytest.mark.parametrize(
    ("folders", "banned"),
    [
        (tuple(f"src/perennial/{layer}" for layer in LAYERS if layer != "orchestration"), {"prefect", "dvc"}),
        (("src",), {"flows", "tasks"}),
        (("flows", "tasks", "src/perennial/orchestration"), {"tensorflow", "keras"}),
        (("flows",), {"dvc", "pathlib", "subprocess"}),
    ],
)
def test_what_does_the_work_and_what_orders_it_stay_apart(folders: tuple[str, ...], banned: set[str]) -> None:
    uses = {module.split(".")[0] for file in python_files(*folders) for module in imported(file)}
    assert uses & banned == set()


def test_runs_start_all_work_as_commands() -> None:
    """What orders the work imports only errors, files, processes, the parameters and their checks."""
    files = python_files("flows", "tasks", *(f"src/perennial/orchestration/{name}" for name in IN_RUNS))
    uses = {package(module) for file in files for module in imported(file) if module.startswith("perennial.")}
    names = "choices config documents dvc errors failures files layout limits logs processes project retries"
    known = {"base", "base.stage_state", *(f"base.{name}" for name in names.split())}
    assert {use for use in uses if not use.startswith("orchestration")} <= known


def test_only_storage_imports_the_client_of_s3() -> None:
    files = python_files("src", "flows", "tasks")
    users = {file.parent for file in files for module in imported(file) if module.startswith("boto")}
    assert users == {SOURCE / "perennial" / "base" / "storage"}


@pytest.mark.parametrize("module", WITHOUT_TENSORFLOW)
def test_a_stage_that_needs_no_tensorflow_imports_none(module: str) -> None:
    files = source_code.closure(SOURCE / "perennial" / f"{module}.py")
    assert {name for file in files for name in imported(file)} & {"tensorflow", "keras"} == set()


@pytest.mark.parametrize("module", ["data/validation/inspection", "data/validation/duplicates"])
def test_a_process_that_inspects_images_reads_no_parameters(module: str) -> None:
    """Their classes take a tenth of a second to import, in each process that starts."""
    files = source_code.closure(SOURCE / "perennial" / f"{module}.py")
    assert {name.split(".")[0] for file in files for name in imported(file)} & {"pydantic"} == set()


def test_flow_and_dvc_have_the_same_stages_in_the_same_order() -> None:
    pipeline = YAML(typ="safe").load(ROOT / "dvc.yaml")
    calls = [
        (node.lineno, node.func.attr)
        for node in ast.walk(tree(ROOT / "flows" / "retrain.py"))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STAGES
    ]
    assert list(STAGES) == list(pipeline["stages"]) == [name for _, name in sorted(calls)]


def test_status_workers_and_automations_know_every_flow() -> None:
    flows = {file.stem for file in ROOT.glob("flows/[!_]*.py")}
    defined = YAML(typ="safe").load(ROOT / "infra" / "automations.yaml")["definitions"]
    related = [*defined["each_run"]["match_related"], *defined["deployed"]]
    automated = [each["prefect.resource.name"] for each in related if "prefect.resource.name" in each]
    assert len(automated) == 2
    for listed in (status.FLOWS, *automated):
        assert set(listed) == flows


def test_workers_hear_a_run_that_is_prepared() -> None:
    assert flow_run.PREPARING in dead_runs.SIGNS


def test_a_watched_run_may_restart_as_late_as_workers_restart_it() -> None:
    latest = dead_runs.OVERDUE.total_seconds() + dead_runs.PERIOD_S
    assert latest + 2 * start_run.POLL_S <= start_run.RESTART_S


def test_the_registry_and_dvc_name_the_same_artifact() -> None:
    declared = YAML(typ="safe").load(ROOT / "dvc.yaml")["artifacts"]
    assert list(declared) == [YAML(typ="safe").load(ROOT / "params.yaml")["record"]["artifact"]]


def test_every_stage_is_run_by_its_own_command() -> None:
    stages = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"]
    assert {name: stage["cmd"] for name, stage in stages.items()} == {
        name: f"python -m perennial {name}" for name in STAGES
    }


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_depends_on_the_code_that_it_imports(stage: str) -> None:
    deps = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"][stage]["deps"]
    declared = {ROOT / dep for dep in deps if dep.startswith("src/")}
    files = source_code.of_stage(stage, SOURCE / "perennial")
    uncovered = {file for file in files if not any(file.is_relative_to(dep) for dep in declared)}
    unused = {dep for dep in declared if not any(file.is_relative_to(dep) for file in files)}
    assert (uncovered, unused) == (set(), set())


def parameters(stage: str) -> dict[str, list[str]]:
    """The parameters of a stage in dvc.yaml: keys by file."""
    listed = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"][stage].get("params", [])
    return {file: keys for each in listed for file, keys in each.items()}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_names_the_parameters_that_it_reads(stage: str) -> None:
    declared = {param.split(".")[0] for param in parameters(stage).get("params.yaml", ())}
    files = [SOURCE / "perennial" / "stages" / f"{stage}.py"]
    if stage == "train":
        files.append(SOURCE / "perennial" / "model" / "training" / "assembly.py")
    source = "\n".join(ast.unparse(tree(file)) for file in files)
    sections = YAML(typ="safe").load(ROOT / "params.yaml")
    # Where work is done, when it is saved and what is logged of it changes no result.
    neutral = {"paths", "compute", "checkpoints", "logging"}
    # BaseModel has a `validate` of its own.
    names = {name: name.replace("validate", "validation") for name in sections}
    read = {name for name in sections if re.search(rf"config\.{names[name]}\b", source)}
    assert declared == read - neutral


def test_train_lists_all_its_parameters_but_those_of_what_initialize_copies() -> None:
    listed = set(parameters("train")["params.yaml"]) - {"preprocessing"}
    expected = {f"model.{name}" for name in ModelConfig.model_fields}
    expected |= {f"train.{name}" for name in TrainConfig.model_fields} - {"train.warm_start"}
    expected |= {f"train.warm_start.{name}" for name in WarmStartConfig.model_fields}
    copied = {"model.weights", "model.weights_url", "train.warm_start.path", "train.teacher"}
    assert listed == expected - copied


def test_gate_lists_all_its_parameters_but_those_of_a_person_s_approval() -> None:
    listed = {param for param in parameters("gate")["params.yaml"] if param.startswith("gate")}
    expected = {f"gate.{name}" for name in GateConfig.model_fields}
    assert listed == expected - {"gate.approval", "gate.approval_hours"}


def test_train_depends_on_what_it_reads_of_the_validation_report() -> None:
    (declared,) = (keys for file, keys in parameters("train").items() if file == "data/validation.json")
    source = tree(SOURCE / "perennial" / "model" / "training" / "assembly.py")
    (reader,) = (
        node for node in ast.walk(source) if isinstance(node, ast.FunctionDef) and node.name == "pixels"
    )
    texts = {
        node.value for node in ast.walk(reader) if isinstance(node, ast.Constant) if type(node.value) is str
    }
    assert {key.split(".")[-1] for key in declared} == set(filter(str.isidentifier, texts)) - {"statistics"}


def test_files_and_functions_stay_readable() -> None:
    files = python_files("src", "flows", "tasks")
    lines = [len(file.read_text(encoding="utf-8").splitlines()) for file in files]
    functions = [
        (node.end_lineno or 0) - node.lineno + 1
        for file in files
        for node in ast.walk(tree(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    short = sum(length <= 30 for length in functions) / len(functions)
    assert max(lines) <= 400
    assert max(functions) <= 50
    assert short >= 0.9
    assert len(lines_of(ROOT / "dvc.yaml")) <= 200


def test_no_package_is_made_of_crumbs() -> None:
    short = Counter(
        file.parent
        for file in python_files("src", "flows", "tasks")
        if file.name != "__init__.py" and len(file.read_text(encoding="utf-8").splitlines()) < 40
    )
    assert [str(package) for package, count in short.items() if count > 5] == []


def test_folders_are_at_most_three_deep() -> None:
    depths = [len(file.relative_to(SOURCE / "perennial").parts) - 1 for file in python_files("src/perennial")]
    assert max(depths) <= 3


def docstring_lines(file: Path) -> int:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [
        node.body[0] for node in ast.walk(tree(file)) if isinstance(node, owners) and ast.get_docstring(node)
    ]
    return sum((text.end_lineno or 0) - text.lineno + 1 for text in texts)


def test_comments_are_few_and_there() -> None:
    files = python_files("src", "flows", "tasks")
    lines = [line.strip() for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    comments = sum("# " in line for line in lines)
    code = sum(bool(line) and not line.startswith("#") for line in lines) - sum(map(docstring_lines, files))
    assert 3 <= 100 * comments / code <= 8
