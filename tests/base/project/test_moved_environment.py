"""A project that was moved, renamed or copied with its environment."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MEND = "src/perennial/base/project/moved_environment.py"
LOCKS = ("requirements/base.txt", "requirements/uv.txt", "pyproject.toml")
NAMES = ["elsewhere", "my project", "a#b", "pets' $HOME", 'a "quoted" one', "Blätter-花", "long" * 40]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project as after `make install`, with one module and one program."""
    folder = tmp_path / "project"
    for name in ("Makefile", MEND, *LOCKS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "src" / "here.py").write_text("def main():\n    print(__file__)\n")
    (folder / ".git").mkdir()
    environment = folder / ".venv"
    venv.create(environment, symlinks=True)
    program = environment / "bin" / "here"
    program.write_text(f"#!{environment}/bin/python\nfrom here import main\nmain()\n")
    program.chmod(0o755)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "_perennial_ml.pth").write_text(f"{folder}\n{folder}/src")
    (environment / "installed").touch()
    return folder


def make_install(folder: Path) -> str:
    command = ["make", "install", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def ran(folder: Path) -> Path:
    """Run the program of a project; return the module that it imported."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [folder / ".venv" / "bin" / "here"], env=environment, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


@pytest.mark.parametrize("name", NAMES)
def test_make_install_mends_the_programs_of_a_project_that_was_moved(project, name):
    moved = project.rename(project.with_name(name))
    assert str(moved) in make_install(moved)
    assert ran(moved) == moved / "src" / "here.py"


def test_a_project_that_stayed_is_left_as_it_is(project):
    assert make_install(project) == ""


def test_a_mended_project_can_be_moved_again(project):
    for name in ("with a space", "plain"):
        project = project.rename(project.with_name(name))
        make_install(project)
    assert ran(project) == project / "src" / "here.py"


def test_the_original_of_a_copy_keeps_its_programs(project):
    copy = project.with_name("copy")
    shutil.copytree(project, copy, symlinks=True, copy_function=os.link)
    activate = (project / ".venv" / "bin" / "activate").read_text()
    make_install(copy)
    assert (project / ".venv" / "bin" / "activate").read_text() == activate
    assert (ran(project), ran(copy)) == (project / "src" / "here.py", copy / "src" / "here.py")


def test_activate_puts_the_programs_of_the_new_folder_on_the_path(project):
    moved = project.rename(project.with_name("elsewhere"))
    make_install(moved)
    done = subprocess.run(
        ["sh", "-c", ". .venv/bin/activate && command -v here"],
        cwd=moved, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(moved / ".venv" / "bin" / "here")


def test_links_into_the_cache_of_dvc_lead_to_the_moved_cache(project):
    (project / ".dvc" / "cache").mkdir(parents=True)
    (project / ".dvc" / "cache" / "object").write_text("content")
    (project / "output").symlink_to(project / ".dvc" / "cache" / "object")
    moved = project.rename(project.with_name("elsewhere"))
    make_install(moved)
    assert (moved / "output").read_text() == "content"


def test_an_environment_of_another_folder_that_the_project_links_to_is_left_as_it_is(project):
    other = project.with_name("other")
    shutil.copytree(project, other, ignore=shutil.ignore_patterns(".venv"))
    (other / ".venv").symlink_to(project / ".venv")
    make_install(other)
    assert ran(project) == project / "src" / "here.py"
