"""`perennial new`: a project of one's own, whole or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import raw
from support.git import git
from typer.testing import CliRunner

from perennial.base import config, files
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.project import code_digests
from perennial.cli import app
from perennial.project.new import template
from perennial.project.new.new import Made, new, next_commands


@pytest.fixture(autouse=True)
def elsewhere(template_once: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with a git that has no author."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def photos(elsewhere: Path) -> Path:
    raw.write_pictures(Path("my photos"), each=6, side=60)
    return Path("my photos")


def left(folder: Path) -> set[str]:
    """What a failed call left there, besides what tests make."""
    return {each.name for each in folder.iterdir()} - {"home", "my photos"}


def test_all_files_of_a_new_project_are_in_its_first_commit() -> None:
    name = "it's müller & söhne's"
    made = new(Path(name))
    assert made == Made(folder=Path(name), committed=True, started=None, origin=template.origin())
    assert git("status", "--porcelain", "--ignored", folder=Path(name)) == ""
    there = git("ls-files", "-z", folder=Path(name)).split("\0")
    assert {"params.yaml", "dvc.yaml", "code.yaml", "README.md", ".dvc/config", ".gitignore"} <= set(there)
    assert {"flows/retrain.py", "tasks/worker.py", "components/__init__.py", "pins/source.json"} <= set(there)
    assert f"# {name}\n" in Path(name, "README.md").read_text()


def test_a_new_project_names_no_source_code_and_no_name_that_it_lacks() -> None:
    new(Path("shop"))
    named = {
        f"{path}: {line.strip()}"
        for path in git("ls-files", folder=Path("shop")).splitlines()
        if not path.startswith(
            (
                ".dvc/plots", "requirements/", ".perennial/perennial_ml", ".perennial/base/requirements",
                ".perennial/base/.dvc",
            )
        )
        for line in Path("shop", path).read_text(encoding="utf-8").splitlines()
        if "src" in line.replace("src=", "").replace("mount=", "")
    }  # fmt: skip
    assert {each for each in named if "make" not in each} == set()
    command = [Path(sys.executable).with_name("ruff"), "check", "--isolated", "--select", "F", "shop"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_text_of_our_source_that_is_not_there_to_replace_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(template.WITHOUT_SOURCE, "tasks/__init__.py", ("sys.path = []", ""))
    with pytest.raises(PerennialError, match=r"tasks/__init__\.py has no text 'sys\.path = \[\]'"):
        template.template()


def test_its_code_is_that_of_the_perennial_that_made_it_with_pristine_copies() -> None:
    new(Path("shop"))
    code_digests.require_all(Path("shop"), Path("shop/.work"))
    lock = Path("shop/requirements/perennial.txt").read_text()
    (wheel,) = Path("shop/.perennial").glob(f"perennial_ml-{code_digests.installed()}-*.whl")
    assert f"perennial-ml=={code_digests.installed()} --hash=sha256:{files.sha256(wheel)}" in lock
    assert "--no-index" in lock
    copies = template.read_base(Path("shop"))
    assert copies["flows/retrain.py"] == Path("shop/flows/retrain.py").read_bytes()
    assert copies.keys() == {name for name in template.template() if not template.generated(name)}


def test_the_wheel_of_equal_packages_has_equal_bytes() -> None:
    assert template.wheel() == template.wheel()


def test_a_known_data_set_comes_with_its_preset() -> None:
    new(Path("shop"), data="cifar10")
    parameters = config.load(Path("shop/params.yaml"))
    assert (parameters.dataset.name, parameters.model.name) == ("cifar10", "fast_cnn")
    assert parameters.record.artifact == "shop"
    assert "\nartifacts:\n  shop:\n" in Path("shop/dvc.yaml").read_text()


def test_photographs_stay_where_they_are_and_the_choices_are_shown(photos: Path) -> None:
    done = CliRunner().invoke(app, ["new", "shop", "--photos", str(photos)])
    assert done.exit_code == 0, done.output
    assert "18 images in 3 classes, 6 in each" in done.stdout
    assert "dataset.name: image_folder" in done.stdout
    assert done.stdout.splitlines()[-1] == "next: cd shop && perennial run"
    parameters = config.load(Path("shop/params.yaml"))
    assert parameters.dataset.path == photos.absolute()
    assert len(list(photos.rglob("*.*g"))) == 18
    assert git("status", "--porcelain", folder=Path("shop")) == ""


@pytest.mark.parametrize("named", ["my photos/shop", "linked/new/shop"])
def test_a_project_among_its_photographs_is_refused(photos: Path, named: str) -> None:
    """Its files would be read as images, and the message would name a folder that `new` has removed."""
    Path("linked").symlink_to(photos)
    with pytest.raises(ConfigError, match=r"shop lies in the folder of --photos, .*nothing was made; choose"):
        new(Path(named), photos=photos)
    assert left(photos) == {"cat", "dog", "owl"}


def test_a_folder_with_files_or_in_a_project_is_refused_and_unchanged(elsewhere: Path) -> None:
    Path("shop").mkdir()
    Path("shop/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"shop is not empty: it holds notes\.txt; nothing was made"):
        new(Path("shop"))
    assert [each.name for each in Path("shop").iterdir()] == ["notes.txt"]
    Path("shop/notes.txt").rename("shop/dvc.yaml")
    Path("shop/flows").mkdir()
    with pytest.raises(ConfigError, match=r"inner lies in the project .*shop; nothing was made; .*--pipeline"):
        new(Path("shop/inner"))
    assert not Path("shop/inner").exists()
    assert left(elsewhere) == {"shop"}


def test_an_empty_repository_becomes_the_project(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git("init", "-q", "-b", "trunk", "shop", folder=elsewhere)
    monkeypatch.chdir("shop")
    made = new(Path())
    assert git("symbolic-ref", "--short", "HEAD") == "trunk"
    assert git("status", "--porcelain") == ""
    assert next_commands(made) == ["perennial run"]


def test_in_a_larger_repository_its_owner_commits(elsewhere: Path) -> None:
    git("init", "-q", folder=elsewhere)
    made = new(Path("models/shop"))
    assert not made.committed
    assert not Path("models/shop/.git").exists()
    assert next_commands(made) == ["cd models/shop", "git add .", "git commit", "perennial run"]


@pytest.mark.parametrize("wrong", ["", "9.png,d,x\n"])
def test_a_table_leaves_no_project_if_its_columns_are_a_choice_or_a_row_is_wrong(
    elsewhere: Path, wrong: str
) -> None:
    for number in range(9):
        files.write_bytes(Path(f"my photos/{number}.png"), raw.encoded(raw.picture(number, 60)))
    rows = "".join(f"{number}.png,{'cd'[number % 2]},{'xyz'[number % 3]}\n" for number in range(9))
    files.write_bytes(Path("my photos/l.csv"), f"file,kind,day\n{rows}{wrong}".encode())
    call = ["new", "shop", "--photos", "my photos"]
    refused = CliRunner().invoke(app, call)
    assert (refused.exit_code, "--label-column day" in refused.stderr) == (3, True)
    assert left(elsewhere) == set()
    named = ["--table", "my photos/l.csv", "--file-column", "file", "--label-column", "kind"]
    done = CliRunner().invoke(app, [*call, *named, "--split-column", ""])
    assert (done.exit_code, left(elsewhere)) == ((3, set()) if wrong else (0, {"shop"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"photos": Path("nowhere")}, "nowhere does not exist; nothing was made"),
        ({"data": "mnist2"}, "--data must be digits, mnist, cifar10, flowers, got mnist2"),
        ({"photos": Path("a"), "data": "mnist"}, "exclude each other"),
    ],
)
def test_a_wrong_option_leaves_no_project(elsewhere: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        new(Path("shop"), **options)
    assert left(elsewhere) == set()


@pytest.mark.slow
def test_a_signal_leaves_no_project(elsewhere: Path) -> None:
    """The program gets it while it looks at the photographs, which are a pipe that nobody writes."""
    Path("my photos/cat").mkdir(parents=True)
    Path("my photos/dog").mkdir()
    os.mkfifo("photos.tar")
    command = [sys.executable, "-m", "perennial", "new", "shop", "--photos", "photos.tar"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        while not list(elsewhere.glob(".shop.*.new/params.yaml")):
            assert program.poll() is None
        program.send_signal(signal.SIGINT)
        assert program.wait() == 75
    assert left(elsewhere) == {"photos.tar"}


@pytest.mark.usefixtures("forked_dvc")
def test_dvc_runs_its_stages_and_has_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    new(Path("shop"))
    source = Path(template.__file__).parents[3]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(source), "PATH": path}
    command = [sys.executable, "-m", "dvc", "repro", "-q", "download"]
    subprocess.run(command, cwd="shop", env=environment, check=True)
    assert list(Path("shop/data/raw").iterdir())
    assert git("status", "--porcelain", folder=Path("shop")).split()[1:] == ["dvc.lock"]
    monkeypatch.chdir("shop")
    done = CliRunner().invoke(app, ["remote", "add", "store", "../store"])
    assert done.exit_code == 0, done.output
    assert f"url = {Path('../store').resolve()}\n" in Path(".dvc/config").read_text()
