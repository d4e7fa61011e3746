"""Frozen graphs in the hands of clients of TensorFlow 1."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from support import scoring
from support.scoring import GREY

from perennial.base.config.networks import NETWORKS
from perennial.model import export_layout
from perennial.model.export import export_formats, graphs, loading, saved_model

WORLD = scoring.world(12)
# Mean and deviation by which a preprocessing normalizes; cifarnet's are those of each image.
CONSTANTS = {
    "rescale": (0, 255),
    "lenet": (128, 128),
    "inception": (127.5, 127.5),
    "vgg": (np.array([123.68, 116.779, 103.939]), 1),
}
SIDE = 8


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with the network alone and the whole model."""
    folder = tmp_path_factory.mktemp("graphs") / "export"
    folder.mkdir()
    saved_model.save(folder, WORLD.model, WORLD.description.model_copy(update={"pixels": GREY}), ())
    export_formats.write(folder, ["slim_graph", "frozen_graph"], lambda: ())
    return folder


@pytest.fixture(scope="module")
def expected(export: Path) -> np.ndarray:
    """The probabilities of the SavedModel."""
    classify = loading.load(export).signatures["classify"]
    return classify(image=tf.constant(WORLD.images))["probabilities"].numpy()


def label_image(file: Path, nodes: tuple[str, str], image: np.ndarray) -> np.ndarray:
    """What the program label_image, which came with TensorFlow 1, gets for an image that it has normalized."""
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(file.read_bytes()))
        entrance, result = (graph.get_operation_by_name(f"import/{name}").outputs[0] for name in nodes)
        return session.run(result, {entrance: image[None]})


@pytest.mark.fast_rows("lenet-lenet-28")
@pytest.mark.parametrize(
    ("name", "preprocessing", "side"),
    [
        ("mnist_cnn", "rescale", 28),
        ("lenet", "lenet", 28),
        ("cifarnet", "cifarnet", 32),
        ("mobilenet_v1_025", "inception", 32),
        ("inception_v1", "inception", 64),
        ("resnet_v1_50", "vgg", 64),
        ("vgg_a", "vgg", 64),
    ],
)
def test_label_image_gets_the_classes_of_every_kind_of_network(
    tmp_path: Path, build, describe, name: str, preprocessing: str, side: int
) -> None:
    channels = NETWORKS[name].channels
    model = build(name, (side, side, channels))
    for weight in model.trainable_variables:  # large enough that the classes differ
        if len(weight.shape) > 1:
            inputs = weight.shape[:2] if weight.shape[-1] == 1 else weight.shape[:-1]  # depthwise or not
            weight.assign(np.random.default_rng(1).normal(0, np.sqrt(2 / np.prod(inputs)), weight.shape))
    description = describe(model)
    pixels = description.pixels.model_copy(update={"preprocessing": preprocessing})
    folder = tmp_path / "export"
    folder.mkdir()
    saved_model.save(folder, model, description.model_copy(update={"pixels": pixels}), ())
    export_formats.write(folder, ["slim_graph"], lambda: ())
    random, classify = np.random.default_rng(0), loading.load(folder).signatures["classify"]
    for _ in range(2):
        # The client cannot crop, so where the preprocessing does, images have one colour.
        plain = (1, 1, channels) if preprocessing in ("inception", "vgg") else (side, side, channels)
        image = np.broadcast_to(random.integers(0, 256, plain, np.uint8), (side, side, channels))
        mean, std = CONSTANTS.get(preprocessing) or (image.mean(), image.std())
        graph = folder / export_layout.EXTRA / "inference_graph.pb"
        found = label_image(graph, ("input", graphs.output_node(name)), (np.float32(image) - mean) / std)
        outputs = classify(image=tf.constant(image[None]))
        assert found.argmax() == outputs["classes"][0]
        expected = tf.nn.softmax(found) if name in graphs.LOGITS else found
        np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)


def test_the_network_alone_takes_floats_of_its_size_in_batches_of_any_size(export: Path) -> None:
    content = (export / export_layout.EXTRA / "inference_graph.pb").read_bytes()
    graph = tf.compat.v1.GraphDef.FromString(content)
    (node,) = (node for node in graph.node if node.op == "Placeholder")
    assert node.name == "input"
    assert node.attr["dtype"].type == tf.float32.as_datatype_enum
    assert [each.size for each in node.attr["shape"].shape.dim] == [-1, SIDE, SIDE, 1]
    assert not [each.op for each in graph.node if "Var" in each.op or each.op.startswith("Decode")]


def test_a_network_of_slim_has_slims_node_and_its_logits_where_slim_ends_in_logits() -> None:
    names = ("lenet", "inception_v3", "mobilenet_v1_025", "resnet_v2_50", "vgg_16", "nasnet_mobile")
    assert [graphs.output_node(name) for name in names] == [
        "Predictions/Reshape_1", "InceptionV3/Predictions/Reshape_1", "MobilenetV1/Predictions/Reshape_1",
        "resnet_v2_50/predictions/Reshape_1", "vgg_16/fc8/squeezed", "final_layer/predictions",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64, np.float32, np.float64])
def test_the_whole_model_takes_raw_pixels_of_any_type(export: Path, expected, kind: type) -> None:
    np.testing.assert_allclose(run_whole(export, WORLD.images.astype(kind)), expected, atol=1e-5)


@pytest.mark.parametrize(
    "image",
    [WORLD.images / 255, WORLD.images / 127.5 - 1, WORLD.images.astype(int) + 200],
    ids=["0 to 1", "-1 to 1", "above"],
)
def test_the_whole_model_refuses_values_that_are_not_raw_pixels(export: Path, image: np.ndarray) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="raw pixels from 0 to 255"):
        run_whole(export, image)


def test_the_whole_model_takes_black_images(export: Path) -> None:
    assert np.isfinite(run_whole(export, np.zeros((1, SIDE, SIDE, 1)))).all()


def run_whole(export: Path, images: np.ndarray) -> np.ndarray:
    """The probabilities by the frozen graph, in a session of TensorFlow 1."""
    graph = tf.compat.v1.GraphDef.FromString((export / export_layout.EXTRA / "frozen_graph.pb").read_bytes())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.import_graph_def(graph, name="")
        return session.run("probabilities:0", {"image:0": images})
