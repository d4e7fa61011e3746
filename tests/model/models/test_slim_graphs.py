"""Checkpoints of slim's networks that tf-slim lacks, computed here as research/slim/nets does."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from model.models import slim_graphs, slim_nasnets, slim_values
from model.models.slim_graphs import CLASSES, Graph

from perennial.base.config.training import WarmStartConfig
from perennial.model.models import logits, original_checkpoint
from perennial.model.training import warm_start
from perennial.model.training.warm_start import StartWeights

QUICK = {"mobilenet_v1_050", "mobilenet_v3_small"}
SIZES = {
    "inception_v4": 299, "inception_resnet_v2": 299, "nasnet_cifar": 32, "nasnet_mobile": 224,
    "nasnet_large": 331, "pnasnet_mobile": 224, "pnasnet_large": 331,
}  # fmt: skip
NETWORKS = {
    "nasnet_cifar": ("", slim_nasnets.nasnet_cifar, None),
    "nasnet_mobile": ("", slim_nasnets.nasnet_mobile, None),
    "nasnet_large": ("", slim_nasnets.nasnet_large, None),
    "pnasnet_mobile": ("", slim_nasnets.pnasnet_mobile, None),
    "pnasnet_large": ("", slim_nasnets.pnasnet_large, None),
    "inception_v4": ("InceptionV4", slim_graphs.inception_v4, None),
    "inception_resnet_v2": ("InceptionResnetV2", slim_graphs.inception_resnet_v2, None),
    "mobilenet_v1": ("MobilenetV1", slim_graphs.mobilenet_v1, 1),
    "mobilenet_v1_050": ("MobilenetV1", slim_graphs.mobilenet_v1, 0.5),
    "mobilenet_v2": ("MobilenetV2", slim_graphs.mobilenet_v2, 1),
    "mobilenet_v2_035": ("MobilenetV2", slim_graphs.mobilenet_v2, 0.35),
    "mobilenet_v2_140": ("MobilenetV2", slim_graphs.mobilenet_v2, 1.4),
    "mobilenet_v3_large": ("MobilenetV3", slim_graphs.mobilenet_v3, "large"),
    "mobilenet_v3_small": ("MobilenetV3", slim_graphs.mobilenet_v3, "small"),
}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_a_checkpoint_of_slim_gives_its_logits(build, tmp_path: Path, name: str) -> None:
    scope, network, variant = NETWORKS[name]
    graph = Graph(
        scope,
        gamma=name not in {"inception_v4", "inception_resnet_v2"},
        epsilon=1e-5 if name == "nasnet_cifar" else 1e-3,
    )
    size = SIZES.get(name, 64)
    images = slim_values.images(size)
    expected = network(graph, tf.constant(images), variant).numpy()
    prefix, names = tmp_path / "model.ckpt", list(graph.values)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=list(graph.values.values()),
    )
    model = build(name, (size, size, 3), classes=CLASSES)
    weights = original_checkpoint.read(prefix).weights
    assert sorted(original_checkpoint.variables(model).values()) == sorted(weights)
    assert sum(each.size for each in weights.values()) == model.count_params()
    start = StartWeights(imagenet=None, weights=weights, sha256="", original=True)
    warm_start.begin(
        model, start, WarmStartConfig(path=str(prefix), averages="auto", exclude=[], ignore_missing=False)
    )
    found = logits(model(images)).numpy()
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
