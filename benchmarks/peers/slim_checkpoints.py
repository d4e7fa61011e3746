"""What slim's networks that tf-slim lacks compute, as JSON: `python benchmarks/peers/slim_checkpoints.py`.

Its output belongs into tests/model/models/data/slim_graphs.json. Names of networks restrict it to these.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))

import slim_graphs
import slim_nasnets
import slim_values
from slim_graphs import Graph

# Scope, network, width or size of it, and the side of the images.
NETWORKS = {
    "nasnet_cifar": ("", slim_nasnets.nasnet_cifar, None, 32),
    "nasnet_mobile": ("", slim_nasnets.nasnet_mobile, None, 224),
    "nasnet_large": ("", slim_nasnets.nasnet_large, None, 331),
    "pnasnet_mobile": ("", slim_nasnets.pnasnet_mobile, None, 224),
    "pnasnet_large": ("", slim_nasnets.pnasnet_large, None, 331),
    "inception_v4": ("InceptionV4", slim_graphs.inception_v4, None, 299),
    "inception_resnet_v2": ("InceptionResnetV2", slim_graphs.inception_resnet_v2, None, 299),
    "mobilenet_v1": ("MobilenetV1", slim_graphs.mobilenet_v1, 1, 64),
    "mobilenet_v1_050": ("MobilenetV1", slim_graphs.mobilenet_v1, 0.5, 64),
    "mobilenet_v2": ("MobilenetV2", slim_graphs.mobilenet_v2, 1, 64),
    "mobilenet_v2_035": ("MobilenetV2", slim_graphs.mobilenet_v2, 0.35, 64),
    "mobilenet_v2_140": ("MobilenetV2", slim_graphs.mobilenet_v2, 1.4, 64),
    "mobilenet_v3_large": ("MobilenetV3", slim_graphs.mobilenet_v3, "large", 64),
    "mobilenet_v3_small": ("MobilenetV3", slim_graphs.mobilenet_v3, "small", 64),
}


def computed(name: str) -> dict[str, object]:
    """Names and sizes of the variables, their weights, and every 50th logit of two images."""
    scope, network, variant, size = NETWORKS[name]
    with_gamma = name not in {"inception_v4", "inception_resnet_v2"}
    graph = Graph(scope, gamma=with_gamma, epsilon=1e-5 if name == "nasnet_cifar" else 1e-3)
    logits = network(graph, tf.constant(slim_values.images(size)), variant).numpy()
    lines = sorted(f"{each} {value.size}\n" for each, value in graph.values.items())
    return {
        "size": size,
        "variables": hashlib.sha256("".join(lines).encode()).hexdigest(),
        "weights": sum(value.size for value in graph.values.values()),
        "largest": float(f"{np.abs(logits).max():.7g}"),
        "logits": [[float(f"{each:.7g}") for each in row[::50]] for row in logits],
    }


if __name__ == "__main__":
    for number, each in enumerate(names := sys.argv[1:] or list(NETWORKS)):  # a line for each network
        start, end = "{" * (number == 0), "}" if each == names[-1] else ","
        print(f"{start}{json.dumps(each)}: {json.dumps(computed(each))}{end}", flush=True)
