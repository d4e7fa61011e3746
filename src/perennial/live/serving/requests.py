"""Requests and responses in the format of TensorFlow Serving's REST API, within limits.

    {"instances": [image, ...]}  or  {"inputs": [image, ...]}     :predict, by row or by column
    {"examples": [{"image": image}, ...]}                         :classify, answered with names

    a JPEG, HEIC, PNG, WebP, AVIF or BMP file                     the same as one instance or example

An image is `{"b64": file}` or nested lists of pixels [height, width, channels], 0 to 255, alone or as the value
of `image`. Without `signature_name`, the kind of image determines the signature.
"""

import base64
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from perennial.base.choices import Transparency
from perennial.base.errors import printable
from perennial.data.images import BadImage, Refused, accept, decode
from perennial.model.inference import image_inputs
from perennial.model.inference.image_inputs import ImageSource, PixelBudget

FILES, PIXELS = "classify_bytes", "classify"
SIGNATURES = {"": (FILES, PIXELS), "serving_default": (FILES, PIXELS), FILES: (FILES,), PIXELS: (PIXELS,)}
NAME = "image"  # of the only input of both signatures
COUNTED_BYTES = 1 << 20  # at a time
SHOWN = 40  # characters of a name in a message
Verb = Literal["predict", "classify"]
Form = Literal["row", "column", "classify"]
Probabilities = NDArray[np.float32]  # [classes]
Answer = str | tuple[str, ...]  # of one label an image, or of several
ImageRequest = tuple[Sequence[ImageSource], Form]  # the images of a request, and the format of the response


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """Limits of a server; most of them bound its memory use."""

    request_bytes: int = 32 << 20  # of a body
    held_bytes: int = 256 << 20  # of the bodies of all pending requests
    instances: int = 128  # images per request
    pixels: int = 50_000_000  # per image
    numbers: int = 4_000_000  # and other JSON values per request: each takes about 100 bytes of memory
    queue: int = 1024  # waiting images
    batch: int = 32  # images per batch
    wait_s: float = 0  # maximum wait of a batch that is not full
    head_s: float = 20  # maximum time to receive the head of a request
    body_s: float = 60  # maximum time to receive a body
    response_s: float = 60  # maximum time in which a client reads a response
    drain_s: float = 20  # maximum time to answer pending requests after a signal
    origins: frozenset[str] = frozenset()  # of other sites, whose pages may send images


class RequestRefused(Exception):
    """A rejected request, with the HTTP status and the reason for the client."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason

    def __str__(self) -> str:
        return self.reason


def parse(limits: ServingLimits, body: bytes, verb: Verb) -> ImageRequest:
    """Parse the images of a request's body, and the format of the response."""
    _require_few_values(body, limits)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        with suppress(UnicodeDecodeError):
            body.decode()
            raise RequestRefused(400, f"the body is not JSON: {error}; see the format of :{verb}") from None
        raise RequestRefused(
            415, f"the body starts with {body[:8]!r}: it is neither JSON in UTF-8 nor a {accept.FORMATS}"
        ) from None
    if not isinstance(document, dict):
        raise RequestRefused(400, f"the body is {_kind(document)}, not an object; see the format of :{verb}")
    signature = document.get("signature_name") or ""
    if not isinstance(signature, str) or signature not in SIGNATURES:
        known = ", ".join(filter(None, SIGNATURES))
        raise RequestRefused(400, f"there is no signature {_shown(signature)}; the model has {known}")
    key, form, values = _values(document, verb)
    if len(values) > limits.instances:
        raise RequestRefused(
            413, f"{key} holds {len(values)} images, the limit is {limits.instances}; send several requests"
        )
    named = ((f"{key}[{index}]", value) for index, value in enumerate(values))
    return [_image(name, value, signature, limits) for name, value in named], form


def _require_few_values(body: bytes, limits: ServingLimits) -> None:
    """Refuse a body whose JSON values would take much memory; base64 has no character that counts."""
    count = 0
    for start in range(0, len(body), COUNTED_BYTES):
        count += sum(body.count(mark, start, start + COUNTED_BYTES) for mark in b",:[{")
        if count > limits.numbers:
            raise RequestRefused(
                413,
                f"the body holds more than {limits.numbers} JSON values; "
                'send images as files, {"b64": ...}, or fewer at a time',
            )


def of_file(limits: ServingLimits, body: bytes, verb: Verb) -> ImageRequest | None:
    """The request of a body that is an image file itself; None if it begins like none."""
    if accept.format_name(body) == "unknown" and accept.other(body) is None:
        return None
    image = ImageSource("the body", partial(_read, body, limits.pixels), len(body))
    return [image], "row" if verb == "predict" else "classify"


def _values(document: dict[str, Any], verb: Verb) -> tuple[str, Form, list[Any]]:
    """Return the key that holds the images, the format that it implies, and the images."""
    predicts: dict[str, Form] = {"instances": "row", "inputs": "column"}
    forms: dict[str, Form] = predicts if verb == "predict" else {"examples": "classify"}
    found = [key for key in forms if key in document]
    if len(found) != 1:
        has = " and ".join(found) or "none"
        raise RequestRefused(400, f"the body must have one of {', '.join(forms)}, but has {has}")
    (key,) = found
    values = document[key]
    if key == "inputs" and isinstance(values, dict) and values.keys() == {NAME}:
        values = values[NAME]
    if not isinstance(values, list) or not values:
        raise RequestRefused(400, f"{key} is {_kind(values)}, expected a list of images")
    return key, forms[key], values


def _image(name: str, value: object, signature: str, limits: ServingLimits) -> ImageSource:
    if isinstance(value, dict) and value.keys() == {NAME}:
        value = value[NAME]
    if isinstance(value, dict) and value.keys() == {"b64"}:
        content = _decoded(name, value["b64"])
        kind, source = FILES, ImageSource(name, partial(_read, content, limits.pixels), len(content))
    elif isinstance(value, list):
        pixels = _pixels(name, value)
        kind, source = PIXELS, ImageSource(name, next(image_inputs.from_values(pixels)).read, pixels.nbytes)
    else:
        raise RequestRefused(400, f'{name} is {_kind(value)}, expected {{"b64": file}} or lists of pixels')
    if kind not in SIGNATURES[signature]:
        takes = "pixels as nested lists" if signature == PIXELS else 'files, {"b64": ...}'
        raise RequestRefused(400, f"{name} does not fit the signature {signature}, which takes {takes}")
    return source


def _decoded(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise RequestRefused(400, f"{name} is not base64: it is {_kind(text)}")
    if text.startswith("data:"):
        raise RequestRefused(400, f"{name} is not base64 but a data URL; send what follows its comma")
    try:  # lines and missing padding are allowed, as in TensorFlow Serving
        return base64.b64decode((text := "".join(text.split())) + "=" * (-len(text) % 4), validate=True)
    except ValueError as error:
        raise RequestRefused(400, f"{name} is not base64: {error}") from None


def _pixels(name: str, value: list[Any]) -> NDArray[np.uint8]:
    """Convert nested lists to uint8 [height, width, channels]."""
    shape = _shape(value)
    if len(shape) != 3 or shape[2] not in image_inputs.KEPT_CHANNELS or 0 in shape:
        raise RequestRefused(400, f"{name} has the shape {shape}, expected [height, width, 1 or 3]")
    # NumPy would convert numbers beside one long text to texts of that length.
    with suppress(ValueError, TypeError):
        with suppress(OverflowError):
            if set(map(type, chain.from_iterable(chain.from_iterable(value)))) == {int}:
                return np.array(value, np.uint8)
        raise RequestRefused(400, f"{name} has values other than integers from 0 to 255")
    raise RequestRefused(400, f"{name} has rows of different lengths")


def _shape(value: object) -> list[int]:
    """The shape of nested lists, if all have the length of the first."""
    found = []
    while isinstance(value, list):
        found.append(len(value))
        value = value[0] if value else None
    return found


def _read(content: bytes, most: int, budget: PixelBudget, transparency: Transparency) -> bytes:
    """Read an image exactly as `perennial predict` reads a file with this content."""
    found = decode.header(content)
    pixels = found.height * found.width if found else image_inputs.pixels(content)
    if pixels > most:
        raise Refused(f"it has {pixels} pixels, the limit is {most}")
    return image_inputs.to_encoded(content, budget, transparency)


def answer(
    form: str,
    outputs: Sequence[Probabilities | BadImage],
    classes: Sequence[str],
    version: str,
    answers: Sequence[Answer] | None,
) -> bytes:
    """Build the body of a response; `answers` as `Classifier.answers` returns them."""
    if bad := next((each for each in outputs if isinstance(each, BadImage)), None):
        raise RequestRefused(400, f"{bad.filename}: {printable(bad.reason)}")
    good = [each for each in outputs if not isinstance(each, BadImage)]
    if form == "classify":
        orders = [np.argsort(-each, kind="stable").tolist() for each in good]
        pairs = zip(orders, good, strict=True)
        found: dict[str, Any] = {"results": [[(classes[i], each[i]) for i in order] for order, each in pairs]}
    else:
        several = answers is not None and isinstance(answers[0], tuple)
        key = "labels" if several else "classes"
        decided = [
            [int(name in answer) for name in classes] if isinstance(answer, tuple) else each.argmax()
            for each, answer in zip(good, answers or [""] * len(good), strict=True)
        ]
        rows = [{key: one, "probabilities": each} for one, each in zip(decided, good, strict=True)]
        found = {"predictions": rows} if form == "row" else {"outputs": {key: decided, "probabilities": good}}
    if answers is not None:
        found["answers"] = answers
    return orjson.dumps({**found, "model_version": version}, option=orjson.OPT_SERIALIZE_NUMPY)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    if isinstance(value, dict) and value:
        return f"an object with {', '.join(_shown(key) for key in list(value)[:3])}"
    return "an empty list" if value == [] else names.get(type(value), "a number")


def _shown(value: object) -> str:
    text = printable(str(value)[: SHOWN + 1])
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
