"""The images that a network is trained on: preprocessing, fitted to the sizes in the validation report."""

import logging
from typing import Any

from perennial.base import documents
from perennial.base.config import Config
from perennial.base.config.networks import network_facts
from perennial.base.errors import ConfigError, DataError
from perennial.base.params import advice
from perennial.data import preprocessing
from perennial.data.preprocessing import ImageSpec
from perennial.data.records import manifest
from perennial.model import models

log = logging.getLogger(__name__)


def fitted(config: Config) -> ImageSpec:
    """The chosen preprocessing for images of the sizes in the validation report."""
    file = config.paths.validation
    report: dict[str, Any] = documents.read_json(file) if file.is_file() else {"ok": False}
    digest = manifest.digest(config.paths.records)
    advice.log(log, advice.of_training(config))  # advice comes before any error
    if not report["ok"] or report["statistics"]["manifest"] != digest:
        raise DataError(
            f"{file} does not report the records with manifest {digest} as valid; run `dvc repro validate`"
        )
    # If some images are gray and others RGB, all are decoded as RGB.
    (low, high), (left, right), (_, channels) = (
        report["statistics"][name] for name in ("height", "width", "channels")
    )
    facts = network_facts(config.model.name)
    spec = preprocessing.fitted(
        config.preprocessing,
        published=facts.preprocessing or models.named(config.model.name).preprocessing,
        tensorflow_1=facts.program is not None,
        heights=(low, high),
        widths=(left, right),
        channels=channels,
    )
    height, width, _ = spec.model_shape
    own = facts.image_size
    if own and config.preprocessing.image_size is None and (height, width) != (own, own):
        log.info(
            "%s takes images of %dx%d pixels, their own size (preprocessing.image_size: null); published "
            "for %dx%d (image_size: network)", config.model.name, height, width, own, own,
        )  # fmt: skip
    if config.train.xla and not spec.compilable:
        raise ConfigError(
            "train.xla cannot compile preprocessing.name rescale if images are resized; "
            "set train.xla: false, image_size: null, or preprocessing.name: standard"
        )
    return spec
