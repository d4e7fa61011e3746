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
KNOWN = 65_536  # record layouts that are remembered
FLIPPED = bytes(byte ^ 0xFF for byte in range(256))


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a record besides its encoded image."""

    label: int
    format: str
    height: int  # pixels
    width: int  # pixels
    filename: str | None = None


def serialize(image: Image, label: int) -> bytes:
    """The data of a record: keys in alphabetical order, so that equal examples are equal bytes."""
    example = _Example()
    features = example.features.feature
    features["image/encoded"].bytes_list.value.append(image.encoded)
    features["image/format"].bytes_list.value.append(image.format.encode())
    features["image/class/label"].int64_list.value.append(label)
    features["image/height"].int64_list.value.append(image.height)
    features["image/width"].int64_list.value.append(image.width)
    if image.filename is not None:
        features["image/filename"].bytes_list.value.append(image.filename.encode("utf-8", "surrogateescape"))
    data: bytes = example.SerializeToString(deterministic=True)
    return data


class Serializer:
    """Serializes many examples, faster than `serialize` where only the image differs from an earlier one."""

    def __init__(self, known: int = KNOWN) -> None:
        self._most = known
        self._around: dict[tuple[int, int, str, int, int], tuple[bytes, bytes]] = {}

    def __call__(self, image: Image, label: int) -> bytes:
        """The data of a record, as `serialize` gives it."""
        encoded, kind, height, width, filename = image
        key = (len(encoded), label, kind, height, width)
        around = self._around.get(key) if filename is None else None
        if around is not None:
            return around[0] + encoded + around[1]
        data = serialize(image, label)
        if filename is None and len(self._around) < self._most:
            fields = Fields(label=label, format=kind, height=height, width=width)
            if (span := image_span(data, fields, encoded)) is not None:
                self._around[key] = data[: span[0]], data[span[1] :]
        return data


def parse(data: bytes) -> tuple[Fields, bytes]:
    """The fields of a record and its encoded image.

    Raises:
        ValueError: the data are not a tf.Example, or a key is missing, empty or of another type; the
            message names the key, the expected and the found.
    """
    features = features_of(data)
    fields = Fields(
        label=only(features, "image/class/label", "int64_list"),
        format=only(features, "image/format", "bytes_list").decode("ascii", "replace"),
        height=only(features, "image/height", "int64_list"),
        width=only(features, "image/width", "int64_list"),
        filename=only(features, "image/filename", "bytes_list").decode("utf-8", "replace")
        if "image/filename" in features
        else None,
    )
    if fields.format not in FORMATS:
        raise ValueError(f"image/format is {fields.format!r}, expected {' or '.join(FORMATS)}")
    return fields, only(features, "image/encoded", "bytes_list")


def image_span(data: bytes, fields: Fields, encoded: bytes) -> tuple[int, int] | None:
    """Start and stop of the encoded image in the data of a record; None if they are ambiguous.

    Replacing the bytes between them changes the image and no field, since the parse of a length-delimited value
    does not depend on its content. `fields` and `encoded` are the result of `parse`.
    """
    start = data.find(encoded)
    stop = start + len(encoded)
    # The same bytes may occur earlier in the record: replace them and see whether the image changes.
    other = encoded.translate(FLIPPED)
    try:
        proof = parse(data[:start] + other + data[stop:])
    except ValueError:
        return None
    return (start, stop) if encoded and proof == (fields, other) else None


def features_of(data: bytes) -> Any:
    """The features of a tf.Example by key.

    Raises:
        ValueError: the data are not a tf.Example.
    """
    example = _Example()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a tf.Example: {error}") from error
    return example.features.feature


def only(features: Any, key: str, kind: str) -> Any:
    """The only value of a feature.

    Raises:
        ValueError: the feature is missing, of another type or has another number of values.
    """
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
    """The class tensorflow.Example, in a separate descriptor pool since TensorFlow fills the default one."""
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
