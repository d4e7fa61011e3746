"""Model architectures by name."""

from perennial.base.config.fields import is_component
from perennial.base.project import own_components
from perennial.model.models import (
    keras_applications,
    slim_inception,
    slim_nasnet,
    slim_plain,
    slim_resnet,
    vision_transformers,
)
from perennial.model.models.architecture import Architecture, auxiliary_logits, logits, logits_of
from perennial.model.models.fast_cnn import FAST_CNN
from perennial.model.models.small_networks import CIFAR10_TUTORIAL, CIFARNET, LENET, MNIST_CNN

__all__ = ["MODELS", "Architecture", "auxiliary_logits", "logits", "logits_of", "named"]

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


def named(name: str) -> Architecture:
    """The architecture that a name means, which may be a component of the project."""
    if not is_component(name):
        return MODELS[name]
    found = own_components.load(
        name,
        "an Architecture or a function that builds a model",
        lambda each: isinstance(each, Architecture) or own_components.is_function(each),
    )
    return found if isinstance(found, Architecture) else Architecture(network=found)
