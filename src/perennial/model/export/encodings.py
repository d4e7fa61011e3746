"""Which encoded images the graph of an export takes: those that it decodes as `perennial predict` does.

That leaves out JPEG in CMYK or rotated by EXIF, PNG in colours of 16 bits for a grey model, and other formats.
"""

from typing import NamedTuple

import tensorflow as tf

from perennial.base.config.data import DatasetConfig
from perennial.base.config.fields import is_component

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
HEAD = 1 << 16  # bytes that are searched for metadata
COLOUR = 25  # position of a PNG's colour type, behind its bits
DEEP = (b"\x10\x02", b"\x10\x06")  # bits and colour type: RGB and RGBA of 16 bits
ALPHA = (b"\x04", b"\x06")  # colour types
CMYK = 4  # components
# A TIFF block whose first directory, sorted by tag, has an orientation from 2 to 8. `\C` is a byte (RE2).
_LITTLE = (
    r"II\*\x00\x08\x00{3}\C{2}(?:(?:\C\x00|[\x00-\x11]\x01)\C{10})*"
    r"\x12\x01[\x03\x04]\x00\x01\x00{3}[\x02-\x08]\C*"
)
_BIG = (
    r"MM\x00\*\x00{3}\x08\C{2}(?:(?:\x00\C|\x01[\x00-\x11])\C{10})*"
    r"\x01\x12\x00(?:\x03\x00{3}\x01\x00|\x04\x00{3}\x01\x00{3})[\x02-\x08]\C*"
)
# In a JPEG as the first segment, or behind that of JFIF; in a PNG as a chunk.
ROTATED = rf"(?:\C{{6}}|\C{{6}}JFIF\C{{14}})Exif\x00\x00(?:{_LITTLE}|{_BIG})|\CPNG\C*eXIf(?:{_LITTLE}|{_BIG})"
KEYED, ANIMATED = r"\CPNG\C*tRNS\C*IDAT\C*", r"\CPNG\C*acTL\C*IDAT\C*"


class Takes(NamedTuple):
    """What a graph takes besides opaque images that it decodes as `perennial predict` does."""

    different: bool = False  # JPEG and PNG that it decodes otherwise: its records may hold such
    transparent: bool = True  # else `predict` composites them on white

    @classmethod
    def of(cls, dataset: DatasetConfig) -> "Takes":
        """What a model of a data set takes: at least what its records may hold."""
        own = is_component(dataset.name)
        return cls(
            different=own or dataset.name == "tfrecord", transparent=own or dataset.transparency == "drop"
        )


def checked(image: tf.Tensor, channels: int, takes: Takes) -> tf.Tensor:
    """Return an encoded image, a string, unless it is one that the graph refuses; `channels`: of the model."""
    head = tf.strings.substr(image, 0, HEAD)
    is_jpeg = tf.equal(tf.strings.substr(head, 0, len(JPEG)), JPEG)
    is_png = tf.equal(tf.strings.substr(head, 0, len(PNG)), PNG)
    text = "image must be a JPEG or PNG file; perennial predict and serve take other formats, too"
    checks = [_require(is_jpeg | is_png, text)]
    kind = tf.strings.substr(tf.strings.join([head, " " * (COLOUR + 1)]), COLOUR - 1, 2)
    if not takes.different:
        upright = ~tf.strings.regex_full_match(head, ROTATED)
        checks.append(_require(upright, "image is rotated by its EXIF orientation; turn it upright first"))
        still = ~tf.strings.regex_full_match(head, ANIMATED)
        checks.append(_require(still, "image is an animation"))
        components = tf.cond(is_jpeg, lambda: tf.io.extract_jpeg_shape(image)[2], lambda: 0)
        checks.append(_require(components != CMYK, "image is a JPEG in CMYK; convert it to RGB"))
        if channels == 1:
            deep = tf.reduce_any(tf.equal(kind, DEEP)) & is_png
            checks.append(_require(~deep, "image is a PNG in colours of 16 bits; convert it to 8 bits"))
    if not takes.transparent:
        alpha = tf.reduce_any(tf.equal(tf.strings.substr(kind, 1, 1), ALPHA)) & is_png
        opaque = ~(alpha | tf.strings.regex_full_match(head, KEYED))
        checks.append(_require(opaque, "image is transparent; composite it on white"))
    with tf.control_dependencies(checks):
        return tf.identity(image)


def _require(condition: tf.Tensor, text: str) -> tf.Operation:
    # tf.debugging.Assert would add functions whose names differ from call to call.
    return tf.raw_ops.Assert(condition=condition, data=[tf.constant(text)])
