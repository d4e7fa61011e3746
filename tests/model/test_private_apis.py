"""What we use of TensorFlow and Keras without being promised it; pyproject.toml caps their versions for this.

If one of these fails with a newer version, only the module that it names has to change.
"""

import inspect

import keras
from keras.src.backend.common import global_state
from tensorflow.python.data.ops import multi_device_iterator_ops

from perennial.model.models import architecture


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
