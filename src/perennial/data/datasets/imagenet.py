"""ImageNet (ILSVRC 2012): its archives need an account, so `dataset.path` names a folder that contains them.

The official validation images are the test split, as in published accuracies. Labels as in slim: 1 to 1,000 in
the order of the synsets' names; class 0, background, has no examples.
"""

import shutil
from pathlib import Path

from perennial.base.errors import DataError
from perennial.data.datasets.dataset import Dataset, Source
from perennial.data.datasets.readers import ilsvrc

TRAIN, VALIDATION, KIT = "ILSVRC2012_img_train", "ILSVRC2012_img_val", "ILSVRC2012_devkit_t12"
TRAIN_BOXES, VALIDATION_BOXES = "ILSVRC2012_bbox_train_v2", "ILSVRC2012_bbox_val_v3"
REQUIRED = (f"{TRAIN}.tar", f"{VALIDATION}.tar", f"{KIT}.tar.gz")
OPTIONAL = (f"{TRAIN_BOXES}.tar.gz", f"{VALIDATION_BOXES}.tgz")


def collect(path: Path, raw: Path) -> None:
    """Copy the archives in a folder into the raw folder; the archives of bounding boxes are optional."""
    if missing := [name for name in REQUIRED if not (path / name).is_file()]:
        raise DataError(
            f"{path} lacks {', '.join(missing)}; download {', '.join(REQUIRED)} and, for bounding boxes, "
            f"{', '.join(OPTIONAL)} with an account from https://image-net.org/download, and put them there "
            "(dataset.path)"
        )
    for name in (*REQUIRED, *OPTIONAL):
        if (path / name).is_file():
            shutil.copyfile(path / name, raw / name)


def read(folder: Path) -> Source:
    """Read the images of both archives with their boxes; by words alone two classes are `crane`."""
    synsets, truth = ilsvrc.development_kit(folder / f"{KIT}.tar")
    names = (f"{synset.wnid} {synset.words.split(',')[0]}" for synset in synsets)
    of_train, of_validation = folder / f"{TRAIN_BOXES}.tar", folder / f"{VALIDATION_BOXES}.tar"  # if they exist
    return Source(
        classes=("background", *names),
        splits={
            "train": ilsvrc.training(folder / f"{TRAIN}.tar", synsets, of_train),
            "test": ilsvrc.validation(folder / f"{VALIDATION}.tar", truth, synsets, of_validation),
        },
    )


IMAGENET = Dataset(read=read, collect=collect, decoded=True)
