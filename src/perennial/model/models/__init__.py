"""Model architectures by name."""

from perennial.base.config.fields import is_component
from perennial.base.project import own_components
from perennial.model.models import (
    keras_applications,
    plain_networks,
    slim_inception,
    slim_nasnet,
    slim_resnet,
    vision_transformers,
)
from perennial.model.models.architecture import Architecture, auxiliary_logits, logits, logits_of

__all__ = ["MODELS", "Architecture", "auxiliary_logits", "logits", "logits_of", "named"]

MODELS: dict[str, Architecture] = {
    **plain_networks.ARCHITECTURES,
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
