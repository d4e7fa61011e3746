# Origin: research/slim/nets/nasnet of github.com/tensorflow/models (Apache-2.0):
# the networks, to compare ours with.
"""NASNets computed with plain TensorFlow as slim does (research/slim/nets/nasnet)."""

import tensorflow as tf
from slim_graphs import Graph, dense

# Operations and states of the sums of a cell, in pairs, and the states that are used inside alone.
NORMAL = (
    "separable_5 separable_3 separable_5 separable_3 avg none avg avg separable_3 none",
    (0, 1, 1, 1, 0, 1, 1, 1, 0, 0),
    (0,),
)
REDUCTION = (
    "separable_5 separable_7 max separable_7 avg separable_5 none avg separable_3 max",
    (0, 1, 0, 1, 0, 1, 3, 2, 2, 0),
    (0, 1, 2),
)
PNASNET = (
    "separable_5 max separable_7 max separable_5 separable_3 separable_3 max separable_3 none",
    (1, 1, 0, 0, 0, 0, 4, 0, 1, 0),
    (0, 1),
)
Cell = tuple[str, tuple[int, ...], tuple[int, ...]]


def separable(graph: Graph, images: tf.Tensor, scope: str, size: int, filters: int, stride: int) -> tf.Tensor:
    for number in (1, 2):
        name, channels = f"{size}x{size}_{number}", images.shape[-1]
        deep = graph.variable(f"{scope}/separable_{name}/depthwise_weights", size, size, channels, 1)
        wide = graph.variable(f"{scope}/separable_{name}/pointwise_weights", 1, 1, channels, filters)
        steps = (1, stride, stride, 1) if number == 1 else (1, 1, 1, 1)
        images = tf.nn.separable_conv2d(tf.nn.relu(images), deep, wide, steps, "SAME")
        images = graph.normalized(images, f"{scope}/bn_sep_{name}")
    return images


def reduced(graph: Graph, images: tf.Tensor, scope: str, filters: int, stride: int) -> tf.Tensor:
    if stride == 1:
        return graph.conv(images, f"{scope}/path_conv", filters, norm=f"{scope}/path_bn")
    odd = tf.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0)))[:, 1:, 1:]
    paths = []
    for number, part in enumerate((images, odd), 1):
        weights = graph.variable(f"{scope}/path{number}_conv/weights", 1, 1, images.shape[-1], filters // 2)
        paths.append(tf.nn.conv2d(part[:, ::2, ::2], weights, 1, "VALID"))
    both = tf.concat([path[:, : paths[0].shape[1], : paths[0].shape[2]] for path in paths], -1)
    return graph.normalized(both, f"{scope}/final_path_bn")


def operated(
    graph: Graph, images: tf.Tensor, operation: str, scope: str, filters: int, stride: int
) -> tf.Tensor:
    if operation.startswith("separable"):
        return separable(graph, images, scope, int(operation[-1]), filters, stride)
    fits = images.shape[-1] == filters
    if operation == "none":
        if stride == 1 and fits:
            return images
        return graph.conv(tf.nn.relu(images), f"{scope}/1x1", filters, stride=stride, norm=f"{scope}/bn_1")
    pool = tf.nn.max_pool2d if operation == "max" else tf.nn.avg_pool2d
    images = pool(images, 3, stride, "SAME")
    return images if fits else graph.conv(images, f"{scope}/1x1", filters, norm=f"{scope}/bn_1")


def cell_of_nasnet(
    graph: Graph, cell: Cell, cells: list[tf.Tensor], scope: str, filters: int, stride: int
) -> tf.Tensor:
    operations, states, inside = cell
    before, last = cells[-2:]
    if before is None:
        before = last
    elif before.shape[2] != last.shape[2]:
        before = reduced(graph, tf.nn.relu(before), scope, filters, 2)
    elif before.shape[-1] != filters:
        before = graph.conv(tf.nn.relu(before), f"{scope}/prev_1x1", filters, norm=f"{scope}/prev_bn")
    first = graph.conv(tf.nn.relu(last), f"{scope}/1x1", filters, norm=f"{scope}/beginning_bn")
    found, names = [first, before], operations.split()
    for number in range(5):
        sides = []
        for side, place in (("left", 2 * number), ("right", 2 * number + 1)):
            name, state = f"{scope}/comb_iter_{number}/{side}", states[place]
            step = stride if state < 2 else 1
            sides.append(operated(graph, found[state], names[place], name, filters, step))
        found.append(sides[0] + sides[1])
    for number, each in enumerate(found):
        if number not in inside and each.shape != found[-1].shape:
            step = 1 if each.shape[2] == found[-1].shape[2] else 2
            name = f"{scope}/cell_output/reduction_{number}"
            found[number] = reduced(graph, each, name, found[-1].shape[-1], step)
    return tf.concat([each for number, each in enumerate(found) if number not in inside], -1)


def classified(graph: Graph, cells: list[tf.Tensor], auxiliary: int, auxiliary_cell: tf.Tensor) -> tf.Tensor:
    """The logits of a NASNet from its last cell; uses the variables of its auxiliary classifier, too."""
    scope = f"aux_{auxiliary}/aux_logits"
    images = tf.nn.avg_pool2d(tf.nn.relu(auxiliary_cell), 5, 3, "VALID")
    images = graph.conv(images, f"{scope}/proj", 128, tf.nn.relu, norm=f"{scope}/aux_bn0")
    size = (images.shape[1], images.shape[2])
    norm = f"{scope}/aux_bn1"
    images = graph.conv(images, f"{scope}/Conv", 768, tf.nn.relu, size=size, padding="VALID", norm=norm)
    dense(graph, images[:, 0, 0], f"{scope}/FC")
    return dense(graph, tf.reduce_mean(tf.nn.relu(cells[-1]), (1, 2)), "final_layer/FC")


def nasnet(graph: Graph, cells: list[tf.Tensor], filters: int, each: int, *, skip: bool = False) -> tf.Tensor:
    """The logits after three times `each` normal cells, with a reduction before the second and third group."""
    numbered = []
    for number in range(3 * each):
        before = cells[-2]
        if number in (each, 2 * each):
            filters *= 2
            scope = f"reduction_cell_{number // each - 1}"
            cells.append(cell_of_nasnet(graph, REDUCTION, cells, scope, filters, 2))
            before = before if skip else cells[-2]
        cells.append(cell_of_nasnet(graph, NORMAL, [before, cells[-1]], f"cell_{number}", filters, 1))
        numbered.append(cells[-1])
    return classified(graph, cells, 2 * each - 1, numbered[2 * each - 1])


def stem(graph: Graph, images: tf.Tensor, cell: Cell, channels: int, filters: int) -> list[tf.Tensor]:
    """The states before the first cell of a network for ImageNet."""
    first = graph.conv(images, "conv0", channels, size=3, stride=2, padding="VALID", norm="conv0_bn")
    cells: list[tf.Tensor] = [None, first]
    for number, part in enumerate((4, 2)):
        scope = f"cell_stem_{number}"
        cells.append(cell_of_nasnet(graph, cell, cells, scope, filters // part, 2))
    return cells


def nasnet_cifar(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    first = graph.conv(images, "l1_stem_3x3", 96, size=3, norm="l1_stem_bn")
    return nasnet(graph, [None, first], 32, 6)


def nasnet_mobile(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    return nasnet(graph, stem(graph, images, REDUCTION, 32, 44), 44, 4)


def nasnet_large(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    return nasnet(graph, stem(graph, images, REDUCTION, 96, 168), 168, 6, skip=True)


def pnasnet(graph: Graph, cells: list[tf.Tensor], filters: int, each: int) -> tf.Tensor:
    """The logits after three times `each` cells, of which the first of the second and third group reduce."""
    for number in range(3 * each):
        stride = 2 if number in (each, 2 * each) else 1
        filters *= stride
        cells.append(cell_of_nasnet(graph, PNASNET, cells, f"cell_{number}", filters, stride))
    return classified(graph, cells, 2 * each - 1, cells[-1 - each])


def pnasnet_mobile(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    return pnasnet(graph, stem(graph, images, PNASNET, 32, 54), 54, 3)


def pnasnet_large(graph: Graph, images: tf.Tensor, _: object) -> tf.Tensor:
    return pnasnet(graph, stem(graph, images, PNASNET, 96, 216), 216, 4)
