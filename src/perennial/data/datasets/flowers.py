"""Flowers: 3,670 photographs of five kinds (CC-BY; LICENSE.txt in the archive names the photographers).

It has no splits: validation and test are cut from it. Source: TensorFlow's example images; digest from
tensorflow-datasets 4.9.10.
"""

from pathlib import Path

from perennial.data.datasets import image_folder
from perennial.data.datasets.dataset import Dataset, Source, SourceFile

CLASSES = ("daisy", "dandelion", "roses", "sunflowers", "tulips")


def read(raw: Path) -> Source:
    """Read the photographs in `flower_photos/<class>/`, sorted by the SHA-256 of their names."""
    return image_folder.read_tar(raw / "flower_photos.tar", CLASSES)


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
