"""A snapshot: the variables of a training after a step, copied to the host, and put back.

Checkpoints are snapshots on disk.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from perennial.base import files
from perennial.base.errors import DataError

SHOWN = 3  # names listed in a message
Variables = Mapping[str, Sequence[tf.Variable]]  # of Keras or TensorFlow, by group: weights, optimizers ...


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The variables after a step, and the facts that a training needs to continue."""

    step: int
    facts: dict[str, Any]
    values: dict[str, Any]  # arrays by `group/name`

    def group(self, name: str) -> dict[str, Any]:
        """The arrays of one group, by the names of its variables."""
        prefix = f"{name}/"
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}

    def restore(self, variables: Variables) -> None:
        """Assign the values to variables with the same names, types and shapes."""
        targets = named(variables)
        if problems := _differences(_specs(self.values), _specs(targets)):
            raise DataError(
                f"the checkpoint of step {self.step} is of another model or optimizer: {'; '.join(problems)}; "
                "nothing was restored and it stays; train with the code and parameters of that checkpoint"
            )
        for name, variable in targets.items():
            variable.assign(self.values[name])


def named(variables: Variables) -> dict[str, tf.Variable]:
    """Name the variables `group/name`; the second one with an equal name in a group is `name#2`."""
    found: dict[str, tf.Variable] = {}
    for group, members in variables.items():
        seen: Counter[str] = Counter()
        for variable in members:
            # Keras repeats short names across layers; paths are unique.
            name = getattr(variable, "path", variable.name).removesuffix(":0")
            seen[name] += 1
            found[f"{group}/{name}" + (f"#{seen[name]}" if seen[name] > 1 else "")] = variable
    return found


def _specs(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Type and shape of each array or variable, as in `float32[3, 4]`."""
    return {name: f"{tf.as_dtype(one.dtype).name}{list(one.shape)}" for name, one in arrays.items()}


def _differences(saved: dict[str, str], expected: dict[str, str]) -> list[str]:
    """The differences between saved and expected variables, one line per kind."""
    both = saved.keys() & expected.keys()
    different = [name for name in both if saved[name] != expected[name]]
    kinds = {
        "missing": expected.keys() - both,
        "not expected": saved.keys() - both,
        "different": [f"{name} is {saved[name]}, expected {expected[name]}" for name in different],
    }
    return [
        f"{len(names)} {kind}: {', '.join(sorted(names)[:SHOWN])}{' ...' if len(names) > SHOWN else ''}"
        for kind, names in kinds.items()
        if names
    ]


def take_snapshot(step: int, variables: Variables, facts: dict[str, Any]) -> Snapshot:
    """Copy the variables to the host, so that later steps do not change them; ValueError: facts are not JSON.

    Of mirrored variables it takes the value of one replica. On a CPU it is copied only when a step changes it.
    """
    facts = json.loads(files.json_bytes(facts))
    with tf.device("CPU:0"):
        values = {name: tf.identity(variable) for name, variable in named(variables).items()}
    return Snapshot(step=step, facts=facts, values=values)
