"""tf.Example with slim's five keys, built and parsed without TensorFlow.

The messages are declared to the protobuf runtime field by field, as in tensorflow/core/example/example.proto
and feature.proto. Keys: slim's datasets/dataset_utils.py; unlike there, a missing label is an error.
"""

from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from perennial.images import Image

FORMATS = ("png", "jpg", "jpeg")


@dataclass(frozen=True, kw_only=True)
class ParsedExample:
    """The content of a record."""

    image: Image
    label: int


def serialize(image: Image, label: int) -> bytes:
    """A record's data: keys in alphabetical order, so that equal examples are equal bytes."""
    example = _Example()
    features = example.features.feature
    features["image/encoded"].bytes_list.value.append(image.encoded)
    features["image/format"].bytes_list.value.append(image.format.encode())
    features["image/class/label"].int64_list.value.append(label)
    features["image/height"].int64_list.value.append(image.height)
    features["image/width"].int64_list.value.append(image.width)
    data: bytes = example.SerializeToString(deterministic=True)
    return data


def parse(data: bytes) -> ParsedExample:
    """The content of a record.

    Raises:
        ValueError: the data are no tf.Example, or a key is missing, empty or of another type; the
            message names the key, what was expected and what was found.
    """
    example = _Example()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a tf.Example: {error}") from error
    features = example.features.feature
    image = Image(
        encoded=_only(features, "image/encoded", "bytes_list"),
        format=_only(features, "image/format", "bytes_list").decode("ascii", "replace"),
        height=_only(features, "image/height", "int64_list"),
        width=_only(features, "image/width", "int64_list"),
    )
    if image.format not in FORMATS:
        raise ValueError(f"image/format is {image.format!r}, expected {' or '.join(FORMATS)}")
    return ParsedExample(image=image, label=_only(features, "image/class/label", "int64_list"))


def _only(features: Any, key: str, kind: str) -> Any:
    """The one value of a feature."""
    if key not in features:
        raise ValueError(f"{key} is missing")
    found = features[key].WhichOneof("kind")
    if found != kind:
        raise ValueError(f"{key} is {found or 'empty'}, expected {kind}")
    values = getattr(features[key], kind).value
    if len(values) != 1:
        raise ValueError(f"{key} has {len(values)} values, expected 1")
    return values[0]


def _example_class() -> Any:
    """The generated class of tensorflow.Example, in a pool of its own: TensorFlow fills the default one."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(name: str) -> Any:
        return file.message_type.add(name=name)

    def field(owner: Any, name: str, number: int, kind: Any, *, of: str = "", repeated: bool = False) -> Any:
        label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
        type_name = f".tensorflow.{of}" if of else None
        return owner.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)

    lists = {
        "BytesList": kinds.TYPE_BYTES,
        "FloatList": kinds.TYPE_FLOAT,
        "Int64List": kinds.TYPE_INT64,
    }
    for name, kind in lists.items():
        field(message(name), "value", 1, kind, repeated=True)
    feature = message("Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(lists, start=1):
        attribute = name.replace("List", "_list").lower()
        field(feature, attribute, number, kinds.TYPE_MESSAGE, of=name).oneof_index = 0
    features = message("Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, kinds.TYPE_STRING)
    field(entry, "value", 2, kinds.TYPE_MESSAGE, of="Feature")
    field(features, "feature", 1, kinds.TYPE_MESSAGE, of="Features.FeatureEntry", repeated=True)
    field(message("Example"), "features", 1, kinds.TYPE_MESSAGE, of="Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


_Example = _example_class()
