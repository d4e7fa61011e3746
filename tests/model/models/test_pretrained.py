"""The facts about published weights and networks, compared with Keras' own code and with the networks."""

import inspect
from pathlib import Path

import keras
import pytest
from keras.src.utils import file_utils

from perennial.base.config import networks
from perennial.base.config.networks import NETWORKS
from perennial.model.models.imagenet_weights import MAKERS

SOURCES = "".join(
    file.read_text(encoding="utf-8")
    for file in sorted(Path(inspect.getfile(keras.src.applications)).parent.glob("*.py"))
)


class Asked(Exception):
    """What Keras would download."""


def test_every_network_of_keras_has_published_weights() -> None:
    assert set(networks.PRETRAINED) == MAKERS.keys() | networks.PRESETS.keys()
    assert all(networks.published(name, None) for name in MAKERS)
    assert networks.published("lenet", 28) is None


def test_every_digest_is_one_of_keras() -> None:
    digests = [digest for _, digest in networks.FILES.values()]
    assert [digest for digest in digests if f'"{digest}"' not in SOURCES] == []
    assert len(set(digests)) == len(digests)


SLOW = {"mobilenet_v1_025": 160, "mobilenet_v2_035": 96}
ALL = [
    pytest.param(name, SLOW.get(name), id=name, marks=() if name in SLOW else pytest.mark.slow)
    for name in MAKERS
]


@pytest.mark.parametrize(("name", "size"), ALL)
def test_address_and_digest_are_those_that_keras_asks_for(name, size, monkeypatch) -> None:
    def get_file(_: str, origin: str, file_hash: str | None = None, **__: object) -> None:
        raise Asked(origin, file_hash)

    monkeypatch.setattr(file_utils, "get_file", get_file)
    side = size or NETWORKS[name].image_size
    with pytest.raises(Asked) as asked:
        MAKERS[name](weights="imagenet", include_top=False, input_shape=(side, side, 3))
    found = networks.published(name, size)
    assert found is not None
    assert asked.value.args == (found.url, found.digest)
