"""What `perennial start` finds in a folder or archive, and what it refuses."""

import shutil
import struct
from pathlib import Path

import pytest
from PIL import Image
from PIL.PngImagePlugin import MAX_TEXT_CHUNK, PngInfo
from support import raw
from support.odd_images import saved

from perennial.base.errors import ConfigError, DataError
from perennial.project.start import survey

SCRATCH = Path("scratch")


def pictures(folder: Path, **counts: int) -> Path:
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for each in range(count):
            (folder / name / f"{each}.png").write_bytes(
                raw.encoded(raw.picture(100 * number + each, 50 + each))
            )
    return folder


@pytest.fixture
def folder(workspace: Path) -> Path:
    return pictures(Path("own"), cat=4, dog=3)


def look(path: Path) -> survey.Survey:
    return survey.look(path, SCRATCH)


def test_a_folder_of_classes_is_counted_and_measured(folder: Path) -> None:
    found = look(folder)
    assert (found.per_class, found.per_split, found.images) == ({"cat": 4, "dog": 3}, {"train": 7}, 7)
    assert (found.sides, found.formats, found.gray, found.archive) == ((50, 51, 53), {"PNG": 7}, False, False)
    assert found.described().startswith("7 images in 2 classes, 3 to 4 in each; PNG; shorter side 50 to 53 px")


@pytest.mark.parametrize("kind", ["zip", "gztar", "tar"])
def test_an_archive_is_as_its_folder(folder: Path, kind: str) -> None:
    found = look(Path(shutil.make_archive("photos", kind, ".", "own")))
    assert (found.per_class, found.sides, found.archive) == (look(folder).per_class, (50, 51, 53), True)
    assert list(SCRATCH.iterdir()) == []


def test_folders_of_splits_copies_and_damage_are_seen(workspace: Path) -> None:
    for split in ("train", "test"):
        pictures(Path("own", split), cat=2, dog=2)
    Path("own/train/cat/notes.png").write_text("no image")
    found = look(Path("own"))
    assert (found.per_split, found.split_folders) == ({"train": 5, "test": 4}, True)
    assert (found.copies, list(found.unreadable)) == (4, ["train/cat/notes.png"])


def test_formats_that_convert_rejects_are_no_images(folder: Path) -> None:
    image = Image.open(folder / "cat" / "0.png")
    image.save(folder / "cat" / "scan.tiff")
    image.save(folder / "cat" / "scan.webp")
    found = look(folder)
    assert list(found.unreadable) == ["cat/scan.tiff"]
    assert "`magick mogrify -format png FILE`" in found.unreadable["cat/scan.tiff"]
    assert found.formats == {"PNG": 7, "WEBP": 1}


def test_a_png_with_more_text_than_pillow_reads_is_an_image(folder: Path) -> None:
    text = PngInfo()
    text.add_text("prompt", "x" * (2 * MAX_TEXT_CHUNK), zip=True)
    Image.open(folder / "cat" / "0.png").save(folder / "cat" / "made.png", pnginfo=text)
    assert look(folder).unreadable == {}


def test_an_image_of_too_many_pixels_has_its_own_reason(folder: Path) -> None:
    image = Image.open(folder / "cat" / "0.png").convert("RGB")
    photo, size = saved(image, "JPEG"), struct.pack(">HH", image.height, image.width)
    assert photo.count(size) == 1
    (folder / "cat" / "wall.jpg").write_bytes(photo.replace(size, struct.pack(">HH", 10400, 12000)))
    reason = "it has 12000 x 10400 pixels, expected 1 to 120000000; save it smaller"
    assert look(folder).unreadable == {"cat/wall.jpg": reason}


UNSUPPORTED = {
    "one class": (lambda folder: pictures(folder, cat=2), "images of one class"),
    "few": (lambda folder: pictures(folder, cat=9, dog=2), "'dog' has 2; each class needs at least 3 images"),
    "nothing": (lambda folder: (folder / "cat").mkdir(parents=True), "own holds no files"),
    "texts": (
        lambda folder: [pictures(folder, a=1, b=1), *text(folder)],
        "none of 2 sampled files can be used, such as .*: not a JPEG",
    ),
}


def text(folder: Path) -> list[int]:
    return [file.write_text("text") for file in folder.rglob("*.png")]


@pytest.mark.parametrize(("make", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_another_layout_is_refused_with_what_is_expected(workspace: Path, make, message: str) -> None:
    make(Path("own"))
    with pytest.raises(DataError, match=rf"(?s){message}.*expected .* own/<class>/<image>"):
        look(Path("own"))


def test_a_path_that_is_not_there_is_refused(workspace: Path) -> None:
    with pytest.raises(ConfigError, match="photos does not exist"):
        look(Path("photos"))
