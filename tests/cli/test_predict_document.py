"""What docs/how-to/predict.md and tensorflow.md say, kept true."""

import re
import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
from support.inference import World
from support.odd_images import saved
from support.raw import picture

from perennial.base.errors import ERRORS
from perennial.cli import all_commands
from perennial.cli.predict_images import CSV_HEADER

ROOT = Path(__file__).parents[2]
PAGES = ("predict", "tensorflow")
TEXT = "\n".join((ROOT / "docs" / "how-to" / f"{name}.md").read_text(encoding="utf-8") for name in PAGES)


def section(name: str) -> str:
    return TEXT.split(f"\n## {name}\n")[1].split("\n## ")[0]


def examples(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", section(name), re.DOTALL)


@pytest.fixture
def place(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the examples work in, with the files that they name."""
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/export").symlink_to(world.folder)
    Path("photographs").mkdir()
    for number, name in enumerate(("rose.jpg", "tulip.webp", "photographs/1.jpg", "photographs/2.jpg")):
        kind = "WEBP" if name.endswith("webp") else "JPEG"
        Path(name).write_bytes(saved(PIL.Image.fromarray(picture(number, 24)), kind))
    return tmp_path


def test_every_option_is_listed() -> None:
    command = all_commands()["predict"]
    options = {each for option in command.params for each in option.opts if each.startswith("--")}
    listed = set(re.findall(r"^\| `(--[\w-]+)", section("Command line"), re.MULTILINE))
    assert listed == options - {"--debug"}


def test_every_exit_code_that_it_has_is_listed() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", section("Command line"), re.MULTILINE)}
    assert listed == {0} | {error.exit_code for error in ERRORS}


def test_the_columns_of_csv_are_told() -> None:
    assert f"`{','.join(CSV_HEADER)}`" in section("Command line")


def test_the_example_in_python_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("Python")
    exec(code, {})
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_the_example_with_tensorflow_alone_reads_every_name_of_a_class(place: Path) -> None:
    names = ["cat\r", "a\rdog", "a bird\u2028owl"]
    shutil.copytree(Path("models/export").resolve(), "models/copy")
    Path("models/export").unlink()
    Path("models/copy").rename("models/export")
    lines = "".join(f"{number}:{name}\n" for number, name in enumerate(names))
    Path("models/export/assets/labels.txt").write_bytes(lines.encode())
    found: dict[str, object] = {}
    exec(examples("TensorFlow alone")[0], found)
    assert found["labels"] == names


def test_the_examples_with_tensorflow_alone_run(place, classifier, capsys) -> None:
    found: dict[str, object] = {}
    for code in examples("TensorFlow alone"):
        assert "perennial" not in code
        exec(code, found)
    answer = found["outputs"]
    (rose,) = classifier.predict("rose.jpg")
    assert capsys.readouterr().out.startswith(rose.label)
    expected = [each.probabilities for each in classifier.predict(sorted(Path("photographs").iterdir()))]
    assert isinstance(answer, dict)
    np.testing.assert_allclose(tf.stack(answer["probabilities"]), expected, atol=1e-6)
