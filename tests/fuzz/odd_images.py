"""Image files that no program should have written, and the work that reading one takes."""

import gc
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from fuzz.hunt import changed
from support.odd_images import PHOTO, chunks_of, png_of, saved

from perennial.data.images import jpeg, png, png_file

KINDS = (
    b"tEXt", b"zTXt", b"iCCP", b"gAMA", b"PLTE", b"tRNS", b"sBIT", b"bKGD", b"hIST", b"eXIf", b"IHDR", b"IDAT",
    b"IEND", b"prVt", b"12a4", b"ABCD", b"acTL", b"fcTL", b"sPLT", b"tIME", b"cICP", b"mDCV",
)  # fmt: skip


def valid() -> list[bytes]:
    """Files as programs write them."""
    grey, alpha = PHOTO.convert("L"), PHOTO.convert("RGBA")
    alpha.putalpha(grey)
    jpegs = [
        saved(image, "JPEG", **options)
        for image in (PHOTO, grey, PHOTO.convert("CMYK"))
        for options in (
            {}, {"progressive": True}, {"restart_marker_blocks": 2}, {"subsampling": 0}, {"comment": b"x"}
        )
    ]  # fmt: skip
    pngs = [saved(image, "PNG") for image in (PHOTO, grey, alpha, PHOTO.quantize(16), grey.convert("1"))]
    others = [saved(PHOTO, kind) for kind in ("BMP", "WEBP", "HEIF", "AVIF")]
    return [*jpegs, *pngs, *others]


def odd_png(draw: Random, content: bytes) -> bytes:
    """A PNG with valid checksums after changes of its chunks or of its compressed lines."""
    chunks = chunks_of(content)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(chunks))
        kind, body = chunks[at]
        match draw.randrange(6):
            case 0:
                chunks.insert(at, (draw.choice(KINDS), draw.randbytes(draw.choice((0, 1, 2, 6, 13, 40)))))
            case 1:
                chunks.insert(draw.randrange(len(chunks)), chunks[at])
            case 2 if len(chunks) > 1:
                del chunks[at]
            case 3:
                chunks[at] = (kind, changed(draw, body))
            case 4 if kind == b"IDAT":
                cut = draw.randrange(len(body) + 1)
                chunks[at : at + 1] = [(kind, body[:cut]), (kind, body[cut:])]
            case 5 if kind == b"IDAT":
                chunks[at] = (kind, _with_other_lines(draw, body))
    return png_of(chunks)


def _with_other_lines(draw: Random, body: bytes) -> bytes:
    try:
        lines = zlib.decompress(body)
    except zlib.error:
        return body
    packer = zlib.compressobj(draw.randrange(10), zlib.DEFLATED, draw.randint(9, 15))
    return packer.compress(changed(draw, lines)) + packer.flush()


def odd(draw: Random, files: list[bytes]) -> bytes:
    """A file after changes of its bytes or, for a PNG, of its chunks."""
    content = draw.choice(files)
    if content.startswith(png.SIGNATURE) and draw.random() < 0.8:
        return odd_png(draw, content)
    return changed(draw, content)


class Work:
    """Lines of code that ran, and bytes that were read, unpacked or copied."""

    def __init__(self) -> None:
        self.lines = 0
        self.bytes = 0


class Watched(bytes):
    """The content of a file that counts what is read of it."""

    work: Work

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.work.bytes += len(found) if isinstance(found, bytes) else 1
        return found


@contextmanager
def counted(work: Work) -> Iterator[Callable[[bytes], bytes]]:
    """Count the work in the block; yields a function that makes contents watched.

    The garbage collector is off meanwhile: finalizers of other objects would be counted when it happens to run.
    """

    def watch(content: bytes) -> bytes:
        found = Watched(content)
        found.work = work
        return found

    def line(_: FrameType, event: str, __: Any) -> Any:
        work.lines += event == "line"
        return line

    def search(content: bytes, at: int) -> re.Match[bytes] | None:
        found = marker.search(content, at)
        work.bytes += (found.end() if found else len(content)) - at
        return found

    def decompressobj(*bits: int) -> Any:
        return _Decompressor(work, bits)

    marker, before = jpeg.NEXT, sys.gettrace()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jpeg, "NEXT", SimpleNamespace(search=search))
        patch.setattr(png_file.zlib, "decompressobj", decompressobj)
        gc.disable()
        sys.settrace(line)
        try:
            yield watch
        finally:
            sys.settrace(before)
            gc.enable()


class _Decompressor:
    """Zlib's, with its work counted."""

    _make = staticmethod(zlib.decompressobj)

    def __init__(self, work: Work, bits: tuple[int, ...]) -> None:
        self._work, self._stream = work, self._make(*bits)

    def decompress(self, content: bytes, most: int) -> bytes:
        found = self._stream.decompress(content, most)
        self._work.bytes += len(found) + len(self._stream.unconsumed_tail)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
