"""The architectures: one file each, chosen from this dict."""

from perennial.models import mnist_cnn
from perennial.models.architecture import Architecture

MODELS: dict[str, Architecture] = {
    "mnist_cnn": Architecture(build=mnist_cnn.build, image_size=28, channels=1),
}
