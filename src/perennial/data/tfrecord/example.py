"""Build and parse tf.Example messages with slim's five keys, without TensorFlow.

Keys: slim's datasets/dataset_utils.py; unlike there, a missing label is an error. Keys of annotations:
datasets/imagenet.py and download_and_convert_visualwakewords_lib.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from perennial.base.errors import DataError
from perennial.data.images import Annotations, Box, Image
from perennial.data.tfrecord import framing
from perennial.data.tfrecord.label_arrays import Label

FORMATS = ("png", "jpg", "jpeg")
ENCODED, LABEL = "image/encoded", "image/class/label"
# The tags of length-delimited fields: field number << 3 | 2.
FEATURES, FEATURE, MAP_KEY, MAP_VALUE, BYTES_LIST, VALUE = b"\x0a", b"\x0a", b"\x0a", b"\x12", b"\x0a", b"\x0a"
FLIPPED = bytes(byte ^ 0xFF for byte in range(256))
# As in tensorflow/core/example/example.proto and feature.proto.
DESCRIPTOR = """
name: "example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: "BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: "FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: "Int64List" oneof_index: 0 } }
message_type { name: "Features"
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING }
    field { name: "value" number: 2 type: TYPE_MESSAGE type_name: "Feature" } }
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "FeatureEntry" } }
message_type { name: "Example"
  field { name: "features" number: 1 type: TYPE_MESSAGE type_name: "Features" } }
"""


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a record besides its encoded image."""

    labels: tuple[int, ...]
    format: str
    height: int  # pixels
    width: int  # pixels
    filename: str | None = None

    @property
    def label(self) -> int:
        """The only label."""
        if len(self.labels) != 1:
            raise ValueError(f"{LABEL} has {len(self.labels)} values, expected 1")
        return self.labels[0]


def serialize(image: Image, label: Label) -> bytes:
    """Return the data of a record: keys in alphabetical order, so that equal examples give equal bytes."""
    before, after = around(image, label)
    return b"".join((before, image.encoded, after))


def around(image: Image, label: Label) -> tuple[bytes, bytes]:
    """The data of a record before and after the encoded image, of which only the length matters."""
    entries = {
        LABEL: _entry(LABEL, "int64_list", label),
        "image/format": _entry("image/format", "bytes_list", image.format.encode()),
        "image/height": _entry("image/height", "int64_list", image.height),
        "image/width": _entry("image/width", "int64_list", image.width),
    }
    if image.filename is not None:
        name = image.filename.encode("utf-8", "surrogateescape")
        entries["image/filename"] = _entry.__wrapped__("image/filename", "bytes_list", name)
    if image.annotations is not None:
        features = Example().features
        _annotate(features.feature, image.annotations, label)
        entries |= {key: _serialized({key: features.feature[key]}) for key in features.feature}
    size = len(image.encoded)
    start = b""
    for tag in (VALUE, BYTES_LIST, MAP_VALUE):
        start = tag + _varint(len(start) + size) + start
    start = MAP_KEY + _varint(len(ENCODED)) + ENCODED.encode() + start
    start = FEATURE + _varint(len(start) + size) + start
    before = b"".join(entries[key] for key in sorted(entries) if key < ENCODED) + start
    after = b"".join(entries[key] for key in sorted(entries) if key > ENCODED)
    return FEATURES + _varint(len(before) + size + len(after)) + before, after


@lru_cache(maxsize=65_536)
def _entry(key: str, kind: str, value: Label | bytes) -> bytes:
    """Serialize a feature with a value, or with labels, as an entry of the map of features."""
    feature = Feature()
    values = getattr(feature, kind)
    values.SetInParent()  # also without values
    values.value.extend(value if isinstance(value, tuple) else (value,))
    return _serialized({key: feature})


def _serialized(features: Mapping[str, Any]) -> bytes:
    data: bytes = Features(feature=features).SerializeToString()
    return data


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _annotate(features: Any, annotations: Annotations, label: Label) -> None:
    """Add the keys of annotations; box keys are added even without boxes, as in slim."""
    for name in Box._fields:
        key = features[f"image/object/bbox/{name}"].float_list
        key.value.extend(getattr(box, name) for box in annotations.boxes)
        key.SetInParent()
    objects = features["image/object/class/label"].int64_list
    # Of several labels, nothing says which are those of the boxes.
    objects.value.extend([label] * len(annotations.boxes) if isinstance(label, int) else ())
    objects.SetInParent()
    if annotations.areas is not None:
        features["image/object/area"].float_list.value.extend(annotations.areas)
        features["image/object/area"].float_list.SetInParent()
    if annotations.text is not None:
        features["image/class/text"].bytes_list.value.append(annotations.text.encode())


def parse(data: bytes) -> tuple[Fields, bytes]:
    """Parse the fields of a record and its encoded image."""
    features = features_of(data)
    fields = Fields(
        labels=tuple(values_of(features, LABEL, "int64_list")),
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


def in_order(file: Path) -> Iterator[tuple[Fields, bytes]]:
    """Yield the fields and the encoded image of each record of a checked file."""
    try:
        with file.open("rb") as stream:
            spans, _ = framing.scan(stream, file.stat().st_size)
            for offset, length in spans.tolist():
                stream.seek(offset + framing.HEADER.size)
                yield parse(stream.read(length))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}; `dvc repro` restores its records") from error


def image_span(data: bytes, fields: Fields, encoded: bytes) -> tuple[int, int] | None:
    """The start and stop of the image in the data of a record that was parsed; None if ambiguous."""
    start = data.find(encoded)
    stop = start + len(encoded)
    # The same bytes may occur earlier in the record: replace them and check that the image changes.
    other = encoded.translate(FLIPPED)
    try:
        proof = parse(data[:start] + other + data[stop:])
    except ValueError:
        return None
    return (start, stop) if encoded and proof == (fields, other) else None


def features_of(data: bytes) -> Any:
    """Parse the features of a tf.Example, by key."""
    example = Example()
    try:
        example.ParseFromString(data)
    except DecodeError as error:
        raise ValueError(f"not a tf.Example: {error}") from error
    return example.features.feature


def only(features: Any, key: str, kind: str) -> Any:
    """Return the single value of a feature."""
    values = values_of(features, key, kind)
    if len(values) != 1:
        raise ValueError(f"{key} has {len(values)} values, expected 1")
    return values[0]


def values_of(features: Any, key: str, kind: str) -> Any:
    """Return the values of a feature."""
    if key not in features:
        raise ValueError(f"{key} is missing")
    found = features[key].WhichOneof("kind")
    if found != kind:
        raise ValueError(f"{key} is {found or 'empty'}, expected {kind}")
    return getattr(features[key], kind).value


def _message_classes() -> tuple[Any, ...]:
    """Build the classes of tensorflow.Example in a separate descriptor pool; TensorFlow uses the default."""
    file = text_format.Parse(DESCRIPTOR, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("tensorflow.Example", "tensorflow.Features", "tensorflow.Feature")
    return tuple(message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)


Example, Features, Feature = _message_classes()
