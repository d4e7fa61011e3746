"""`perennial predict`: which images it takes, what it prints, how it ends."""

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import PIL.Image
import pytest
from support.inference import CLASSES, abstain
from support.odd_images import saved
from support.raw import picture
from typer.testing import CliRunner

import perennial
from perennial.base import config, files
from perennial.cli import app
from perennial.model import export_layout

SOURCE = Path(perennial.__file__).parents[1]
PNG = saved(PIL.Image.fromarray(picture(5, 24)), "PNG")


@pytest.fixture
def command(world, workspace):
    """Runs `perennial predict` on the export in an empty folder."""

    def run(*arguments, model=world.folder, given=None):
        chosen = ["--model", str(model)] if model and "--model" not in arguments else []
        return CliRunner().invoke(app, ["predict", *map(str, arguments), *chosen], input=given)

    return run


@pytest.fixture
def mixed(photographs):
    """A folder with three photographs and three broken files, which lie between them by name."""
    *_, last = photographs(3)
    (last.parent / "000.html").write_bytes(b"<html>")
    (last.parent / "001 empty.png").touch()
    (last.parent / "001 half.jpg").write_bytes(last.read_bytes()[:-200])
    (last.parent / "001 page.jpg").write_bytes(b"<html>404</html>")
    return last.parent


def names(shown) -> list[str]:
    return [Path(line.partition(": ")[0]).name for line in shown.stdout.splitlines()]


def test_an_image_is_a_line_with_the_likeliest_class(command, classifier, photographs) -> None:
    (file,) = photographs(1)
    (answer,) = classifier.predict(file)
    shown = command(file)
    assert (shown.exit_code, shown.stdout) == (0, f"{file}: {answer.label} {answer.probability:.4f}\n")


def test_top_names_more_classes(command, photographs) -> None:
    (line,) = command(*photographs(1), "--top", "3").stdout.splitlines()
    assert sorted(each.rpartition(" ")[0] for each in line.partition(": ")[2].split(", ")) == sorted(CLASSES)


@pytest.mark.fast_rows("True-this", "False-another")
@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(("promote", "model"), [(False, "this"), (True, "this"), (False, "another")])
def test_the_export_of_a_rejected_model_comes_with_a_warning(
    world, photographs, caplog, promote, model
) -> None:
    paths = config.load(Path("params.yaml")).paths
    shutil.copytree(world.folder, paths.export)
    files.write_json(paths.export / export_layout.CARD, {"weights_sha256": "this"})
    decision = {
        "promote": promote,
        "reasons": ["test accuracy 0.2 is too low"],
        "candidate": {"model": model, "data": "d"},
    }
    files.write_json(paths.decision, decision)
    shown = CliRunner().invoke(app, ["predict", *map(str, photographs(1))])
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (0, 1)
    rejected = "this model was rejected: test accuracy 0.2 is too low" in caplog.text
    assert rejected == (not promote and model == "this")


def test_a_folder_is_every_image_in_it_by_name(command, photographs) -> None:
    files = photographs(4)
    folder = files[0].parent
    (folder / "a").mkdir()
    shutil.copy(files[0], folder / "a" / "z.jpg")
    shutil.copy(files[1], folder / "without suffix")
    for passed_over in (".hidden.jpg", "README", "labels.txt", "notes.md"):
        shutil.copy(files[0], folder / passed_over)
    (folder / ".git").mkdir()
    shutil.copy(files[0], folder / ".git" / "x.jpg")
    (folder / "elsewhere").symlink_to(folder / "a")
    shown = command(folder)
    assert shown.exit_code == 0
    assert names(shown) == ["000.jpg", "001.jpg", "002.jpg", "003.jpg", "without suffix", "z.jpg"]


def test_a_hyphen_is_an_image_on_standard_input(command, classifier) -> None:
    (answer,) = classifier.predict(PNG)
    assert command("-", given=PNG).stdout == f"-: {answer.label} {answer.probability:.4f}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("-", "-"), 2, "given twice"),
        (("",), 2, "is a variable of the shell not set?"),
        ((".", ""), 2, "is a variable of the shell not set?"),
        (("a.jpg", "--json", "--csv"), 2, "leave one out"),
        (("none",), 3, "no image"),
        (("a.jpg", "--model", "absent"), 3, "absent does not exist"),
    ],
)
def test_what_cannot_be_predicted_is_refused(command, workspace, arguments, code, message) -> None:
    Path("none").mkdir()
    shown = command(*arguments, given=PNG)
    assert (shown.exit_code, shown.stdout) == (code, "")
    assert message in " ".join(shown.stderr.split())


def test_an_image_may_come_through_a_pipe_with_a_name(command, tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cp", "/dev/stdin", tmp_path / "pipe"], stdin=subprocess.PIPE) as writer:
        writer.stdin.write(PNG)
        writer.stdin.close()
        shown = command(tmp_path / "pipe")
    assert (shown.exit_code, names(shown)) == (0, ["pipe"])


def test_json_is_one_document_with_bad_images_in_it(command, classifier, mixed) -> None:
    shown = command(mixed, "--json", "--top", "2", "--on-bad-image", "skip")
    first, *_ = found = json.loads(shown.stdout)
    (answer,) = classifier.predict(mixed / "000.jpg", top=2)
    assert first == {
        "file": str(mixed / "000.jpg"),
        "classes": [
            {"class": each.label, "index": each.index, "probability": pytest.approx(each.probability, abs=1e-6)}
            for each in answer.classes
        ],
    }
    assert [Path(each["file"]).name for each in found if "error" in each] == [
        "001 empty.png", "001 half.jpg", "001 page.jpg",
    ]  # fmt: skip


@pytest.fixture
def doubtful(world, tmp_path):
    """An export that is never sure enough."""
    return abstain(Path(shutil.copytree(world.folder, tmp_path / "doubtful")), None)


def test_what_the_model_is_not_sure_of_is_unknown(command, classifier, doubtful, photographs) -> None:
    (file,) = photographs(1)
    (known,) = classifier.predict(file)
    classes = f"{known.label} {known.probability:.4f}"
    assert command(file, model=doubtful).stdout == f"{file}: unknown ({classes})\n"
    (found,) = json.loads(command(file, "--json", model=doubtful).stdout)
    assert (found["answer"], found["classes"][0]["class"]) == ("unknown", known.label)
    (row,) = csv.DictReader(io.StringIO(command(file, "--csv", model=doubtful).stdout))
    assert (row["answer"], row["class"]) == ("unknown", known.label)


def test_csv_has_a_row_for_each_class(command, mixed) -> None:
    (mixed / "000.jpg").rename(mixed / '0, "0".jpg')
    shown = command(mixed, "--csv", "--top", "2", "--on-bad-image", "skip")
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [(Path(row["file"]).name, row["rank"]) for row in rows] == [
        (name, rank) for name in ('0, "0".jpg', "001.jpg", "002.jpg") for rank in "12"
    ]
    assert all(CLASSES[int(row["index"])] == row["class"] for row in rows)
    assert all(0 <= float(row["probability"]) <= 1 for row in rows)


@pytest.mark.parametrize(
    ("output", "expected"), [((), b"\\xe9 \\udcff.jpg: "), (("--csv",), b"\xc3\xa9 \xff.jpg,1,")]
)
def test_names_that_standard_output_does_not_encode_are_printed(
    world, command, photographs, output, expected
) -> None:
    (file,) = photographs(1)
    odd = file.rename(file.with_name("\u00e9 \udcff.jpg"))
    arguments = ["predict", str(odd), "--model", str(world.folder), *output]
    shown = CliRunner(charset="ascii").invoke(app, arguments)
    assert shown.exit_code == 0
    assert expected in shown.stdout_bytes


BROKEN = ["001 empty.png: it is empty", "001 half.jpg: it is incomplete", "001 page.jpg: it is a web page"]


@pytest.mark.parametrize(("policy", "code"), [(None, 3), ("skip", 0)])
def test_broken_files_are_named_one_by_one_and_stop_nothing(command, mixed, caplog, policy, code) -> None:
    shown = command(mixed, *(("--on-bad-image", policy) if policy else ()))
    assert (shown.exit_code, names(shown)) == (code, ["000.jpg", "001.jpg", "002.jpg"])
    named = [Path(line).name for line in caplog.messages if line.startswith("/")]
    assert [line[: len(broken)] for line, broken in zip(named, BROKEN, strict=True)] == BROKEN
    assert ("3 of 6" in shown.stderr) == (code == 3)


def test_a_name_cannot_steer_the_terminal(command, photographs, caplog) -> None:
    (file,) = photographs(1)
    shown = command(file.rename(file.with_name("\x1b[2J\udcff.jpg")), file.with_name("\x1b[1A.jpg"))
    assert "\\x1b[2J\\udcff.jpg: " in shown.stdout
    assert "\\x1b[1A.jpg: it cannot be read" in caplog.text
    assert "\x1b" not in shown.output + caplog.text


def test_the_model_of_the_parameters_is_the_default(command, world, photographs) -> None:
    shutil.copytree(world.folder, "models/export")
    assert command(*photographs(1), model=None).exit_code == 0
    Path("params.yaml").unlink()
    shown = command(*photographs(1), model=None)
    assert shown.exit_code == 2
    assert "--model" in shown.stderr


def start(world, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "perennial", "predict", "--model", world.folder, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_signal_ends_the_wait_for_an_image(world, workspace) -> None:
    os.mkfifo("pipe")
    with start(world, "pipe") as predicting, Path("pipe").open("wb"):  # opened as soon as it is read
        predicting.send_signal(signal.SIGINT)
        _, err = predicting.communicate()
    assert predicting.returncode == 75
    assert err.splitlines()[-1].startswith("perennial predict: Ctrl-C ended")


@pytest.mark.slow
def test_a_signal_ends_the_work_on_images_and_what_was_printed_holds(world, photographs) -> None:
    files = photographs(40) * 200
    with start(world, *files) as predicting:
        first = predicting.stdout.readline()
        predicting.send_signal(signal.SIGTERM)
        rest, err = predicting.communicate()
    assert predicting.returncode == 75
    assert "Traceback" not in err
    *whole, _ = [first, *rest.splitlines()]  # the last line may be cut
    assert len(whole) < len(files) - 1
    assert [line.partition(": ")[0] for line in whole] == [str(file) for file in files[: len(whole)]]


def test_a_closed_standard_output_is_refused_before_the_model_is_loaded(workspace) -> None:
    command = [sys.executable, "-m", "perennial", "predict", "--model", "absent", "a.jpg"]
    shown = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (shown.returncode, len(shown.stderr.splitlines())) == (2, 1)
