"""The page for people in a real browser, with names of classes that try to break it."""

import json
import re
import shutil
from pathlib import Path

import pytest
from live.serving.served import serving
from support import chromium
from support.inference import CLASSES, abstain, write_export
from support.pages import Elements
from support.raw import encoded, picture

pytestmark = pytest.mark.skipif(
    chromium.PROGRAM is None, reason=f"needs Chromium: none of {', '.join(chromium.NAMES)} is on the PATH"
)
HOSTILE = ("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "long" * 40)
SHOWN = "[...document.querySelectorAll('article h2, article li bdi')].map(each => each.textContent)"


@pytest.fixture(scope="module")
def page(world, tmp_path_factory):
    """The page after a photo and a text were chosen."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(world.folder, folder / "export")
    names = "".join(f"{index}:{name}\n" for index, name in enumerate(HOSTILE))
    (folder / "export" / "assets" / "labels.txt").write_text(names, encoding="utf-8")
    card = {"architecture": "<b>lenet</b>", "test": {"accuracy": 0.98333, "examples": 1359}}
    (folder / "export" / "assets" / "model_card.json").write_text(json.dumps(card), encoding="utf-8")
    (folder / "<b>.png").write_bytes(encoded(picture(1)))
    (folder / "notes.txt").write_text("no image")
    with (
        serving(folder / "export") as (_, client),
        chromium.opened(str(client.base_url), folder / "profile") as shown,
    ):
        shown.choose("#file", [folder / "<b>.png", folder / "notes.txt"])
        shown.wait_for("document.querySelectorAll('article').length === 2")
        yield shown


def test_photos_show_their_classes_and_other_files_the_reason(page) -> None:
    failed, best, *classes = page.evaluate(SHOWN)
    assert failed == "Not classified: not a JPEG, HEIC, PNG, WebP, AVIF or BMP: it starts with b'no image'"
    assert best == classes[0]
    assert set(classes) == set(HOSTILE)
    assert "98.33 % of 1,359 images" in page.evaluate("document.querySelector('header').innerText")


@pytest.mark.slow
def test_labels_of_a_photo_are_marked(tmp_path) -> None:
    world = write_export(tmp_path / "export", thresholds=(0.0, 1.0, 0.0))
    card = {"architecture": "lenet", "test": {"map_macro": 0.91234, "examples": 1359}}
    (world.folder / "assets" / "model_card.json").write_text(json.dumps(card), encoding="utf-8")
    (tmp_path / "photo.png").write_bytes(encoded(picture(1)))
    with (
        serving(world.folder) as (_, client),
        chromium.opened(str(client.base_url), tmp_path / "profile") as shown,
    ):
        shown.choose("#file", [tmp_path / "photo.png"])
        shown.wait_for("document.querySelectorAll('article li').length === 3")
        given = shown.evaluate("[...document.querySelectorAll('li.given bdi')].map(each => each.textContent)")
        assert set(given) == {CLASSES[0], CLASSES[2]}
        assert shown.evaluate("document.querySelector('article h2').textContent") == ", ".join(given)
        assert shown.evaluate("document.querySelectorAll('li b').length") == 2
        assert "Test mAP\n91.23 %" in shown.evaluate("document.querySelector('header').innerText")
        for width, scheme in ((1280, "light"), (390, "dark")):
            shown.show(width=width, scheme=scheme)
            assert shown.evaluate("document.documentElement.scrollWidth") <= width
            assert shown.evaluate(chromium.CONTRAST) >= 4.5


@pytest.mark.slow
def test_a_photo_of_which_the_model_is_not_sure_is_unknown(world, tmp_path) -> None:
    export = abstain(Path(shutil.copytree(world.folder, tmp_path / "export")), None)
    card = {"architecture": "lenet", "abstention": {"max_error": 0.05, "threshold": None}}
    (export / "assets" / "model_card.json").write_text(json.dumps(card), encoding="utf-8")
    (tmp_path / "photo.png").write_bytes(encoded(picture(1)))
    with serving(export) as (_, client), chromium.opened(str(client.base_url), tmp_path / "profile") as shown:
        shown.choose("#file", [tmp_path / "photo.png"])
        shown.wait_for("document.querySelectorAll('article').length === 1")
        answer, *classes = shown.evaluate(SHOWN)
        assert answer == "unknown"
        assert set(classes) == set(CLASSES)
        assert "at most 5" in shown.evaluate("document.getElementById('abstention').textContent")


def test_a_photo_can_be_dropped_and_pasted(page) -> None:
    page.evaluate("""(async () => {
      const blob = await new Promise(done => new OffscreenCanvas(20, 20).getContext('2d') &&
        document.createElement('canvas').toBlob(done));
      const data = new DataTransfer();
      data.items.add(new File([blob], 'canvas.png'));
      document.dispatchEvent(new DragEvent('drop', { dataTransfer: data }));
      document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }));
    })()""")
    page.wait_for("document.querySelectorAll('article').length === 4")
    assert page.evaluate("document.querySelectorAll('article:not(.failed)').length") == 3


def test_only_the_server_is_asked_and_no_script_of_a_name_runs(page) -> None:
    asked = {re.sub(r"[?#].*", "", url).rpartition("/")[2] for url in page.requests() if url.startswith("http")}
    assert asked == {"", "pets:classify"}
    assert page.evaluate("document.querySelectorAll('article script, article ol img, article b').length") == 0
    assert [each for each in page.messages() if "400 (Bad Request)" not in each] == []


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_its_text_stands_out(page, width, scheme) -> None:
    page.show(width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(chromium.CONTRAST) >= 4.5


def test_its_elements_are_closed(world) -> None:
    with serving(world.folder) as (_, client):
        answer = client.get("/")
    source = re.sub(r"<(style|script).*?</\1>", "", answer.text, flags=re.DOTALL)
    Elements(source)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
