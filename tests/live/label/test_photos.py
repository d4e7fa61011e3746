"""A folder of photos that no model has seen, labelled by `perennial label FOLDER` as its page does it."""

import csv
import json
import os
import subprocess
import sys

import httpx
import numpy as np
import PIL.Image
import pytest
from conftest import ROOT
from live.label.test_page import Labelling
from sklearn.datasets import load_digits
from support.raw import encoded

from perennial.base.errors import ConfigError
from perennial.live.label.photos import Photos, are_in

NAMES = [f"digit {number}" for number in range(10)]
PROGRAM = (sys.executable, "-m", "perennial")


@pytest.fixture
def digits(tmp_path):
    """400 photos in a folder, by their class."""
    found = load_digits()
    (tmp_path / "photos").mkdir()
    for number in range(400):
        pixels = np.kron(np.uint8(found.images[number] * 15), np.ones((4, 4), np.uint8))
        (tmp_path / "photos" / f"{number:03}.png").write_bytes(encoded(pixels[..., None].repeat(3, axis=2)))
    return {f"{number:03}.png": NAMES[found.target[number]] for number in range(400)}


class Page(Labelling):
    """The requests that the page sends, with the keys that it needs for them."""

    def __init__(self, folder, *options):
        super().__init__(folder, "--who", "Ada", *options, place="photos")
        self.client = httpx.Client(base_url=self.url)
        self.state, self.keys = self.client.get("queue").json(), 0

    def label(self, oracle, count):
        """Look at images, and press the key of each."""
        for name in self.state["left"][:count]:
            given = {"sha256": name, "class": oracle(self.client.get(f"images/{name}").content)}
            self.client.post("answers", json=given).raise_for_status()
            self.keys += 1

    def close(self):
        self.client.close()
        self.kill()


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def perennial(folder, *command):
    subprocess.run((*PROGRAM, *command), cwd=folder, env=environment(), check=True)


def rows(folder):
    with (folder / "photos" / "labels.csv").open(newline="") as stream:
        return {row["file"]: row["label"] for row in csv.DictReader(stream)}


def classes(names=NAMES):
    return [word for name in names for word in ("--class", name)]


def photos(folder, count=4):
    (folder / "own").mkdir()
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (9, 9, 3), np.uint8)
        (folder / "own" / f"{number}.png").write_bytes(encoded(pixels))
    return folder / "own"


@pytest.mark.slow
def test_a_hundred_keys_lead_from_400_photos_to_a_model(digits, tmp_path):
    before = {file.name: file.read_bytes() for file in (tmp_path / "photos").iterdir()}
    content = {file.read_bytes(): digits[file.name] for file in (tmp_path / "photos").iterdir()}
    page = Page(tmp_path, *classes(), "--count", "400")
    assert (page.state["classes"], page.state["total"]) == (NAMES, 400)
    page.label(content.__getitem__, 70)
    page.close()
    again = Page(tmp_path)  # the classes are those of the labels
    assert (again.state["classes"], again.state["total"]) == (NAMES, 300)
    again.label(content.__getitem__, 30)
    again.close()
    found = {file: label for file, label in rows(tmp_path).items() if label}
    assert (page.keys + again.keys, len(rows(tmp_path)), len(found)) == (100, 400, 100)
    assert found.items() <= digits.items()
    assert {name: (tmp_path / "photos" / name).read_bytes() for name in before} == before
    subprocess.run(("git", "init", "-q"), cwd=tmp_path, check=True)
    values = {"model.weights": "null", "train.epochs": 20}
    perennial(tmp_path, "start", "photos", *(f"--set={key}={value}" for key, value in values.items()))
    for stage in ("download", "convert", "validate", "train", "evaluate"):
        perennial(tmp_path, stage)
    scores = json.loads((tmp_path / "metrics" / "metrics.json").read_text())
    assert scores["accuracy"] > 0.4  # of about 20 images; ten classes


def test_answers_are_kept_undone_and_taken_up_again(tmp_path):
    folder = photos(tmp_path)
    one = Photos(folder, tmp_path / "work")
    first, second, third, _ = one.draw_photos(9, 0).images
    one.add(first, "cat", "Ada")
    one.add(second, "", "Ada")  # none of the classes
    one.undo(third.sha256, one.add(third, "dog", "Ada").time)
    again = Photos(folder, tmp_path / "work")
    found = {name: each.class_ for name, each in again.labels().items()}
    assert found == {first.sha256: "cat", second.sha256: ""}
    assert len(again.draw_photos(9, 0).images) == 2
    table = dict(csv.reader((folder / "labels.csv").read_text().splitlines()))
    assert sorted(table.values()) == ["", "", "", "cat", "label"]


def test_photos_of_other_formats_are_shown_as_png_and_equal_ones_get_one_label(tmp_path):
    folder = photos(tmp_path, 3)
    for name in ("one.webp", "two.webp"):
        PIL.Image.fromarray(np.zeros((9, 12, 3), np.uint8)).save(folder / name, lossless=True)
    answers = Photos(folder, tmp_path / "work")
    images = answers.draw_photos(9, 0).images
    (webp,) = [each for each in images if answers.image(each.sha256).suffix == ".webp"]
    assert (len(images), webp.reason) == (4, "typical")
    assert answers.shown(webp.sha256).startswith(b"\x89PNG")
    answers.add(webp, "cat", "Ada")
    table = dict(csv.reader((folder / "labels.csv").read_text().splitlines()))
    assert {name for name, label in table.items() if label == "cat"} == {"one.webp", "two.webp"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_of_somebody_else_stays(when, tmp_path):
    folder = photos(tmp_path)
    if when == "after":
        answers = Photos(folder, tmp_path / "work")
        queue = answers.draw_photos(9, 0).images
        answers.add(queue[0], "cat", "Ada")
    (folder / "labels.csv").write_text("file,label\n0.png,owl\n")
    with pytest.raises(ConfigError, match="it stays as it is"):
        Photos(folder, tmp_path / "work")
    if when == "after":
        with pytest.raises(ConfigError, match="it stays as it is"):
            answers.add(queue[1], "dog", "Ada")
    assert (folder / "labels.csv").read_text() == "file,label\n0.png,owl\n"


def test_a_kill_between_the_two_tables_is_no_change_of_somebody_else(tmp_path, monkeypatch):
    folder = photos(tmp_path)
    answers = Photos(folder, tmp_path / "work")
    first, second, *_ = answers.draw_photos(9, 0).images
    answers.add(first, "cat", "Ada")
    written = (answers.folder / "written.csv").read_bytes()
    answers.add(second, "dog", "Ada")
    (answers.folder / "written.csv").write_bytes(written)
    assert len(Photos(folder, tmp_path / "work").labels()) == 2


def test_only_a_folder_that_holds_photos_itself_is_one(tmp_path):
    folder = photos(tmp_path)
    assert are_in(folder)
    assert not are_in(tmp_path)
    assert not are_in(tmp_path / "gone")
    (folder / "2026-11-27").mkdir()
    with pytest.raises(ConfigError, match="folders: 2026-11-27; nothing was written"):
        are_in(folder)


@pytest.mark.parametrize(
    ("names", "says"),
    [((), "--class cat --class dog"), (("cat", "none"), "is a word"), (("cat", "Cat"), "one class or two")],
)
def test_classes_that_start_would_refuse_are_refused_at_once(names, says, tmp_path):
    photos(tmp_path)
    command = (*PROGRAM, "label", "own", *classes(names))
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "own" / "labels.csv").exists()
