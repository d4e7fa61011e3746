"""The architectures, chosen from this dict by name."""

from perennial.models.architecture import Architecture, auxiliary_logits, logits
from perennial.models.cifar10_tutorial import CIFAR10_TUTORIAL
from perennial.models.cifarnet import CIFARNET
from perennial.models.families import FAMILIES
from perennial.models.lenet import LENET
from perennial.models.mnist_cnn import MNIST_CNN

__all__ = ["MODELS", "Architecture", "auxiliary_logits", "logits"]

MODELS: dict[str, Architecture] = {
    "mnist_cnn": MNIST_CNN,
    "lenet": LENET,
    "cifarnet": CIFARNET,
    "cifar10_tutorial": CIFAR10_TUTORIAL,
    **FAMILIES,
}
