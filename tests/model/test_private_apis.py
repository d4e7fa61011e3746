"""What we use of other packages without being promised it; pyproject.toml caps their versions for this.

If one of these fails with a newer version, only the module that it names has to change. DVC's inside is tested
in tests/orchestration/work/test_dvc_internals.py, and each deployment tries Prefect's.
"""

import inspect
import re
from collections import Counter
from pathlib import Path

import keras
from keras.src.backend.common import global_state
from tensorflow.python.data.ops import multi_device_iterator_ops

from perennial.model.models import architecture

PRIVATE = re.compile(
    r"^from ((?:keras\.src|tensorflow\.python|\w+[.\w]*\._)\S* import \w+|\S+ import _\w+)", re.MULTILINE
)


def test_each_stands_in_one_module() -> None:
    files = Path(architecture.__file__).parents[2].rglob("*.py")
    users = Counter(name for file in files for name in PRIVATE.findall(file.read_text(encoding="utf-8")))
    assert len(users) == 8  # as few as there are
    assert set(users.values()) == {1}


def test_model_training_input_can_replace_what_makes_the_buffer_of_a_device() -> None:
    assert callable(multi_device_iterator_ops._create_device_dataset)


def test_model_models_architecture_can_restart_the_numbering_of_layers() -> None:
    keras.layers.Dense(1)
    assert isinstance(global_state.get_global_attribute(architecture.NUMBERS), dict)
    assert list(inspect.signature(global_state.set_global_attribute).parameters) == ["name", "value"]


def test_model_export_features_finds_the_layer_that_made_a_tensor() -> None:
    given = keras.Input((3,))
    layer = keras.layers.Dense(2)
    operation, node, tensor = layer(given)._keras_history
    assert (operation, node, tensor) == (layer, 0, 0)
    assert layer._inbound_nodes[node].input_tensors[0]._keras_history.operation.output is given
