"""The page of `perennial label` in a browser, driven by its keys, with the server that people start."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import takewhile

import numpy as np
import PIL.Image
import pytest
from conftest import ROOT
from support import chromium
from support.kept import keep, record
from support.odd_images import saved
from support.parameters import change_params

from perennial.base.storage.local import LocalStore
from perennial.data.datasets.readers import labelled

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium")
TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


SEVERAL = {
    "dataset.name": "image_folder", "dataset.task": "multilabel", "dataset.path": "own",
    "gate.min_accuracy": None, "train.stop_metric": "map",
    "dataset.table": {"path": "tags.csv", "file": "file", "label": "tags", "split": None},
}  # fmt: skip


def kept(folder, classes, count=8):
    """A place with images on which two versions disagree."""
    contents, records = [], []
    for number in range(count):
        small = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
        png = saved(PIL.Image.fromarray(small).resize((320, 240)), "PNG")
        top = tuple((name, 0.5) for name in (classes[number % len(classes)], classes[0], classes[1]))
        other = {"top": top, "candidate": "8", "candidate_top": ((classes[-1], 0.5),)}
        contents.append(png)
        records.append(record(contents[-1], **other))
    keep(LocalStore(folder), contents, records)


class Labelling:
    """`perennial label` as a process, in a folder."""

    def __init__(self, folder, *options, place="kept"):
        command = (sys.executable, "-m", "perennial", "label", place, "--port", "0", "--json", *options)
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        lines = takewhile("}\n".__ne__, self.process.stdout)  # until the server ends, at the latest
        self.url = json.loads("".join([*lines, "}"]))["url"]
        self.table = folder / ".work" / "label" / "labels.csv"

    def labels(self):
        return list(labelled.parse(self.table.read_text()).values())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def started(tmp_path):
    """Starts the server for some classes."""
    running = []

    def start(classes=TEN, *options, params=None):
        if not running:
            (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
            change_params(tmp_path / "params.yaml", params or {})
            kept(tmp_path / "kept", classes)
            (tmp_path / "data" / "records").mkdir(parents=True)
            labels = "".join(f"{number}:{name}\n" for number, name in enumerate(classes))
            (tmp_path / "data" / "records" / "labels.txt").write_text(labels)
        running.append(Labelling(tmp_path, "--who", "Ada", *options))
        return running[-1]

    yield start
    for each in running:
        each.kill()


def press(page, *keys):
    """Press keys one after the other, each when the server has answered the last one."""
    for key in keys:
        page.press(key)
        page.wait_for("document.body.dataset.busy !== 'true'")


@pytest.fixture
def browser(tmp_path):
    """Opens the page of a server, and waits for the first image."""

    @contextmanager
    def opened(server):
        with chromium.opened(server.url, tmp_path / "profile") as page:
            page.wait_for("document.getElementById('image').naturalWidth > 0")
            yield page

    return opened


def test_keys_label_undo_and_skip(started, browser):
    server = started()
    with browser(server) as page:
        press(page, "1", "0", "n", "u", "s", "4")
        assert [each.class_ for each in server.labels()] == ["airplane", "truck", "cat"]


@pytest.mark.slow
def test_an_answer_is_on_the_disk_when_the_server_is_killed(started, browser):
    server = started()
    with browser(server) as page:
        press(page, "1", "2")
        server.kill()
        press(page, "3")
        assert page.evaluate("document.getElementById('status').className") == "bad"
    with browser(started()) as page:
        assert page.evaluate("count.textContent") == "2 of 8 labelled"


@pytest.mark.slow
def test_a_second_page_changes_no_answer_of_the_first(started, browser, tmp_path):
    server = started()
    with browser(server) as one, chromium.opened(server.url, tmp_path / "other") as two:
        two.wait_for("document.getElementById('image').naturalWidth > 0")
        press(one, "1")
        press(two, "2")
        assert "Ada labelled this image as airplane" in two.evaluate(
            "document.getElementById('status').textContent"
        )
        press(two, "3")
        assert [each.class_ for each in server.labels()] == ["airplane", "bird"]


@pytest.mark.slow
def test_more_than_ten_classes_are_found_by_typing(started, browser):
    server = started(tuple(f"kind {chr(97 + number)}" for number in range(14)))
    with browser(server) as page:
        assert page.evaluate("document.querySelectorAll('#classes button').length") == 14
        press(page, *"kind m", "Enter", "n", "Escape", "n", "2")
        assert [each.class_ for each in server.labels()] == ["kind m", "", "kind b"]


@pytest.mark.slow
def test_keys_toggle_several_labels_until_enter_gives_them(started, browser):
    server = started(params=SEVERAL)
    with browser(server) as page:
        press(page, "1", "4", "2", "4", "Enter", "n", "Enter", "u", "3", "Enter", "5", "s", "Enter")
        labels = [each.labels for each in server.labels()]
        assert labels == [["airplane", "automobile"], [], ["bird"], []]
        press(page, "1", "2", "Enter", "u")
        assert page.evaluate(PRESSED) == ["airplane", "automobile"]
        for width, scheme in ((1280, "light"), (390, "dark")):
            page.show(width=width, scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(chromium.CONTRAST) >= 4.5


PRESSED = "[...document.querySelectorAll('[aria-pressed=true] span')].map(each => each.textContent)"


@pytest.mark.slow
def test_more_than_ten_labels_are_found_by_typing_one_after_the_other(started, browser):
    server = started(tuple(f"kind {chr(97 + number)}" for number in range(14)), params=SEVERAL)
    with browser(server) as page:
        press(page, *"kind m", "Enter", *"kind c", "Enter", "Enter", "Enter")
        assert [each.labels for each in server.labels()] == [["kind c", "kind m"], []]
