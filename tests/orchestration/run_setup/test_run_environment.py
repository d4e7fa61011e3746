"""Environments of runs: one for each lock, made once, from wheels with hashes."""

import base64
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.testing import CliRunner

from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project import source_code
from perennial.cli import app
from perennial.orchestration.run_setup import run_environment
from perennial.orchestration.run_setup.run_environment import python_for
from perennial.project.new import template

SRC = Path(__file__).parents[3] / "src"


def wheel(folder: Path, version: str, package: str = "small") -> str:
    """Make a package; returns its line in a lock file."""
    code, about = f"VERSION = {version!r}\n", f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
    info = f"{package}-{version}.dist-info"
    kind = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents = {f"{package}.py": code, f"{info}/METADATA": about, f"{info}/WHEEL": kind}
    listed = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')},\n"
        for name, text in contents.items()
    )
    file = folder / f"{package}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as packed:
        for name, text in {**contents, f"{info}/RECORD": f"{listed}{info}/RECORD,,\n"}.items():
            packed.writestr(name, text)
    return f"{package}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout that locks small 1.0, on a machine that has only wheels of `small`."""
    index = tmp_path / "wheels"
    index.mkdir()
    for name, value in {"FIND_LINKS": str(index), "NO_INDEX": "1"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
        monkeypatch.setenv(f"UV_{name}", value)
    folder = tmp_path / "checkout"
    (folder / "requirements").mkdir(parents=True)
    (folder / "requirements" / "base.txt").write_text(wheel(index, "1.0"))
    return folder


def version(python: Path) -> str:
    """The version of `small` that a Python imports."""
    command = [str(python), "-c", "import small; print(small.VERSION)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_each_lock_has_an_environment_that_is_made_once(checkout: Path, tmp_path: Path) -> None:
    log: list[str] = []
    first = python_for(tmp_path, checkout, log.append)
    assert (version(first), python_for(tmp_path, checkout, log.append), len(log)) == ("1.0", first, 1)
    assert first.is_relative_to(tmp_path / "environments")
    (checkout / "requirements" / "base.txt").write_text(wheel(tmp_path / "wheels", "2.0"))
    second = python_for(tmp_path, checkout, log.append)
    assert (version(first), version(second), "".join(log).count("takes minutes")) == ("1.0", "2.0", 2)


@pytest.mark.slow
def test_where_uv_cannot_reach_the_index_the_locked_pip_comes_first(checkout, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("UV_FIND_LINKS")
    (checkout / "requirements" / "pip.txt").write_text(wheel(tmp_path / "wheels", "3.0", "installer"))
    python = python_for(tmp_path, checkout, print)
    command = [str(python), "-c", "import installer, pip, small; print(installer.VERSION)"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "3.0"


def test_the_worker_s_own_environment_is_used_if_it_was_installed_from_the_same_lock(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    digest = hashlib.sha256((checkout / "requirements" / "base.txt").read_bytes()).hexdigest()
    (tmp_path / "installed").write_text(f"{digest}  requirements/base.txt\n")
    assert python_for(tmp_path, checkout, print) == Path(sys.executable)


@pytest.mark.parametrize("missing", [False, True])
def test_a_project_s_run_uses_this_environment_if_it_has_all_that_is_locked_for_this_machine(
    checkout: Path, tmp_path: Path, missing: bool
) -> None:
    rows = [f"pydantic=={metadata.version('pydantic')} \\\n    --hash=sha256:00\n"]
    rows += ["other==1.0 ; sys_platform == 'plan9' \\\n    --hash=sha256:00\n"]
    (checkout / "requirements" / "base.txt").write_text("".join(rows))
    wanted = (
        wheel(tmp_path / "wheels", "1.0").partition(" ")[0]
        if missing
        else f"Typer=={metadata.version('typer')}"
    )
    (checkout / "requirements" / "perennial.txt").write_text(f"{wanted}\n")
    files = [checkout / "requirements" / f"{name}.txt" for name in ("base", "perennial")]
    assert run_environment.is_own(files, set()) == (not missing)


def test_an_installed_wheel_has_all_packages_of_the_lock_but_those_that_build_it() -> None:
    found, waiting = dict[str, Requirement](), [Requirement(source_code.DISTRIBUTION)]
    while waiting:
        wanted = waiting.pop()
        for each in map(Requirement, metadata.requires(wanted.name) or ()):
            extras = ({"extra": extra} for extra in ("", *wanted.extras))
            if (not each.marker or any(map(each.marker.evaluate, extras))) and str(each) not in found:
                found[str(each)] = each
                waiting.append(each)
    there = {canonicalize_name(each.name): metadata.version(each.name) for each in found.values()}
    differing = run_environment.differing(source_code.PACKAGE.parents[1] / "requirements" / "base.txt", there)
    assert {each.split()[0] for each in differing} == run_environment.BUILD


@pytest.mark.slow
def test_packages_that_are_not_those_of_the_lock_are_refused(checkout: Path, tmp_path: Path) -> None:
    lock = checkout / "requirements" / "base.txt"
    lock.write_text(f"small==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(PerennialError, match=r"requirements/base\.txt cannot be installed on"):
        python_for(tmp_path, checkout, print)
    lock.write_text(wheel(tmp_path / "wheels", "1.0"))
    assert version(python_for(tmp_path, checkout, print)) == "1.0"


@pytest.fixture
def own(checkout: Path) -> Path:
    """The project of `checkout` with the wheel of perennial; what it locks is not installed here."""
    (checkout / "requirements" / "base.txt").write_text(wheel(checkout.parent / "wheels", "1.0"))
    template.write_all(
        checkout, {name: each for name, each in template.template().items() if template.generated(name)}
    )
    return checkout


def test_a_project_s_perennial_comes_from_its_own_wheel_and_from_no_index(own: Path, tmp_path: Path) -> None:
    python = python_for(tmp_path, own, print, own=False)
    code = "import perennial, perennial.cli; print(perennial.__file__)"
    done = subprocess.run([str(python), "-Ic", code], capture_output=True, text=True, check=False)
    found = next(python.parents[1].glob("lib/python*/site-packages/perennial/__init__.py"))
    assert done.stdout.strip() == str(found) or "No module named" in done.stderr, done.stderr
    assert (found.parent / "template" / "dvc.yaml").is_file()
    assert version(python) == "1.0"


@pytest.mark.slow
def test_a_wheel_with_other_bytes_than_the_lock_names_is_refused(own: Path, tmp_path: Path) -> None:
    (file,) = (own / ".perennial").glob("*.whl")
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr("perennial/more.py", "")
    with pytest.raises(PerennialError, match=r"requirements/perennial\.txt cannot be installed"):
        python_for(tmp_path, own, print, own=False)


def test_a_lock_that_names_perennial_without_a_digest_is_refused(own: Path, tmp_path: Path) -> None:
    (own / "requirements" / "perennial.txt").write_text("perennial-ml==0.1.0\n")
    with pytest.raises(ConfigError, match=r"has no digest of a wheel"):
        python_for(tmp_path, own, print)


def test_this_python_is_not_a_project_s_if_its_perennial_has_other_code(own: Path, tmp_path: Path) -> None:
    (own / "requirements" / "base.txt").write_text("")
    assert python_for(tmp_path, own, print) == Path(sys.executable)
    code = (own / "code.yaml").read_text()
    (own / "code.yaml").write_text(re.sub('train: "[0-9a-f]+"', f'train: "{"0" * 64}"', code))
    assert python_for(tmp_path, own, print) != Path(sys.executable)


def test_a_lock_file_that_the_revision_lacks_is_refused(checkout, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(run_environment.REQUIREMENTS, "base,gpu")
    with pytest.raises(ConfigError, match=r"requirements/gpu\.txt is not in this revision"):
        python_for(tmp_path, checkout, print)


def test_an_extra_is_added_to_the_environment_that_runs_in_its_locked_versions(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "requirements" / "onnx.txt").write_text(wheel(tmp_path / "wheels", "2.0"))
    (checkout / "requirements" / "pip.txt").touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.chdir(checkout)
    added = CliRunner().invoke(app, ["add", "onnx"])
    assert (added.exit_code, version(python)) == (0, "2.0"), added.output
    assert 'PERENNIAL_REQUIREMENTS="base onnx"' in added.stdout
    unknown = CliRunner().invoke(app, ["add", "onix"])
    assert (unknown.exit_code, "there is no extra 'onix'" in unknown.stderr) == (2, True)


@pytest.mark.slow
def test_an_environment_whose_making_was_killed_is_made_again(checkout: Path, tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nfrom perennial.orchestration.run_setup.run_environment import python_for\n"
        "print('now', flush=True)\n"
        f"python_for(Path({str(tmp_path)!r}), Path({str(checkout)!r}), len)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SRC)}, stdout=subprocess.PIPE
    ) as making:
        assert making.stdout
        making.stdout.readline()
        time.sleep(random.uniform(0, 3))  # about the time that it takes; the moment does not decide
        os.kill(making.pid, signal.SIGKILL)
    assert version(python_for(tmp_path, checkout, print)) == "1.0"
