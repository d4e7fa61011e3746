"""Model architectures by name."""

from perennial.model.models import (
    keras_applications,
    slim_inception,
    slim_nasnet,
    slim_plain,
    slim_resnet,
    vision_transformers,
)
from perennial.model.models.architecture import Architecture, auxiliary_logits, logits
from perennial.model.models.fast_cnn import FAST_CNN
from perennial.model.models.small_networks import CIFAR10_TUTORIAL, CIFARNET, LENET, MNIST_CNN

__all__ = ["MODELS", "Architecture", "auxiliary_logits", "logits"]

MODELS: dict[str, Architecture] = {
    "mnist_cnn": MNIST_CNN,
    "lenet": LENET,
    "cifarnet": CIFARNET,
    "cifar10_tutorial": CIFAR10_TUTORIAL,
    "fast_cnn": FAST_CNN,
    **slim_plain.ARCHITECTURES,
    **slim_inception.ARCHITECTURES,
    **slim_resnet.ARCHITECTURES,
    **slim_nasnet.ARCHITECTURES,
    **keras_applications.ARCHITECTURES,
    **vision_transformers.ARCHITECTURES,
}
