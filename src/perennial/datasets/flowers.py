"""Flowers: 3,670 photographs of five kinds (CC-BY, each photographer is named in LICENSE.txt of the archive).

It comes without splits: validation and test are cut from it. Source: TensorFlow's example images; the digest
is the one that tensorflow-datasets 4.9.10 pins.
"""

from pathlib import Path

from perennial.datasets.dataset import Dataset, Source, SourceFile
from perennial.datasets.readers import class_folders

CLASSES = ("daisy", "dandelion", "roses", "sunflowers", "tulips")


def read(raw: Path) -> Source:
    """The photographs in `flower_photos/<class>/`, in the order of the SHA-256 of their names."""
    return class_folders.read(raw / "flower_photos.tar", CLASSES)


FLOWERS = Dataset(
    decoded=True,
    mirrors=(
        "https://storage.googleapis.com/download.tensorflow.org/example_images/",
        "https://download.tensorflow.org/example_images/",
    ),
    files=(
        SourceFile(
            name="flower_photos.tgz",
            bytes=228_813_984,
            sha256="4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c",
        ),
    ),
    read=read,
)
