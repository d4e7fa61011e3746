"""Visual Wake Words: who is a person, their boxes, and what is refused."""

import pytest
from data.datasets.annotated import coco, jpeg, write_coco

from perennial.base.errors import DataError
from perennial.data.archives import Member, unpack
from perennial.data.datasets.readers.coco import elements
from perennial.data.datasets.visualwakewords import read
from perennial.data.images import Annotations, Box

SIZE = (24, 16)  # of the images, 384 pixels: a person needs more than 1.92
NAMES = [f"COCO_train2014_{number:012d}.jpg" for number in (9, 25, 30, 42)]
OBJECTS = [
    (NAMES[0], 1, 1.92, [0, 0, 2, 1]),  # just 0.5 %
    (NAMES[1], 1, 1.93, [6, 4, 12, 8]),
    (NAMES[1], 1, 0.5, [0, 0, 1, 1]),  # too small, beside a person
    (NAMES[2], 18, 384, [0, 0, 24, 16]),
    (NAMES[1], 1, 90, [12, 8, 24, 16]),  # beyond the edge
]


@pytest.fixture
def source(tmp_path):
    def make(pictures=None, objects=OBJECTS, names=NAMES, counts=(4, 1), **replaced):
        pictures = dict.fromkeys(NAMES, SIZE) if pictures is None else pictures
        held_out = "COCO_val2014_000000000001.jpg"
        annotations = {
            "train2014": coco(pictures, objects),
            "val2014": coco({held_out: SIZE}, [(held_out, 1, 50, [0, 0, 12, 8])]),
        } | replaced
        raw = tmp_path / "raw"
        write_coco(raw, "train2014", {name: jpeg(row) for row, name in enumerate(names)}, annotations)
        write_coco(raw, "val2014", {held_out: jpeg(77)}, annotations)
        (tmp_path / "unpacked").mkdir()
        unpack(raw, tmp_path / "unpacked")
        return read(tmp_path / "unpacked", counts)

    return make


def test_a_person_takes_more_than_half_a_percent_of_the_picture_and_classes_and_splits_are_slims(source):
    found = source()
    train = found.splits["train"]
    labels = dict(zip(train.names, train.labels.tolist(), strict=True))
    assert labels == dict(zip(NAMES, (0, 1, 0, 0), strict=True))
    assert (found.classes, found.splits["test"].labels.tolist()) == (("background", "person"), [1])


def test_people_have_boxes_and_areas_by_whatever_order_images_are_asked_for(source):
    train = source().splits["train"]
    order = [train.names.index(name) for name in reversed(NAMES)]
    found = [image.annotations for image in train.images(order)]
    none = Annotations(areas=())
    people = (Box(0.25, 0.25, 0.75, 0.75), Box(0.5, 0.5, 1.0, 1.0))
    assert found == [none, none, Annotations(boxes=people, areas=(1.93, 90.0)), none]


LOST = coco(dict.fromkeys(NAMES, SIZE), OBJECTS).replace(b'"image_id": 19', b'"image_id": 5')


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pictures": dict.fromkeys(NAMES[:3], SIZE)}, rf"instances_train2014\.json lacks '{NAMES[3]}'"),
        ({"names": NAMES[:3]}, rf"train2014\.tar lacks '{NAMES[3]}'"),
        ({"counts": (5, 1)}, r"train2014\.tar holds 4 images, expected 5"),
        ({"train2014": LOST}, "an annotation of image 5, which is not listed"),
    ],
)
def test_images_and_annotations_that_do_not_fit_are_named(source, changes, message):
    with pytest.raises(DataError, match=message):
        source(**changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (coco(dict.fromkeys(NAMES, SIZE), OBJECTS)[:-40], "is damaged or not in COCO's format"),
        (b"[]", "is damaged or not in COCO's format"),
        (b'{"images": [{"id": 1, "file_name": "x", "width": 1e999, "height": 1}]}', "damaged or not in COCO's"),
        (b'{"images": [' + b"[" * 100_000, "is damaged or not in COCO's format"),
        (b'{"images": [{"id": 1}]}', "is damaged or not in COCO's format: KeyError"),
        (b'{"images": [], "annotations": [], "categories": []}', "has no category 'person'"),
    ],
)
def test_a_file_that_is_not_cocos_is_refused(content, message, source):
    with pytest.raises(DataError, match=message):
        source(train2014=content)


@pytest.mark.parametrize("chunk", [1, 2, 7, 1 << 20])
def test_elements_come_one_by_one_wherever_the_file_is_cut(chunk, tmp_path, monkeypatch):
    content = '{"a": 12, "é": [1, 23.5, "ü]"] , "c": {"é": [0]}, "d": [], "e": [{"x": [1]}, 7]}'.encode()
    (tmp_path / "x").write_bytes(b"__" + content + b"__")
    monkeypatch.setattr("perennial.data.datasets.readers.coco.CHUNK_BYTES", chunk)
    found = list(elements(tmp_path / "x", Member("x", 2, len(content)), ("é", "d", "e")))
    assert found == [("é", 1), ("é", 23.5), ("é", "ü]"), ("e", {"x": [1]}), ("e", 7)]
