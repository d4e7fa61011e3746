"""Networks against slim's own: data/ has what programs of benchmarks/peers computed without ours."""

import hashlib
import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.backend import StatelessScope

from benchmarks.peers import slim_values
from perennial.base.config.networks import NETWORKS
from perennial.base.config.training import WarmStartConfig
from perennial.model.models import MODELS, imagenet_weights, logits, original_checkpoint, slim_layers
from perennial.model.training import warm_start
from perennial.model.training.warm_start import StartWeights

SLIM, GRAPHS = (  # by tf-slim itself (slim_reference.py); of networks that it lacks (slim_checkpoints.py)
    json.loads(Path(__file__).with_name("data").joinpath(f"{name}.json").read_text())
    for name in ("slim", "slim_graphs")
)
QUICK = ("inception_v2", 96)
ALL = [
    pytest.param(*case, id="-".join(map(str, case)), marks=() if case == QUICK else pytest.mark.slow)
    for name, facts in SLIM.items()
    for case in ((name, each["size"]) for each in facts["computed"])
]


def digest(names: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{name}\n" for name in sorted(names)).encode()).hexdigest()


@pytest.mark.parametrize("name", SLIM)
def test_the_listed_parameters_are_slims(name: str) -> None:
    network, facts = NETWORKS[name], SLIM[name]
    assert (network.parameters, network.image_size) == (facts["weights"]["10"], facts["computed"][0]["size"])


@pytest.mark.parametrize(("name", "size"), ALL)
def test_logits_and_variables_those_trained_and_those_with_l2_are_slims(build, name: str, size: int) -> None:
    model, facts, patterns = build(name, (size, size, 3)), SLIM[name], MODELS[name].decayed
    names = original_checkpoint.variables(model)  # slim's, by our paths
    for weight in model.weights:
        weight.assign(slim_values.weight(names[weight.path], tuple(weight.shape)))
    found = logits(model(slim_values.images(size), training=False)).numpy()
    (expected,) = [np.array(each["logits"]) for each in facts["computed"] if each["size"] == size]
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    decayed = [path for path in names if any(fnmatchcase(path, pattern) for pattern in patterns)]
    ours = [names.values(), [names[each.path] for each in model.trainable_weights], map(names.get, decayed)]
    assert list(map(digest, ours)) == [facts["variables"], facts["trainable"], facts["regularized"]]
    if size == facts["computed"][0]["size"] or name.startswith("resnet"):
        assert model.count_params() == facts["weights"]["10"]


QUICK_GRAPHS = ("mobilenet_v1_050", "mobilenet_v3_small")


@pytest.mark.fast_rows(*QUICK_GRAPHS)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_checkpoint_of_a_network_that_tf_slim_lacks_gives_slims_logits(
    build, tmp_path: Path, name: str
) -> None:
    facts = GRAPHS[name]
    model = build(name, (facts["size"], facts["size"], 3), classes=1001)
    names = original_checkpoint.variables(model)
    values = {
        names[each.path]: slim_values.weight(names[each.path], tuple(each.shape)) for each in model.weights
    }
    assert digest(f"{each} {value.size}" for each, value in values.items()) == facts["variables"]
    assert model.count_params() == facts["weights"]
    prefix = str(tmp_path / "model.ckpt")
    slices = [""] * len(values)
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[*values], shape_and_slices=slices, tensors=[*values.values()]
    )
    read = original_checkpoint.read(Path(prefix)).weights
    start = StartWeights(imagenet=None, weights=read, sha256="", original=True)
    options = WarmStartConfig(path=prefix, averages="auto", exclude=[], ignore_missing=False)
    warm_start.begin(model, start, options)
    found = logits(model(slim_values.images(facts["size"]))).numpy()[:, ::50]
    assert np.abs(found - np.array(facts["logits"])).max() <= 1e-4 * facts["largest"]


def test_the_decay_of_batch_statistics_is_slims_or_the_one_asked_for(build) -> None:
    def decays(name: str, size: int, **options: object) -> set[float]:
        with StatelessScope():
            layers = build(name, (size, size, 3), **options).layers
        return {layer.momentum for layer in layers if isinstance(layer, keras.layers.BatchNormalization)}

    assert decays("inception_v1", 32) == {0.9997}
    assert decays("mobilenet_v1_025", 32) == {0.9997}
    assert decays("inception_v1", 32, batch_norm_decay=0.9) == {0.9}
    assert decays("mobilenet_v1_025", 32, batch_norm_decay=0.9) == {0.9}


@pytest.mark.parametrize(("initial", "deviation"), [
    (slim_layers.fan_in, (2.6 / 400) ** 0.5),
    (slim_layers.fan_out, (2.6 / 900) ** 0.5),
    (slim_layers.truncated(0.01), 0.01),
])  # fmt: skip
def test_first_weights_are_normal_with_slims_deviation_and_cut_at_two(initial, deviation) -> None:
    keras.utils.set_random_seed(1)
    values = np.asarray(initial()((400, 900))) / deviation
    assert np.abs(values).max() <= 2.0001
    assert values.std() == pytest.approx(0.8796, abs=0.005)
    assert not np.array_equal(values, np.asarray(initial()((400, 900))) / deviation)  # of another layer


def pooled_as_slim(layer: keras.Layer) -> keras.Layer:
    """A layer of Keras' NASNet, whose poolings that reduce get a border of zeros; slim's have none."""
    if layer.name.startswith("reduction_pad"):
        return keras.layers.Identity(name=layer.name)
    padding = {"padding": "same"} if layer.name.startswith(("reduction_left", "reduction_right")) else {}
    return type(layer).from_config(layer.get_config() | padding)


@pytest.mark.slow
# Keras' writer of HDF5 calls NumPy as NumPy 1 was called.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("name", imagenet_weights.NASNETS)
def test_nasnet_computes_what_keras_computes_with_its_published_weights(build, tmp_path, name) -> None:
    keras.utils.set_random_seed(1)
    theirs = imagenet_weights.MAKERS[name](weights=None, classifier_activation=None)
    random = np.random.default_rng(1)
    for each in theirs.weights:
        low, high = (0.5, 1.5) if each.name in {"gamma", "moving_variance"} else (-0.3, 0.3)
        if "kernel" not in each.name:
            each.assign(random.uniform(low, high, each.shape))
    theirs.save_weights(tmp_path / "nasnet.weights.h5")
    ours = build(name)
    imagenet_weights.load(ours, tmp_path / "nasnet.weights.h5")
    slims = keras.models.clone_model(theirs, clone_function=pooled_as_slim)
    slims.set_weights(theirs.get_weights())
    features = (
        keras.Model(slims.input, slims.layers[-2].output),
        keras.Model(ours.input, ours.get_layer("global_pool").output),
    )
    images = np.random.default_rng(0).uniform(-1, 1, (2, *ours.input.shape[1:])).astype(np.float32)
    expected, found = (model(images).numpy() for model in features)
    assert np.abs(found - expected).max() <= 1e-4 * np.abs(expected).max()
