"""Data in formats that are not read: refused by the name of the format, with what to do."""

import json

import numpy as np
import pytest
from support.raw import encoded, picture, tar, write_files
from support.records import datum

from perennial.base.errors import DataError
from perennial.data.archives.safety import LFS
from perennial.data.datasets import image_folder, tfrecord
from perennial.data.images import BadImage
from perennial.data.images.accept import accepted
from perennial.data.tfrecord import framing

IMAGE = encoded(picture(1, 12))
POINTER = LFS + b"\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"
IMAGES = {f"{number}.jpg": IMAGE for number in range(4)}
CLASSES = {"cat/1.png": IMAGE, "dog/1.png": encoded(picture(2, 12))}
BOX = b"0 0.5 0.5 0.1 0.2\n1 0.25 0.5 1 0.125\n"
VOC = b"<annotation><filename>1.jpg</filename><object><name>cat</name></object></annotation>"
CVAT = b"<?xml version='1.0'?>\n<annotations>\n<version>1.1</version><meta/><image id='0'/></annotations>"
VERTEX = b'{"imageGcsUri": "gs://b/0.jpg", "classificationAnnotation": {"displayName": "c"}}\n' * 4
TRUTH = b'{"source-ref": "s3://b/0.jpg", "pets": 0, "pets-metadata": {"class-name": "cat"}}\n' * 4
BEFORE = {"info": {"year": 2024}}
COCO = BEFORE | {
    "images": [{"id": 1, "file_name": "0.jpg"}],
    "annotations": [{"image_id": 1, "bbox": [0, 0, 1, 1]}],
}
STUDIO = [{"id": 1, "data": {"image": "0.jpg"}, "annotations": [{"result": []}]}]
VIA = {"0.jpg12": {"filename": "0.jpg", "size": 12, "regions": []}}


def document(value):
    return json.dumps(value).encode()


SHARD = tar({"a.jpg": IMAGE, "a.cls": b"0"})
FOREIGN = {
    "LFS images": ({"cat/1.jpg": POINTER, "dog/1.jpg": POINTER}, "pointer of Git LFS .*`git lfs pull`"),
    "some LFS images": (CLASSES | {"cat/2.jpg": POINTER}, "'cat/2.jpg': a pointer of Git LFS"),
    "LFS table": (IMAGES | {"labels.csv": POINTER}, "'labels.csv': a pointer of Git LFS"),
    "parquet": (
        {f"data/{split}-00000-of-00001.parquet": b"PAR1" for split in ("train", "test")} | {"README.md": b"#"},
        "2 in all, are in the format Parquet, as of Hugging Face; save the images as files",
    ),
    "tars": (
        {"000000.tar": SHARD, "000001.tar": SHARD},
        "2 in all, are in the format tar, as of WebDataset; unpack them",
    ),
    "an unpacked tar": ({"0.jpg": IMAGE, "0.cls": b"0", "1.jpg": IMAGE, "1.cls": b"1"}, "as of WebDataset"),
    "NumPy": ({"images.npy": b"x", "labels.npy": b"x"}, "2 in all, are in the format NumPy"),
    "Arrow": ({"data-00000-of-00002.arrow": b"x"}, "is in the format Arrow, as of Hugging Face; save"),
    "HDF5": ({"images.h5": b"x"}, "is in the format HDF5; save"),
    "pickle": ({"train.pkl": b"x", "test.pkl": b"x"}, "2 in all, are in the format pickle; save"),
    "IDX": (
        {"train-images-idx3-ubyte.gz": b"x"}, "is in the format IDX, as of MNIST; set dataset.name to mnist"
    ),
    "Vertex AI": (
        IMAGES | {"import.jsonl": VERTEX}, "'import.jsonl' holds an import manifest of Vertex AI; write"
    ),
    "Ground Truth": (IMAGES | {"output.manifest": TRUTH}, "an output manifest of SageMaker Ground Truth"),
    "Ground Truth, renamed": (IMAGES | {"output.jsonl": TRUTH}, "an output manifest of SageMaker Ground Truth"),
    "COCO": (IMAGES | {"annotations.json": document(COCO)}, "annotations of objects, as in COCO"),
    "Label Studio": (IMAGES | {"export.json": document(STUDIO)}, "tasks of Label Studio; export them as CSV"),
    "VGG Image Annotator": (IMAGES | {"via.json": document(VIA)}, "as of VGG Image Annotator"),
    "CVAT": (IMAGES | {"annotations.xml": CVAT}, "'annotations.xml' holds annotations of CVAT"),
    "YOLO": (IMAGES | {f"{n}.txt": BOX for n in range(4)}, "4 in all, hold boxes of objects, as in YOLO"),
    "Pascal VOC": (
        {f"JPEGImages/{n}.jpg": IMAGE for n in range(3)} | {f"Annotations/{n}.xml": VOC for n in range(3)},
        "3 in all, hold annotations of objects, as in Pascal VOC",
    ),
    "LabelMe": (
        IMAGES | {f"{n}.json": document({"shapes": [], "imagePath": "x"}) for n in range(4)}, "as of LabelMe"
    ),
    "TensorFlow Datasets": (
        {f"pets-{each}.tfrecord-00000-of-00001": b"x" for each in ("train", "test")}
        | {"dataset_info.json": b"{}", "features.json": b"{}"},
        "of TensorFlow Datasets; set dataset.name to tfrecord",
    ),
    "archives": ({"cat.zip": b"PK", "dog.zip": b"PK"}, "2 in all, are in the format zip; unpack them"),
    "Supervisely": (
        {"img/1.jpg": IMAGE, "ann/1.jpg.json": document({"size": 1, "objects": []})}, "Supervisely"
    ),
    "CreateML": (IMAGES | {"a.json": document([{"image": "0.jpg", "annotations": []}])}, "of CreateML"),
    "Labelbox": (IMAGES | {"a.ndjson": document({"data_row": {}, "projects": {}})}, "an export of Labelbox"),
    "FiftyOne": (
        IMAGES | {"labels.json": document({"classes": ["cat", "dog"], "labels": {"0": 0, "1": 1}})},
        "holds labels of FiftyOne; write",
    ),
    "a document for each image": (
        IMAGES | {f"{n}.json": document({"tags": [n, "x"]}) for n in range(4)},
        "4 documents such as '0.json' are each of a single image",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "message"), FOREIGN.values(), ids=FOREIGN)
def test_a_format_that_is_not_read_is_refused_by_its_name(tmp_path, files, message):
    with pytest.raises(DataError, match=message):
        image_folder.collect(write_files(tmp_path / "own", files), tmp_path)


def test_a_file_of_another_format_beside_images_is_not_blamed(tmp_path):
    with pytest.raises(DataError, match=r"files outside of class folders: '0\.jpg'"):
        image_folder.collect(write_files(tmp_path / "own", IMAGES | {"features.npz": b"x"}), tmp_path)


BESIDE = {
    "COCO": {"annotations.json": document(COCO)},
    "Vertex AI": {"import.jsonl": VERTEX},
    "archive": {"cat/old.zip": b"PK"},
    "YOLO": {"labels/1.txt": BOX},
}


@pytest.mark.parametrize("files", BESIDE.values(), ids=BESIDE)
def test_class_folders_are_read_whatever_lies_beside_them(tmp_path, files):
    image_folder.collect(write_files(tmp_path / "own", CLASSES | files), tmp_path)
    assert image_folder.read(tmp_path).classes == ("cat", "dog")


def test_a_pointer_among_images_that_a_sample_misses_is_a_bad_image_by_that_name():
    image = accepted(POINTER, "1.jpg")
    assert isinstance(image, BadImage)
    assert image.reason == "it is a pointer of Git LFS instead of the file; run `git lfs pull`"


def test_pointers_instead_of_archives_and_records_are_refused_by_that_name(tmp_path):
    (tmp_path / "own.zip").write_bytes(POINTER)
    with pytest.raises(DataError, match=r"own\.zip is a pointer of Git LFS"):
        image_folder.collect(tmp_path / "own.zip", tmp_path)
    record = framing.frame(datum(np.zeros((2, 2), np.uint8), 0))
    folder = write_files(tmp_path / "records", {"train.tfrecord": record, "test.tfrecord": POINTER})
    with pytest.raises(DataError, match=r"test\.tfrecord is a pointer of Git LFS"):
        tfrecord.read(folder)
