# Origin: research/slim/nets/nasnet of github.com/tensorflow/models (Apache-2.0):
# the networks and the names of their layers.
"""NASNet and PNASNet as slim builds them.

A cell takes two states, the outputs of the previous cell and of the one before it, and makes five more. Each is
the sum of two operations on earlier states. Layers have slim's names, with a dot for each slash.
"""

from dataclasses import dataclass, replace
from functools import partial

import keras
from keras import layers

from perennial.base.config.data import ModelConfig
from perennial.model.models.architecture import AUX_LOGITS, LOGITS, Architecture, Shape
from perennial.model.models.layers import DropPath
from perennial.model.models.slim_layers import Auxiliary, BatchNorm, fan_out, pooled_logits

# The operation and its state: 0 the previous cell, 1 the one before it, then the sums.
Operation = tuple[str, int]


@dataclass(frozen=True)
class Cell:
    """A cell's five sums, and the states that it outputs (the others are used only inside)."""

    sums: tuple[tuple[Operation, Operation], ...]
    given: tuple[int, ...]


NASNET_NORMAL = Cell(
    (
        (("separable_5x5_2", 0), ("separable_3x3_2", 1)),
        (("separable_5x5_2", 1), ("separable_3x3_2", 1)),
        (("avg_pool_3x3", 0), ("none", 1)),
        (("avg_pool_3x3", 1), ("avg_pool_3x3", 1)),
        (("separable_3x3_2", 0), ("none", 0)),
    ),
    (1, 2, 3, 4, 5, 6),
)
NASNET_REDUCTION = Cell(
    (
        (("separable_5x5_2", 0), ("separable_7x7_2", 1)),
        (("max_pool_3x3", 0), ("separable_7x7_2", 1)),
        (("avg_pool_3x3", 0), ("separable_5x5_2", 1)),
        (("none", 3), ("avg_pool_3x3", 2)),
        (("separable_3x3_2", 2), ("max_pool_3x3", 0)),
    ),
    (3, 4, 5, 6),
)
PNASNET = Cell(
    (
        (("separable_5x5_2", 1), ("max_pool_3x3", 1)),
        (("separable_7x7_2", 0), ("max_pool_3x3", 0)),
        (("separable_5x5_2", 0), ("separable_3x3_2", 0)),
        (("separable_3x3_2", 4), ("max_pool_3x3", 0)),
        (("separable_3x3_2", 1), ("none", 0)),
    ),
    (2, 3, 4, 5, 6),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of a network, named as in slim."""

    normal: Cell
    reduction: Cell | None  # None: a normal cell with a stride reduces
    num_cells: int
    num_conv_filters: int
    stem_multiplier: float
    imagenet_stem: bool  # a strided convolution and two reduction cells; else one convolution
    skip_reduction_layer_input: bool
    norm: BatchNorm
    dropout: float
    drop_path: float  # rate in the last cell
    total_training_steps: int  # steps until the drop path rates are reached

    @property
    def reductions(self) -> tuple[int, int]:
        """The positions of the reduction cells, where the grid is halved and the filters are doubled."""
        return self.num_cells // 3, self.num_cells * 2 // 3

    @property
    def total_cells(self) -> int:
        """The number of all cells; the drop path rate rises with a cell's position among them."""
        return self.num_cells + 2 * (self.reduction is not None) + 2 * self.imagenet_stem


class Builder:
    """Creates the layers of a network."""

    def __init__(self, plan: Plan, options: ModelConfig) -> None:
        self.plan, self.options = plan, options
        self.cells = 0  # so far

    def conv(
        self, x: keras.KerasTensor, filters: int, size: int, name: str, norm: str, **kwargs: object
    ) -> keras.KerasTensor:
        """Apply a convolution without bias, and a normalization with a name of its own."""
        options = {"padding": "same", "use_bias": False, **kwargs}
        x = layers.Conv2D(filters, size, kernel_initializer=fan_out(), name=name, **options)(x)
        return self.normalized(x, norm)

    def normalized(self, x: keras.KerasTensor, name: str) -> keras.KerasTensor:
        """Batch normalization."""
        return self.plan.norm.layer(name, self.options)(x)

    def factorized(self, x: keras.KerasTensor, filters: int, stride: int, scope: str) -> keras.KerasTensor:
        """Change the filters and halve the grid, from even and odd positions.

        With stride 1 change the filters only.
        """
        if stride == 1:
            return self.conv(x, filters, 1, f"{scope}.path_conv", f"{scope}.path_bn")
        odd = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{scope}.pad")(x)
        odd = layers.Cropping2D(((1, 0), (1, 0)), name=f"{scope}.crop")(odd)
        paths = []
        for number, part in enumerate((x, odd), start=1):
            path = layers.AveragePooling2D(1, strides=stride, name=f"{scope}.path{number}_pool")(part)
            name = f"{scope}.path{number}_conv"
            path = layers.Conv2D(filters // 2, 1, use_bias=False, kernel_initializer=fan_out(), name=name)(path)
            paths.append(path)
        both = layers.Concatenate(name=f"{scope}.paths")(paths)
        return self.normalized(both, f"{scope}.final_path_bn")

    def cell(
        self,
        cell: Cell,
        last: keras.KerasTensor,
        before: keras.KerasTensor | None,
        scope: str,
        *,
        filters: int,
        stride: int,
    ) -> keras.KerasTensor:
        """Apply a cell and concatenate the states that it outputs."""
        states = [
            self.conv(relu(last, f"{scope}.relu"), filters, 1, f"{scope}.1x1", f"{scope}.beginning_bn"),
            self._fitted(before, last, filters, scope),
        ]
        for number, sides in enumerate(cell.sums):
            name, parts = f"{scope}.comb_iter_{number}", []
            for side, (operation, state) in zip(("left", "right"), sides, strict=True):
                grid = {"filters": filters, "stride": stride if state < 2 else 1}
                parts.append(self._applied(states[state], operation, f"{name}.{side}", **grid))
            states.append(layers.Add(name=f"{name}.combine")(parts))
        self.cells += 1
        ends, (_, _, width, channels) = [], states[-1].shape
        for number in cell.given:  # with the grid and filters of the last one
            x, into = states[number], f"{scope}.cell_output.reduction_{number}"
            fits = x.shape[1:] == states[-1].shape[1:]
            ends.append(x if fits else self.factorized(x, channels, 1 if x.shape[2] == width else 2, into))
        return layers.Concatenate(name=scope)(ends)

    def _fitted(
        self, before: keras.KerasTensor | None, last: keras.KerasTensor, filters: int, scope: str
    ) -> keras.KerasTensor:
        """Fit the earlier state to the last one's grid and the cell's filters; a first cell takes the last."""
        if before is None:
            return last
        if before.shape[2] != last.shape[2]:
            return self.factorized(relu(before, f"{scope}.prev_relu"), filters, 2, scope)
        if before.shape[-1] != filters:
            x = relu(before, f"{scope}.prev_relu")
            return self.conv(x, filters, 1, f"{scope}.prev_1x1", f"{scope}.prev_bn")
        return before

    def _applied(
        self, x: keras.KerasTensor, operation: str, scope: str, *, filters: int, stride: int
    ) -> keras.KerasTensor:
        if operation == "none":
            if stride == 1 and x.shape[-1] == filters:
                return x
            x = relu(x, f"{scope}.relu")
            return self.conv(x, filters, 1, f"{scope}.1x1", f"{scope}.bn_1", strides=stride)
        if operation.startswith("separable"):
            x = self._separable(x, int(operation[10]), scope, filters=filters, stride=stride)
        else:
            pool = layers.MaxPooling2D if operation.startswith("max") else layers.AveragePooling2D
            fitting = x.shape[-1] == filters
            x = pool(3, strides=stride, padding="same", name=f"{scope}.{operation}")(x)
            if not fitting:
                x = self.conv(x, filters, 1, f"{scope}.1x1", f"{scope}.bn_1")
        rate = self.plan.drop_path * (self.cells + 1) / self.plan.total_cells
        return DropPath(rate, self.plan.total_training_steps, name=f"{scope}.drop_path")(x) if rate else x

    def _separable(
        self, x: keras.KerasTensor, size: int, scope: str, *, filters: int, stride: int
    ) -> keras.KerasTensor:
        """Two separable convolutions, each after ReLU and followed by normalization."""
        for number in (1, 2):
            name = f"{size}x{size}_{number}"
            fixed = {"depthwise_initializer": fan_out(), "pointwise_initializer": fan_out(), "use_bias": False}
            separable = layers.SeparableConv2D(
                filters, size, strides=stride, padding="same", name=f"{scope}.separable_{name}", **fixed
            )
            x = separable(relu(x, f"{scope}.relu_{number}"))
            x, stride = self.normalized(x, f"{scope}.bn_sep_{name}"), 1
        return x


def relu(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    """ReLU."""
    return layers.ReLU(name=name)(x)


def network(plan: Plan, image: Shape, classes: int, options: ModelConfig) -> keras.Model:
    """Build a model from float32 [N, height, width, channels] to (auxiliary) logits [N, classes]."""
    images, builder = keras.Input(image, name="image"), Builder(plan, options)
    outputs = _stem(builder, images)  # outputs of the cells so far
    filters, x = plan.num_conv_filters, outputs[-1]
    for number in range(plan.num_cells):
        reduces = number in plan.reductions
        before = outputs[-2]
        if reduces:
            filters *= 2
            if plan.reduction is not None:
                scope = f"reduction_cell_{plan.reductions.index(number)}"
                x = builder.cell(plan.reduction, x, before, scope, filters=filters, stride=2)
                outputs.append(x)
                # The normal cell after a reduction takes the same earlier state, or the input of the reduction.
                before = before if plan.skip_reduction_layer_input else outputs[-2]
        stride = 2 if reduces and plan.reduction is None else 1
        x = builder.cell(plan.normal, x, before, f"cell_{number}", filters=filters, stride=stride)
        outputs.append(x)
    auxiliary = Auxiliary(
        layer=f"cell_{plan.reductions[1] - 1}", norm=plan.norm, initial=fan_out, last=fan_out, relu=True
    )
    aux = auxiliary.logits(keras.Model(images, x), classes, options)
    x = relu(x, "final_layer.relu")
    logits = pooled_logits(x, classes, options, dropout=plan.dropout, initial=fan_out)
    return keras.Model(images, {LOGITS: logits, AUX_LOGITS: aux}, name=options.name)


def _stem(builder: Builder, images: keras.KerasTensor) -> list[keras.KerasTensor | None]:
    plan = builder.plan
    if not plan.imagenet_stem:
        filters = int(plan.num_conv_filters * plan.stem_multiplier)
        return [None, builder.conv(images, filters, 3, "l1_stem_3x3", "l1_stem_bn")]
    x = builder.conv(images, int(32 * plan.stem_multiplier), 3, "conv0", "conv0_bn", strides=2, padding="valid")
    outputs = [None, x]
    for number, part in enumerate((4, 2)):
        x = builder.cell(
            plan.reduction or plan.normal,
            x,
            outputs[-2],
            f"cell_stem_{number}",
            filters=int(plan.num_conv_filters / part),
            stride=2,
        )
        outputs.append(x)
    return outputs


CIFAR = Plan(
    normal=NASNET_NORMAL, reduction=NASNET_REDUCTION, num_cells=18, num_conv_filters=32, stem_multiplier=3.0,
    imagenet_stem=False, skip_reduction_layer_input=False,
    norm=BatchNorm(decay=0.9, epsilon=1e-5, scale=True), dropout=0.0, drop_path=0.4,
    total_training_steps=937_500,
)  # fmt: skip
MOBILE = Plan(
    normal=NASNET_NORMAL, reduction=NASNET_REDUCTION, num_cells=12, num_conv_filters=44, stem_multiplier=1.0,
    imagenet_stem=True, skip_reduction_layer_input=False, norm=BatchNorm(decay=0.9997, scale=True),
    dropout=0.5, drop_path=0.0, total_training_steps=250_000,
)  # fmt: skip
_SKIPPING = replace(MOBILE, skip_reduction_layer_input=True)
LARGE = replace(_SKIPPING, num_cells=18, num_conv_filters=168, stem_multiplier=3.0, drop_path=0.3)
PNASNET_MOBILE = replace(_SKIPPING, normal=PNASNET, reduction=None, num_cells=9, num_conv_filters=54)
PNASNET_LARGE = replace(PNASNET_MOBILE, num_cells=12, num_conv_filters=216, stem_multiplier=3.0, drop_path=0.4)


def _architecture(plan: Plan, weight_decay: float) -> Architecture:
    return Architecture(
        network=partial(network, plan),
        weight_decay=weight_decay,
        decayed=("*kernel",),  # both kernels of separable convolutions
        head=(LOGITS, f"{AUX_LOGITS}*"),
    )


ARCHITECTURES: dict[str, Architecture] = {
    "nasnet_cifar": _architecture(CIFAR, 5e-4),
    "nasnet_mobile": _architecture(MOBILE, 4e-5),
    "nasnet_large": _architecture(LARGE, 5e-5),
    "pnasnet_mobile": _architecture(PNASNET_MOBILE, 4e-5),
    "pnasnet_large": _architecture(PNASNET_LARGE, 4e-5),
}
