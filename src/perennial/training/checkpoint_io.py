"""One checkpoint on disk: the variables of a training at one step, with a digest of every file."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from perennial import files
from perennial.errors import DataError

FILE = "checkpoint.json"
VARIABLES = "variables"  # prefix of TensorFlow's files
SHOWN = 3  # names in a message
Variables = Mapping[str, Sequence[tf.Variable]]  # of Keras or TensorFlow, by group: weights, optimizers ...


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The variables after some steps, and the other facts that a training needs to continue."""

    step: int
    facts: dict[str, Any]
    values: dict[str, Any]  # arrays by `group/name`

    def group(self, name: str) -> dict[str, Any]:
        """The arrays of one group, by the names of its variables."""
        prefix = f"{name}/"
        return {key.removeprefix(prefix): value for key, value in self.values.items() if key.startswith(prefix)}

    def restore(self, variables: Variables) -> None:
        """Assign the values to variables of equal names, types and shapes.

        Raises:
            DataError: one is missing, unexpected or different; no variable is changed.
        """
        targets = named(variables)
        problems = _differences(_specs(self.values), _specs(targets))
        if problems:
            raise DataError(
                f"the checkpoint of step {self.step} is of another model or optimizer: {'; '.join(problems)}; "
                "nothing was restored and it stays; train with the code and parameters of that checkpoint"
            )
        for name, variable in targets.items():
            variable.assign(self.values[name])


def named(variables: Variables) -> dict[str, tf.Variable]:
    """The variables by `group/name`; the second of an equal name in a group is `name#2`."""
    found: dict[str, tf.Variable] = {}
    for group, members in variables.items():
        seen: Counter[str] = Counter()
        for variable in members:
            # Keras' short names repeat from layer to layer; its paths do not.
            name = getattr(variable, "path", variable.name).removesuffix(":0")
            seen[name] += 1
            found[f"{group}/{name}" + (f"#{seen[name]}" if seen[name] > 1 else "")] = variable
    return found


def take(step: int, variables: Variables, facts: dict[str, Any]) -> Snapshot:
    """Copy the variables to the host; later steps do not change the copy.

    Of mirrored variables it takes the value of one replica. On a CPU nothing is copied until the next step.

    Raises:
        ValueError: the facts are not JSON.
    """
    facts = json.loads(files.json_bytes(facts))
    with tf.device("CPU:0"):
        values = {name: tf.identity(variable) for name, variable in named(variables).items()}
    return Snapshot(step=step, facts=facts, values=values)


def write(folder: Path, snapshot: Snapshot) -> int:
    """Write a checkpoint completely or not at all, on the disk before it gets its name; returns its bytes.

    The files are those of `tf.train.Checkpoint`, without its object graph, which took ten times as long
    as the values of 3,000 variables; `tf.train.load_checkpoint` reads them.

    Raises:
        OSError, tf.errors.OpError: the disk is full, broken or read-only; nothing remains.
    """
    with files.new_folder(folder) as new:
        with tf.device("CPU:0"):
            tf.raw_ops.SaveV2(
                prefix=str(new / VARIABLES),
                tensor_names=list(snapshot.values),
                shape_and_slices=[""] * len(snapshot.values),
                tensors=list(snapshot.values.values()),
            )
        sizes = {path.name: path.stat().st_size for path in sorted(new.iterdir())}
        written = {name: {"bytes": size, "sha256": files.sha256(new / name)} for name, size in sizes.items()}
        files.write_bytes(new / FILE, _sealed(step=snapshot.step, files=written, facts=snapshot.facts))
    return sum(sizes.values())


def read(folder: Path, group: str | None = None) -> Snapshot:
    """Read a checkpoint and verify every byte; `group` limits the values to one group.

    Raises:
        DataError: a file is missing or differs from what was written.
    """
    description = _description(folder)
    for name, expected in description["files"].items():
        _verify(folder / name, expected["bytes"], expected["sha256"])
    try:
        with files.plainly_named(folder) as plain:
            reader = tf.train.load_checkpoint(str(plain / VARIABLES))
            names = sorted(reader.get_variable_to_shape_map())
            chosen = [name for name in names if group is None or name.startswith(f"{group}/")]
            values = {name: reader.get_tensor(name) for name in chosen}
    except (OSError, RuntimeError, tf.errors.OpError) as error:
        raise DataError(f"{folder} cannot be read: {reason(error)}") from error
    return Snapshot(step=description["step"], facts=description["facts"], values=values)


def reason(error: Exception) -> str:
    """The message of the operating system, without TensorFlow's operation names."""
    text = error.message if isinstance(error, tf.errors.OpError) else str(error)
    return str(text).rpartition("}} ")[2].partition(" [Op:")[0]


def _sealed(**description: object) -> bytes:
    """The description with its own digest, since no other file covers the step and the facts."""
    return files.json_bytes(
        {**description, "sha256": hashlib.sha256(files.json_bytes(description)).hexdigest()}
    )


def _description(folder: Path) -> dict[str, Any]:
    file = folder / FILE
    try:
        content = file.read_bytes()
        found = json.loads(content)
        description = {name: found[name] for name in ("step", "files", "facts")}
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise DataError(f"{file} is not a description of a checkpoint") from error
    if content != _sealed(**description):
        raise DataError(f"{file} was changed: its own sha256 does not match")
    return description


def _verify(file: Path, size: int, digest: str) -> None:
    try:
        found_size, found = file.stat().st_size, files.sha256(file)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    if found_size != size:
        raise DataError(f"{file} has {found_size} bytes, expected {size}")
    if found != digest:
        raise DataError(f"{file} has sha256 {found}, expected {digest}")


def _specs(arrays: Mapping[str, Any]) -> dict[str, str]:
    """Type and shape of each array or variable, as in `float32[3, 4]`."""
    return {name: f"{tf.as_dtype(one.dtype).name}{list(one.shape)}" for name, one in arrays.items()}


def _differences(saved: dict[str, str], expected: dict[str, str]) -> list[str]:
    """The differences between saved and expected variables, one line per kind."""
    different = [
        f"{name} is {saved[name]}, expected {expected[name]}"
        for name in saved.keys() & expected.keys()
        if saved[name] != expected[name]
    ]
    kinds = {
        "missing": sorted(expected.keys() - saved.keys()),
        "not expected": sorted(saved.keys() - expected.keys()),
        "different": sorted(different),
    }
    return [
        f"{len(names)} {kind}: {', '.join(names[:SHOWN])}{' ...' if len(names) > SHOWN else ''}"
        for kind, names in kinds.items()
        if names
    ]
