"""The four small nets against the same arithmetic in NumPy, float64."""

import keras
import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[np.float64]


def windows(x: Array, size: int, stride: int, padding: str, fill: float) -> Array:
    """[N, rows, columns, channels, size, size] of x [N, height, width, channels], padded as TensorFlow does."""
    if padding == "same":
        pads = [(0, 0)]
        for length in x.shape[1:3]:
            missing = max((-(-length // stride) - 1) * stride + size - length, 0)
            pads.append((missing // 2, missing - missing // 2))
        x = np.pad(x, [*pads, (0, 0)], constant_values=fill)
    return sliding_window_view(x, (size, size), axis=(1, 2))[:, ::stride, ::stride]


def conv(x: Array, kernel: Array, bias: Array) -> Array:
    patches = windows(x, len(kernel), 1, "same", 0.0)
    return np.maximum(np.einsum("nijcyx,yxco->nijo", patches, kernel, optimize=True) + bias, 0)


def pool(x: Array, size: int, padding: str) -> Array:
    return windows(x, size, 2, padding, -np.inf).max(axis=(-2, -1))


def norm(x: Array) -> Array:
    squares = np.pad(x**2, [(0, 0)] * 3 + [(4, 4)])
    sums = sum(squares[..., offset : offset + x.shape[-1]] for offset in range(9))
    return x / (1 + 0.001 / 9 * sums) ** 0.75


def forward(model: keras.Model, x: Array, order: str) -> Array:
    """The logits; `order` names the operations, which take the model's weights in turn."""
    weights = iter([weight.numpy().astype(np.float64) for weight in model.weights])
    for step in order.split():
        if step == "conv":
            x = conv(x, next(weights), next(weights))
        elif step == "norm":
            x = norm(x)
        elif step in {"same2", "same3", "valid2"}:
            x = pool(x, int(step[-1]), step[:-1])
        else:
            x = x.reshape(len(x), -1) @ next(weights) + next(weights)
            x = np.maximum(x, 0) if step == "dense" else x
    return x


@pytest.mark.fast_rows(
    "0-mnist_cnn-conv same2 conv same2 dense logits",
    "1-lenet-conv valid2 conv valid2 dense logits",
    "0-cifarnet-conv valid2 norm conv norm valid2 dense dense logits",
    "1-cifar10_tutorial-conv same3 norm conv norm same3 dense dense logits",
)
@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("mnist_cnn", "conv same2 conv same2 dense logits"),
        ("lenet", "conv valid2 conv valid2 dense logits"),
        ("cifarnet", "conv valid2 norm conv norm valid2 dense dense logits"),
        ("cifar10_tutorial", "conv same3 norm conv norm same3 dense dense logits"),
    ],
)
@pytest.mark.parametrize("odd", [0, 1])  # an odd side distinguishes the paddings
def test_a_small_net_computes_what_numpy_computes(build, name: str, order: str, odd: int) -> None:
    keras.utils.set_random_seed(3)
    images = np.random.default_rng(4).uniform(-1, 1, (3, 24 + odd, 24 + odd, 3)).astype(np.float32)
    model = build(name, images.shape[1:])
    for weight in model.weights:  # biases that are all alike would hide which layer they belong to
        if weight.path.endswith("bias"):
            weight.assign(np.random.default_rng(5).uniform(-0.2, 0.2, weight.shape))
    expected = forward(model, images.astype(np.float64), order)
    difference = np.abs(model(images, training=False).numpy() - expected).max()
    assert difference <= 1e-5 * np.abs(expected).max()
