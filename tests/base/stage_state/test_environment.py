"""Versions of packages as parameters: the files, and the refusal of other versions."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from test_architecture import imported, python_files

from perennial.base.errors import ConfigError
from perennial.base.project.stage_table import STAGES
from perennial.base.stage_state import environment
from perennial.cli.stage_commands import run_stage

ROOT = Path(__file__).parents[3]
NAMES = {
    "PIL": "pillow", "pillow_heif": "pillow-heif", "google": "protobuf", "ml_dtypes": "ml-dtypes",
    "sklearn": "scikit-learn",
}  # fmt: skip
# These read parameters, fetch, lock, show, serve, or compute a standard (digests, checksums, inflate).
CHANGE_NO_NUMBER = {
    "boto3", "botocore", "dotenv", "dvc", "dvc_data", "fastapi", "filelock", "google_crc32c", "h11",
    "httpx", "isal", "jinja2", "markdown_it", "mlflow", "optuna", "orjson", "packaging", "prefect",
    "prometheus_client", "psutil", "pydantic", "pydantic_core", "ray", "requests", "rich", "ruamel",
    "sqlalchemy", "starlette", "tenacity", "typer", "urllib3", "uvicorn", "xxhash",
}  # fmt: skip


def change(package: str, number: str, name: str = "data") -> None:
    """Write a file of the environment that names one package in a version."""
    environment.FOLDER.mkdir(exist_ok=True)
    text = f'packages:\n  {package}: "{number}"\noptional:\n  no-such-package: "1"\n'
    (environment.FOLDER / f"{name}.yaml").write_text(text)


def test_the_files_have_the_versions_of_the_lock(tmp_path) -> None:
    environment.write(ROOT / "requirements", tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    tracked = {path.name: path.read_text() for path in (ROOT / environment.FOLDER).glob("*.yaml")}
    assert made == tracked


def test_a_locked_package_may_have_extras(tmp_path: Path) -> None:
    (tmp_path / "base.txt").write_text(
        "pillow==12.0.0 \\\n    --hash=sha256:0\ntensorflow[and-cuda]==2.21.0 ; x\n"
    )
    locked = environment.pinned_versions(tmp_path / "base.txt")
    assert locked == {"pillow": ("12.0.0",), "tensorflow": ("2.21.0",)}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_has_its_environment_under_its_parameters_and_accepts_the_locked_packages(stage: str) -> None:
    environment.require(stage, ROOT / environment.FOLDER)
    params = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"][stage].get("params", ())
    named = [name for each in params if isinstance(each, dict) for name in each]
    listed = [name for name in named if name.startswith(f"{environment.FOLDER}/")]
    expected = [name for name, stages in environment.STAGES.items() if stage in stages]
    assert listed == [f"{environment.FOLDER}/{name}.yaml" for name in expected]


def test_every_imported_package_is_named_or_known_to_change_no_number() -> None:
    modules = {module.partition(".")[0] for file in python_files("src") for module in imported(file)}
    others = modules - sys.stdlib_module_names - CHANGE_NO_NUMBER - {"perennial"}
    named = {package for packages in environment.PACKAGES.values() for package in packages}
    assert {NAMES.get(module, module) for module in others} <= named


@pytest.mark.parametrize(("package", "number"), [("numpy", "1.0"), ("no-such-package", "2.0")])
def test_a_stage_refuses_another_version_and_changes_nothing(load, package: str, number: str) -> None:
    load()
    change(package, number)
    with pytest.raises(
        ConfigError, match=rf"{package} is .*, expected {number} in requirements/data.yaml.*`perennial run`"
    ):
        run_stage("download", Path("params.yaml"))
    assert [path.name for path in Path().iterdir() if path.name in ("data", ".work")] == []


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("sys.path.insert(0, 'other')", "nothing was changed"),
        ("def download(config): sys.path.insert(0, 'other')", "changed while download ran, so its result"),
    ],
)
def test_a_version_that_is_installed_while_a_stage_starts_or_runs_is_refused(
    load, monkeypatch, code: str, outcome: str
) -> None:
    load()
    change("numpy", version("numpy"))
    Path("other/numpy-1.0.dist-info").mkdir(parents=True)
    Path("other/numpy-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.0\n")
    Path("slow_start.py").write_text(f"import sys\n{code}\n")
    monkeypatch.delitem(sys.modules, "slow_start", raising=False)
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    with pytest.raises(ConfigError, match=rf"numpy is 1.0, expected .*{outcome}"):
        run_stage("download", Path("params.yaml"), module="slow_start")


def test_a_stage_that_does_not_use_a_package_accepts_any_version_of_it(load) -> None:
    load()
    change("tensorflow", "1.0", name="train")
    environment.require("convert")
    with pytest.raises(ConfigError, match="tensorflow"):
        environment.require("export")


@pytest.mark.parametrize("text", ["[", "packages: 3", "3"])
def test_a_file_of_something_else_is_refused(workspace: Path, text: str) -> None:
    change("numpy", "1.0")
    (environment.FOLDER / "data.yaml").write_text(text)
    with pytest.raises(ConfigError, match="`git checkout "):
        environment.require("convert")
