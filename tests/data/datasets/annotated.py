"""Small archives in the formats of ImageNet's challenge and of COCO."""

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from scipy.io import savemat
from support.raw import encoded, picture, tar

WORDS = {"n03126707": "crane", "n01440764": "tench, Tinca tinca", "n02012849": "crane"}  # not in their order
XML = """<annotation><folder>{synset}</folder><filename>%s</filename>
<size><width>{width}</width><height>{height}</height><depth>3</depth></size>{objects}</annotation>"""
OBJECT = """<object><name>{name}</name><bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax>
</bndbox></object>"""


def jpeg(seed: int, **options: object) -> bytes:
    """A JPEG file like no other of another seed, 24 x 16 pixels."""
    return encoded(picture(seed, 24)[:16], "JPEG", quality=95, **options)


def xml(
    synset: str, boxes: Iterable[tuple[int, int, int, int]], size: tuple[int, int], name: str = ""
) -> bytes:
    """Bounding boxes as the challenge has them; the objects have the synset's name unless given another."""
    objects = "".join(OBJECT.format(*box, name=name or synset) for box in boxes)
    return XML.format(synset=synset, width=size[0], height=size[1], objects=objects).encode()


def kit(counts: Mapping[str, int], truth: Iterable[int]) -> dict[str, bytes]:
    """The two files of a development kit, the synsets numbered in the order of `WORDS`; one is no class."""
    fields = [(name, object) for name in (
        "ILSVRC2012_ID", "WNID", "words", "gloss", "num_children", "children", "wordnet_height",
        "num_train_images",
    )]  # fmt: skip
    leaves = [
        (float(number), wnid, text, "a thing", 0.0, np.zeros((0, 0)), 0.0, float(counts[wnid]))
        for number, (wnid, text) in enumerate(WORDS.items(), 1)
    ]
    parent = (float(len(leaves) + 1), "n00001740", "entity", "all", 2.0, np.array([1.0, 2.0]), 9.0, 0.0)
    stream = io.BytesIO()
    savemat(stream, {"synsets": np.array([*leaves, parent], fields).reshape(-1, 1)})
    lines = "".join(f"{number}\n" for number in truth).encode()
    return {"data/meta.mat": stream.getvalue(), "data/ILSVRC2012_validation_ground_truth.txt": lines}


def write_imagenet(
    folder: Path,
    images: Mapping[str, Mapping[str, bytes]],
    validation: Iterable[bytes],
    development_kit: Mapping[str, bytes],
    boxes: Mapping[str, bytes] | None = None,
) -> None:
    """Writes the archives; `images` are those of each synset by name, `boxes` XML files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    inner = {f"{synset}.tar": tar(files) for synset, files in images.items()}
    (folder / "ILSVRC2012_img_train.tar").write_bytes(tar(inner))
    numbered = {f"ILSVRC2012_val_{number:08d}.JPEG": content for number, content in enumerate(validation, 1)}
    (folder / "ILSVRC2012_img_val.tar").write_bytes(tar(numbered))
    named = {f"ILSVRC2012_devkit_t12/{name}": content for name, content in development_kit.items()}
    (folder / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(tar(named, "w:gz"))
    if boxes is not None:
        (folder / "ILSVRC2012_bbox_train_v2.tar.gz").write_bytes(tar(boxes, "w:gz"))


def coco(
    pictures: Mapping[str, tuple[int, int]], objects: Iterable[tuple[str, int, float, list[float]]]
) -> bytes:
    """COCO's file of objects (picture, category, area, box) in pictures (width, height); 1 is a person."""
    number = {name: 10 * index + 9 for index, name in enumerate(pictures)}
    return json.dumps(
        {
            "info": {"year": 2014, "description": '[{"images": 1}]'},
            "images": [
                {"id": number[name], "file_name": name, "width": width, "height": height, "license": 3}
                for name, (width, height) in pictures.items()
            ],
            "licenses": [{"id": 3, "name": "Zürich"}],
            "annotations": [
                {
                    "segmentation": [[1.5, 2.0, 3.25]], "area": area, "iscrowd": 0, "id": index, "bbox": box,
                    "image_id": number[name], "category_id": category,
                }
                for index, (name, category, area, box) in enumerate(objects)
            ],
            "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
        }, ensure_ascii=False,
    ).encode()  # fmt: skip


def write_coco(folder: Path, split: str, images: Mapping[str, bytes], annotations: Mapping[str, bytes]) -> None:
    """Writes `<split>.zip`, and the files of annotations by split as one archive."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{split}.zip", "w") as archive:
        archive.writestr(f"{split}/", b"")
        for name, content in images.items():
            archive.writestr(f"{split}/{name}", content)
    with zipfile.ZipFile(folder / "annotations_trainval2014.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in annotations.items():
            archive.writestr(f"annotations/instances_{name}.json", content)
