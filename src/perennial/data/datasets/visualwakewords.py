"""Visual Wake Words: photographs of COCO 2014, `person` if one covers more than 0.5 % of the picture.

COCO's validation images are the test split. Sources: Chowdhery et al. 2019; slim's
datasets/download_and_convert_visualwakewords.py; digests: COCO's in tensorflow-datasets 4.9.10.
"""

from pathlib import Path

import numpy as np

from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.datasets.dataset import Dataset, Examples, Source, SourceFile
from perennial.data.datasets.readers import coco, tar_images

CLASSES = ("background", "person")
LEAST_SHARE = 0.005  # of the image area; smaller people do not count
IMAGES = (82_783, 40_504)


def read(folder: Path, images: tuple[int, int] = IMAGES) -> Source:
    """Read the photographs, sorted by the SHA-256 of their names, with the boxes of people."""
    splits = [_split(folder, name, count) for name, count in zip(("train2014", "val2014"), images, strict=True)]
    return Source(classes=CLASSES, splits=dict(zip(("train", "test"), splits, strict=True)))


def _split(folder: Path, name: str, count: int) -> Examples:
    tar, of_annotations = folder / f"{name}.tar", folder / "annotations_trainval2014.tar"
    by_name = {each.file_name: each for each in archives.contents(tar) if not each.folder}
    json_name = f"annotations/instances_{name}.json"
    member = next((each for each in archives.contents(of_annotations) if each.name == json_name), None)
    if member is None:
        raise DataError(f"{of_annotations} holds no {json_name}")
    pictures, people = coco.read(of_annotations, member, "person", LEAST_SHARE)
    if differ := sorted(by_name.keys() ^ {picture.name for picture in pictures}):
        lacking = tar if differ[0] not in by_name else of_annotations / json_name
        raise DataError(f"{lacking} lacks {differ[0]!r}; images and annotations differ in {len(differ)} names")
    if len(pictures) != count:
        raise DataError(f"{tar} holds {len(pictures)} images, expected {count}")
    order = tar_images.order([picture.name for picture in pictures])
    names, chosen = tuple(pictures[index].name for index in order), coco.ordered(people, order)
    labels = (np.diff(chosen.bounds) > 0).astype(np.int64)
    return tar_images.examples(tar, [by_name[name] for name in names], names, labels, annotate=chosen)


_COCO = "https://s3.amazonaws.com/images.cocodataset.org/"
_FILES = (
    ("train2014.zip", 13_510_573_713, "ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775"),
    ("val2014.zip", 6_645_013_297, "fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0"),
    (
        "annotations_trainval2014.zip",
        252_872_794,
        "031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009",
    ),
)
VISUALWAKEWORDS = Dataset(
    read=read,
    decoded=True,
    mirrors=(f"{_COCO}zips/", f"{_COCO}annotations/"),
    files=tuple(SourceFile(name=name, bytes=size, sha256=digest) for name, size, digest in _FILES),
)
