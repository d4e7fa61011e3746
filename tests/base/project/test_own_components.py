"""Components of a project: found without being run, imported from it alone, and named in errors."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perennial.base.config.fields import is_component
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project import own_components

NETS = """
from components import parts

TINY = 1
if TINY:
    LARGE = 2


def small():
    return parts.of(0)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with components, in which this process works."""
    for file in ("params.yaml", "dvc.yaml", "components/__init__.py", "components/data/__init__.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    (tmp_path / "components" / "nets.py").write_text(NETS)
    (tmp_path / "components" / "parts.py").write_text("def of(number):\n    return 1 // number\n")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition(".")[0] == "components"]:
        del sys.modules[name]


def sections(name: str) -> dict[str, dict[str, str]]:
    return {"model": {"name": name}}


def test_a_component_is_a_module_of_the_folder_and_a_name() -> None:
    good = ("components.nets:tiny", "components.more.nets:TINY_2", "components.a1:B")
    wrong = (
        "components:tiny", "components.nets", "nets:tiny", "components..nets:a", "components.nets:a.b", "a", 1,
    )  # fmt: skip
    assert all(map(is_component, good))
    assert not any(map(is_component, wrong))


@pytest.mark.parametrize("name", ["TINY", "LARGE", "small", "parts"])
def test_names_of_all_kinds_are_found_without_importing(root: Path, name: str) -> None:
    own_components.require(sections(f"components.nets:{name}"), root)
    assert "components" not in sys.modules


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("components.netz:tiny", "model.name: .*components/netz.py, which does not exist.*nets:tiny"),
        ("components.nets:Small", "model.name: components/nets.py does not define Small; did you mean small"),
        ("components.nets:part", "components/nets.py does not define part; it has LARGE, TINY, small"),
        ("components.broken:a", r"model.name: components/broken.py:2: SyntaxError: .*never closed"),
    ],
)
def test_what_does_not_exist_is_named_with_its_nearest(root: Path, name: str, message: str) -> None:
    (root / "components" / "broken.py").write_text("a = 1\nb = (\n")
    with pytest.raises(ConfigError, match=message):
        own_components.require(sections(name), root)


def test_a_data_set_elsewhere_than_in_its_folder_is_refused_with_the_right_place(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"write dataset\.name: components\.data\.nets:TINY"):
        own_components.require({"dataset": {"name": "components.nets:TINY"}}, root)


def test_components_import_each_other(root: Path) -> None:
    assert own_components.load("components.nets:TINY", "anything", bool) == 1
    assert {file.name for file in own_components.loaded()} == {"nets.py", "parts.py"}


def test_components_of_another_folder_are_refused(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "components").mkdir()
    (other / "components" / "__init__.py").write_text("")
    (other / "components" / "nets.py").write_text("TINY = 2\n")
    sys.path[:] = [str(other), str(root), *sys.path]
    with pytest.raises(ConfigError, match=f"imported from {other}/components, expected {root}/components"):
        own_components.load("components.nets:TINY", "anything", bool)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_package\nTINY = 1\n", r"nets\.py:1: ModuleNotFoundError: No module named 'no_such_p"),
        ("from components.parts import off\nTINY = 1\n", r"nets\.py:1: ImportError: cannot import name 'off'"),
        ("\nTINY = 1 / 0\n", r"components/nets\.py:2: ZeroDivisionError: division by zero"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(root: Path, text: str, message: str) -> None:
    (root / "components" / "nets.py").write_text(text)
    with pytest.raises(ConfigError, match=message):
        own_components.load("components.nets:TINY", "anything", bool)


def test_an_error_of_a_component_names_the_last_line_of_components(root: Path) -> None:
    small = own_components.load("components.nets:small", "anything", bool)
    with (
        pytest.raises(ConfigError, match=r"^components/parts\.py:2: ZeroDivisionError"),
        own_components.naming_component(),
    ):
        small()


def test_other_errors_stay_what_they_are(root: Path) -> None:
    with pytest.raises(KeyError), own_components.naming_component():
        raise KeyError("of perennial itself")


def test_a_refused_file_may_be_there_later(root: Path) -> None:
    (root / "components" / "nets.py").write_text("def read():\n    open('/no/such/file')\n")
    read = own_components.load("components.nets:read", "anything", bool)
    expected = pytest.raises(PerennialError, match=r"components/nets\.py:2: FileNotFoundError")
    with expected as raised, own_components.naming_component():
        read()
    assert raised.value.exit_code == 1


@pytest.mark.parametrize(("deps", "remedy"), [(["components/data"], "move it to"), ([], "add components")])
def test_a_stage_may_load_only_what_dvc_lists_for_it(root: Path, deps: list[str], remedy: str) -> None:
    (root / "components" / "data" / "shapes.py").write_text("from components import parts\n\nSHAPES = parts\n")
    expected = pytest.raises(ConfigError, match=f"components/parts.py is not among .* convert .*{remedy}")
    with expected as raised, own_components.checked("convert", deps):
        own_components.load("components.data.shapes:SHAPES", "anything", bool)
    assert "nothing was recorded" in str(raised.value)
    with own_components.checked("train", ["components"]):
        pass


def test_all_files_but_those_of_data_sets_belong_to_a_training(root: Path) -> None:
    (root / "components" / "table.json").write_text("{}")
    (root / "components" / "data" / "shapes.py").write_text("")
    found = [file.relative_to(root).as_posix() for file in own_components.files(root)]
    assert found == [f"components/{name}" for name in ("__init__.py", "nets.py", "parts.py", "table.json")]


def test_checking_a_component_imports_no_tensorflow() -> None:
    program = "import sys, perennial.base.project.own_components; print('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
