"""Convert images of common formats to those that records hold.

    8-bit JPEG (also MPO), grey or RGB         kept byte for byte, or re-encoded upright
    8-bit PNG, grey or RGB                     kept byte for byte; without its metadata if that is large
    other JPEG, PNG, WebP, BMP, GIF            upright 8-bit grey or RGB, as PNG
    animations, other formats, damaged files   BadImage

What TensorFlow's decoder refuses or decodes differently becomes PNG. The content determines the format, and no
decoder sees metadata, so that time and memory are in proportion to bytes and pixels.
"""

import io
import re
import warnings

import numpy as np
import PIL.Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from perennial.base.choices import Transparency
from perennial.data.archives.safety import IS_LFS, LFS
from perennial.data.images import (
    BadImage,
    Image,
    Refused,
    alpha,
    check_size,
    decode,
    gif_bmp_webp,
    header,
    jpeg,
    jpeg_file,
    orientation,
    png,
    png_file,
)
from perennial.data.images.decode import PILLOW_ERRORS

REDUCED_QUALITY = 95  # of a JPEG, as libjpeg counts
WEBP = b"WEBP"
COMPONENTS = {1, 3}  # of a JPEG that is grey or in colours


def accepted(content: bytes, filename: str, transparency: Transparency = "drop") -> Image | BadImage:
    """Decode a file completely and convert it to an image for a record, or return the reason for rejection."""
    try:
        if content.startswith(jpeg.START):
            return _readable(_jpeg(content, filename))
        # Pillow warns about what it ignores, but not of a JPEG, whose metadata it does not see.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _readable(_image(content, filename, transparency))
    except Refused as error:
        return BadImage(filename=filename, reason=str(error))
    except PILLOW_ERRORS as error:
        return BadImage(filename=filename, reason=f"it cannot be decoded: {_reason(error)}")


def for_record(image: Image, filename: str, transparency: Transparency) -> Image | BadImage:
    """Return an image of a record: a JPEG as it is, a PNG with the same pixels for TensorFlow or on white."""
    try:
        check_size(image.width, image.height)
        if image.format == "jpg":
            decode.check_coefficients(image.encoded, decode.photograph(image.encoded))
            return image
        if png_file.is_plain(image.encoded):
            return image
        parsed = png_file.check(image.encoded)
        opened = _opened_png(image.encoded, parsed)
        opened.load()
        white = transparency == "white" and alpha.is_transparent(opened)
        if parsed.window and not white:
            hidden = alpha.holds_the_picture(opened, np.asarray(decode.plain(opened)))
            return image._replace(hidden=hidden)
        pixels = np.asarray(decode.plain(opened, transparency))
        return image._replace(encoded=png.encode(pixels))
    except PILLOW_ERRORS as error:
        return BadImage(filename=filename, reason=_reason(error))


def _reason(error: Exception) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", str(error)) or type(error).__name__


def limited(image: Image, max_side: int) -> Image | BadImage:
    """An image of a record whose longer side has at most `max_side` pixels; smaller ones are not changed."""
    longer = max(image.height, image.width)
    if longer <= max_side:
        return image
    try:
        encoded = smaller(image.encoded, max_side)
    except PILLOW_ERRORS as error:
        return BadImage(filename=image.filename or "an image without a name", reason=_reason(error))
    head, notes = header.header(encoded), image.annotations
    if head is None:
        return BadImage(filename=image.filename or "an image without a name", reason="it cannot be reduced")
    if notes is not None and notes.areas is not None:
        scale = head.height * head.width / (image.height * image.width)
        notes = notes._replace(areas=tuple(area * scale for area in notes.areas))
    return image._replace(
        encoded=encoded, height=head.height, width=head.width, annotations=notes, original=False
    )


def smaller(encoded: bytes, max_side: int) -> bytes:
    """Reduce a JPEG or PNG file by Lanczos until its longer side has at most `max_side` pixels."""
    head = header.header(encoded)
    if head is None or max(head.width, head.height) <= max_side:
        return encoded
    width, height = (
        max(1, round(side * max_side / max(head.width, head.height))) for side in (head.width, head.height)
    )
    image = decode.opened(encoded)
    if head.format == "jpg":
        image.draft(image.mode, (2 * width, 2 * height))
    image.load()
    reduced = decode.plain(image).resize((width, height), PIL.Image.Resampling.LANCZOS)
    if head.format == "png":
        return png.encode(decode.array(reduced))
    stream = io.BytesIO()
    reduced.save(stream, "JPEG", quality=REDUCED_QUALITY, subsampling="4:2:0")
    return stream.getvalue()


def without_metadata(encoded: bytes) -> bytes:
    """Write a JPEG or PNG of a record again without EXIF, texts, thumbnails and bytes behind the image."""
    return jpeg_file.rewritten(encoded) if encoded.startswith(jpeg.START) else png_file.rewritten(encoded)


def is_kept(content: bytes) -> bool:
    """Whether a record keeps an image file byte for byte; detects damage only in the structure of a JPEG."""
    if content.startswith(png.SIGNATURE):
        return png_file.check(content).kept
    if not content.startswith(jpeg.START):
        return False
    parsed = jpeg.read(content)
    return _is_plain(parsed) and parsed.orientation == orientation.UPRIGHT


def size(content: bytes) -> tuple[int, int] | None:
    """Read width and height of a file of a format that is accepted; None for other files."""
    head = header.header(content)
    if head is not None:
        width, height = head.width, head.height
    elif content.startswith(gif_bmp_webp.GIF):
        (width, height), _ = gif_bmp_webp.single_gif(content)
    elif content.startswith(b"BM"):
        width, height = gif_bmp_webp.bmp_size(content)
    elif _is_webp(content):
        width, height = gif_bmp_webp.webp_size(content)
    else:
        return None
    check_size(width, height)
    return width, height


def format_name(content: bytes) -> str:
    """The name of the format of a file that is accepted."""
    begins = {jpeg.START: "JPEG", png.SIGNATURE: "PNG", b"GIF": "GIF", b"BM": "BMP", b"RIFF": "WEBP"}
    return next((name for start, name in begins.items() if content.startswith(start)), "unknown")


def _readable(image: Image) -> Image:
    """Reject an image whose header the checks of records cannot read."""
    head = header.header(image.encoded)
    if head is None or (head.format, head.height, head.width) != (image.format, image.height, image.width):
        raise Refused("it is damaged: its header cannot be read")
    return image


def _is_webp(content: bytes) -> bool:
    return content[:4] == b"RIFF" and content[8:12] == WEBP


def _image(content: bytes, filename: str, transparency: Transparency) -> Image:
    if content.startswith(png.SIGNATURE):
        return _png(content, filename, transparency)
    size(content)
    opened: PIL.Image.Image
    if content.startswith(gif_bmp_webp.GIF):
        _, single = gif_bmp_webp.single_gif(content)
        opened = GifImageFile(io.BytesIO(single))
    elif _is_webp(content):
        opened = WebPImageFile(io.BytesIO(content))
    elif content.startswith(b"BM"):
        opened = BmpImageFile(io.BytesIO(content))
    else:
        if content.startswith(LFS):
            raise Refused(f"it is {IS_LFS}")
        raise Refused(
            f"not a JPEG, PNG, WebP, BMP or GIF: it starts with {content[:8]!r}" if content else "it is empty"
        )
    return _converted(opened, filename, orientation.of_image(opened), transparency)


def _is_plain(parsed: jpeg.Jpeg) -> bool:
    return parsed.trained_on and len(parsed.factors) in COMPONENTS


def _jpeg(content: bytes, filename: str) -> Image:
    parsed = jpeg.read(content)
    if _is_plain(parsed) and parsed.orientation == orientation.UPRIGHT:
        decode.check_coefficients(content, parsed)
        return Image(content, "jpg", parsed.height, parsed.width, filename, original=True)
    image = JpegImageFile(io.BytesIO(parsed.for_decoder(content)))
    if _is_plain(parsed):
        return _upright_jpeg(image, filename, parsed.orientation)
    return _converted(image, filename, parsed.orientation)


def _upright_jpeg(image: JpegImageFile, filename: str, turned: int) -> Image:
    """Rotate a photograph and encode it as JPEG of similar file size; a PNG would be ten times as large."""
    image.load()
    # Each table is a row-major list of 64 values; a rotation by 90 degrees swaps rows and columns.
    tables = [np.reshape(table, (8, 8)) for table in image.quantization.values()]
    rotated = orientation.applied(image, turned)
    if rotated.size != image.size:
        tables = [table.T for table in tables]
    stream = io.BytesIO()
    rotated.save(stream, "JPEG", qtables=[table.ravel().tolist() for table in tables], subsampling=0, exif=b"")
    width, height = rotated.size
    return Image(
        encoded=stream.getvalue(), format="jpg", height=height, width=width, filename=filename, turned=True
    )


def _png(content: bytes, filename: str, transparency: Transparency) -> Image:
    parsed = png_file.check(content)  # of every byte and line, so that any decoder reads a plain file
    if not parsed.plain:
        return _converted(_opened_png(content, parsed), filename, parsed.orientation, transparency)
    encoded = content if parsed.kept else parsed.for_decoder(content)
    return Image(
        encoded=encoded, format="png", height=parsed.height, width=parsed.width, filename=filename,
        original=parsed.kept,
    )  # fmt: skip


def _opened_png(content: bytes, parsed: png_file.Png) -> PngImageFile:
    image = PngImageFile(io.BytesIO(parsed.for_decoder(content)))
    if parsed.transparent:
        alpha.correct_key(image, parsed.bits, parsed.key(content))
    return image


def _converted(
    image: PIL.Image.Image, filename: str, turned: int, transparency: Transparency = "drop"
) -> Image:
    """Convert the image to PNG."""
    check_size(*image.size)
    if getattr(image, "is_animated", False):
        raise Refused("it is an animation")
    image.load()
    image = orientation.applied(image, turned)
    pixels = np.asarray(decode.plain(image, transparency))
    height, width = pixels.shape[:2]
    hidden = transparency == "drop" and alpha.holds_the_picture(image, pixels)
    return Image(
        encoded=png.encode(pixels), format="png", height=height, width=width, filename=filename,
        turned=turned != orientation.UPRIGHT, hidden=hidden,
    )  # fmt: skip
