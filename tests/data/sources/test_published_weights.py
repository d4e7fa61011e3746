"""`model.weights: imagenet`: fetched once from a server that stands for the real one, and verified."""

from pathlib import Path

import pytest
from data.downloads.fault_server import Server, by_name

from perennial.base import documents, files
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.project.pins import WeightsPin
from perennial.data.downloads.spec import TransferLimits
from perennial.data.sources import published_weights, weights
from perennial.stages.initialize import initialize

WEIGHTS = b"\x89HDF\r\n\x1a\n, layer_names, and then the weights"
FILE = "mobilenet_v2_weights_tf_dim_ordering_tf_kernels_1.0_96_no_top.h5"
WITH_DIGEST = "weights_mobilenet_v3_small_224_1.0_float_no_top_v2.h5"
COPY = Path("data/initial_weights/imagenet/weights.h5")
KEPT = Path(".work/downloads/weights")
ONCE = TransferLimits(tries=1)


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    server = Server()
    server.content, server.plan = {FILE: WEIGHTS, WITH_DIGEST: WEIGHTS}, [by_name]
    yield server
    server.end()


@pytest.fixture
def config(load, server):
    model = {"model.name": "mobilenet_v2", "model.weights": "imagenet", "model.weights_url": server.url}
    return load(**model, **{"preprocessing.image_size": 90})


def other(config, **model):
    return config.model_copy(update={"model": config.model.model_copy(update=model)})


def run(config):
    weights.pin(config)
    initialize(config)


def test_the_exact_bytes_are_fetched_once_and_become_an_output(config, server):
    run(config)
    run(config)
    assert COPY.read_bytes() == WEIGHTS
    assert weights.located(config) == {weights.IMAGENET: COPY}
    assert len(server.asked) == 1
    assert WeightsPin.read().imagenet.file == FILE
    (address,) = documents.read_json(config.paths.digests)
    assert address == f"https://storage.googleapis.com/tensorflow/keras-applications/mobilenet_v2/{FILE}"


def test_other_bytes_than_the_recorded_are_refused(config, server):
    run(config)
    (KEPT / FILE).unlink()
    server.content[FILE] = WEIGHTS + b" of somebody else"
    with pytest.raises(DataError, match="expected sha256 ") as error:
        initialize(config)
    assert COPY.read_bytes() == WEIGHTS
    (entry,) = documents.read_json(config.paths.digests)
    assert f"remove the entry {entry} from {config.paths.digests}" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WEIGHTS.replace(b"layer_names", b"layers"), "has no layer_names, as .* do"),  # save_weights of Keras 3
        (b"<html>Sign in", r"expected an HDF5 file|starts with"),
    ],
    ids=["layers", "a page"],
)
def test_a_file_of_another_format_is_refused_and_not_recorded(config, server, content, message):
    server.content[FILE] = content
    with pytest.raises(DataError, match=message):
        run(config)
    assert not config.paths.digests.exists()
    assert (KEPT / FILE).exists() is content.startswith(WEIGHTS[:8])
    files.write_bytes(KEPT / FILE, WEIGHTS)
    run(config)
    assert COPY.read_bytes() == WEIGHTS


def test_other_bytes_than_keras_publishes_are_refused(config):
    small = other(config, name="mobilenet_v3_small")
    weights.pin(small)
    with pytest.raises(DataError, match="expected md5 d3e8ec802a04aa4fc771ee12a9a9b836") as error:
        initialize(small)
    assert f"put into {KEPT.absolute()}\n  {WITH_DIGEST} (md5 d3e8" in str(error.value)
    assert not config.paths.digests.exists()


def test_without_a_server_the_error_says_what_to_put_where_and_that_works(config, server):
    weights.pin(config)
    server.end()
    with pytest.raises(PerennialError) as error:
        published_weights.fetch(config, ONCE)
    assert f"put {FILE} from {server.url} into {KEPT.absolute()} and run this again" in str(error.value)
    files.write_bytes(KEPT / FILE, WEIGHTS)
    initialize(config)
    assert COPY.read_bytes() == WEIGHTS


def test_a_file_of_keras_own_cache_is_taken(config, server, tmp_path):
    files.write_bytes(tmp_path / "keras" / "models" / FILE, WEIGHTS)
    run(config)
    assert (COPY.read_bytes(), server.asked) == (WEIGHTS, [])


def test_a_copy_with_other_bytes_than_recorded_is_refused(config):
    run(config)
    COPY.chmod(0o644)
    COPY.write_bytes(b"other")
    with pytest.raises(DataError, match=r"expected .* of digests\.json; `dvc repro --force"):
        weights.located(config)


def test_another_network_needs_another_pin(config):
    run(config)
    with pytest.raises(ConfigError, match="perennial pin weights"):
        weights.located(other(config, name="mobilenet_v2_035"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model.name": "lenet"}, r"not for model\.name lenet; small ones for a laptop are mobilenet_v2, "),
        ({"model.weights": "imagnet"}, r"model\.weights .* got imagnet; did you mean imagenet\?"),
        ({"preprocessing.grayscale": True}, r"preprocessing\.grayscale must be false .* 3 channels"),
        ({"preprocessing.image_size": 24}, r"preprocessing\.image_size must be at least 32 .* got 24"),
    ],
)
def test_what_cannot_be_is_refused_with_the_parameters(load, config, values, message):
    with pytest.raises(ConfigError, match=message):
        load(**values)
