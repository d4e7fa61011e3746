"""ImageNet's archives: synsets, labels, bounding boxes, odd files, and what is refused."""

from pathlib import Path

import PIL.Image
import pytest
from data.datasets.annotated import jpeg, kit, write_imagenet, xml
from support.raw import tar

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import unpack
from perennial.data.datasets.imagenet import IMAGENET, OPTIONAL, REQUIRED, collect
from perennial.data.datasets.readers import ilsvrc
from perennial.data.images import Annotations, BadImage, Box, Refused, orientation

SYNSETS = ("n01440764", "n02012849", "n03126707")
COUNTS = dict.fromkeys(SYNSETS, 3)
TRUTH = (2, 2, 1, 3)  # numbers of the kit: it lists n03126707, n01440764, n02012849


def images(synsets=SYNSETS, each=3):
    return {
        synset: {f"{synset}_{10 * n + 7}.JPEG": jpeg(100 * row + n) for n in range(each)}
        for row, synset in enumerate(synsets)
    }


@pytest.fixture
def read(tmp_path):
    """Writes archives, unpacks them as convert does, and reads them."""

    def make(found=None, *, validation=4, development_kit=None, boxes=None):
        held_out = [jpeg(1000 + number) for number in range(validation)]
        made = kit(COUNTS, TRUTH) if development_kit is None else development_kit
        write_imagenet(tmp_path / "raw", images() if found is None else found, held_out, made, boxes)
        (tmp_path / "unpacked").mkdir()
        unpack(tmp_path / "raw", tmp_path / "unpacked")
        return IMAGENET.read(tmp_path / "unpacked")

    return make


def by_name(source, split="train"):
    found = source.splits[split]
    return dict(zip(found.names, found.images(range(len(found.names))), strict=True))


def test_labels_are_those_of_slim_and_the_validation_images_are_the_test_split(read):
    source = read()
    splits = (source.splits[split] for split in ("train", "test"))
    train, test = (dict(zip(each.names, each.labels.tolist(), strict=True)) for each in splits)
    assert source.classes == ("background", "n01440764 tench", "n02012849 crane", "n03126707 crane")
    assert train == {name: row for row, synset in enumerate(SYNSETS, 1) for name in images()[synset]}
    assert [test[f"ILSVRC2012_val_{number:08d}.JPEG"] for number in (1, 2, 3, 4)] == [1, 1, 3, 2]


def test_boxes_are_shares_of_the_picture_that_the_annotator_saw(read):
    name = "n01440764_7"
    content = xml("n01440764", [(50, 20, 100, 60), (-10, 90, 210, 40)], (200, 100))
    found = by_name(read(boxes={f"n01440764/{name}.xml": content}))
    expected = (Box(0.25, 0.2, 0.5, 0.6), Box(0.0, 0.4, 1.0, 0.9))
    assert found[f"{name}.JPEG"].annotations == Annotations(boxes=expected, text="tench, Tinca tinca")
    assert found["n01440764_17.JPEG"].annotations == Annotations(text="tench, Tinca tinca")


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (xml("n01440764", [(5, 5, 5, 9), (300, 0, 400, 9)], (200, 100)), 0),
        (xml("n01440764", [(1, 1, 5, 9)], (10, 10), "n02012849"), 0),
        (xml("n01440764", [(1, 1, 5, 9)], (10, 10), "Scottish_deerhound"), 1),
    ],
    ids=["no area", "another synset", "no synset"],
)
def test_boxes_without_area_and_of_other_synsets_are_left_out(content, count):
    assert len(ilsvrc.boxes(content, "n01440764", SYNSETS)) == count


@pytest.mark.parametrize(
    "content",
    [
        b"<annotation><size>",
        b'<!DOCTYPE a [<!ENTITY x "y">]><annotation/>',
        '<!DOCTYPE a [<!ENTITY x "y">]><annotation/>'.encode("utf-16"),
        xml("n01440764", [(1, 1, 5, 9)], (0, 10)),
        xml("n01440764", [(1, 1, 5, 9)], (10, 10)).replace(b"<xmax>5", b"<xmax>five"),
    ],
)
def test_an_xml_file_that_cannot_be_read_rejects_its_image(content, read):
    with pytest.raises(Refused, match="its bounding boxes"):
        ilsvrc.boxes(content, "n01440764", SYNSETS)
    bad = by_name(read(boxes={"n01440764/n01440764_7.xml": content}))["n01440764_7.JPEG"]
    assert isinstance(bad, BadImage)
    assert "its bounding boxes" in bad.reason


def test_a_photograph_that_exif_turns_has_no_boxes(read):
    exif = PIL.Image.Exif()
    exif[orientation.TAG] = 6
    found = images()
    found["n01440764"]["n01440764_7.JPEG"] = jpeg(1, exif=exif)
    image = by_name(
        read(found, boxes={"n01440764/n01440764_7.xml": xml("n01440764", [(1, 1, 5, 9)], (10, 10))})
    )
    turned = image["n01440764_7.JPEG"]
    assert (turned.height, turned.width) == (24, 16)
    assert turned.annotations.boxes == ()


MIXED = images() | {"n01440764": images()["n02012849"]}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (images(("n01440764", "n03126707")), r"lacks n02012849\.tar; expected 3 synsets, found 2"),
        (images((*SYNSETS, "n99999999")), r"holds n99999999\.tar; expected 3 synsets, found 4"),
        (images(each=2), r"n01440764\.tar holds 2 images, expected 3 by meta\.mat"),
        (MIXED, r"n01440764\.tar holds 'n02012849_17\.JPEG', which is not an image of it"),
    ],
    ids=["missing", "unknown", "number of images", "another synset"],
)
def test_synsets_that_are_not_those_of_the_kit_are_named(read, found, message):
    with pytest.raises(DataError, match=message):
        read(found)


INNER = tar({"a.JPEG": b"x" * 600, "b.JPEG": b"y"})
AT = 512 + 1024  # of the header of b


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (INNER[: AT + 10] + b"\xff" + INNER[AT + 11 :], "damaged: the header at byte 2048, after 1 members"),
        (INNER[:AT], "incomplete: no end is marked after 1 members"),  # it does not go on in the next
    ],
)
def test_damage_within_the_tar_file_of_a_synset_is_found(tmp_path, inner, message):
    (tmp_path / "t.tar").write_bytes(tar({"n1.tar": inner, "n2.tar": INNER}))
    member = archives.contents(tmp_path / "t.tar")[0]
    with pytest.raises(DataError, match=rf"t\.tar/n1\.tar is {message}"):
        archives.contents(tmp_path / "t.tar", member)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (kit(COUNTS, (2, 2, 1)), "holds 4 images, but the development kit labels 3"),
        (kit(COUNTS, (2, 2, 1, 3, 1)), "holds 4 images, but the development kit labels 5"),
        (kit(COUNTS, (2, 2, 1, 4)), "line 4: '4', expected the ILSVRC2012_ID of a synset, 1 to 3"),
        ({"readme.txt": b"?"}, r"holds no meta\.mat"),
        (kit(COUNTS, TRUTH) | {"data/meta.mat": b"MATLAB"}, r"meta\.mat is damaged or not from ILSVRC2012"),
    ],
)
def test_a_damaged_kit_or_labels_that_do_not_fit_the_validation_images_are_refused(files, message, read):
    with pytest.raises(DataError, match=message):
        read(development_kit=files)


def test_collect_copies_the_archives_that_are_there(tmp_path):
    for name in (*REQUIRED, OPTIONAL[0], "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
    raw = tmp_path / "raw"
    raw.mkdir()
    collect(tmp_path, raw)
    assert sorted(path.name for path in raw.iterdir()) == sorted((*REQUIRED, OPTIONAL[0]))


def test_collect_names_the_missing_archives_and_where_they_come_from(tmp_path):
    (tmp_path / REQUIRED[0]).touch()
    message = r"lacks ILSVRC2012_img_val\.tar, ILSVRC2012_devkit_t12.*image-net\.org"
    with pytest.raises(DataError, match=message):
        collect(tmp_path, Path("raw"))
