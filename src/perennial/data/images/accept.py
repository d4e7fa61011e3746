"""Convert images of common formats to those that records hold.

    8-bit JPEG (also MPO), grey or RGB         kept byte for byte, or re-encoded upright
    8-bit PNG, grey or RGB                     kept byte for byte; without its metadata if that is large
    HEIC, AVIF                                 upright 8-bit grey or RGB, as JPEG of quality 95
    other JPEG, PNG, WebP, BMP                 upright 8-bit grey or RGB, as PNG
    animations, other formats, damaged files   BadImage

What TensorFlow's decoder refuses or decodes differently becomes PNG. The content determines the format, and no
decoder sees metadata, so that time and memory are in proportion to bytes and pixels.
"""

import io
import re

import numpy as np
import PIL.Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from perennial.base.choices import Transparency
from perennial.data.archives.safety import IS_LFS, LFS
from perennial.data.images import (
    BadImage,
    Image,
    Refused,
    check_size,
    decode,
    jpeg,
    jpeg_file,
    orientation,
    other_formats,
    png,
    png_file,
)

REDUCED_QUALITY = 95  # of a JPEG, as libjpeg counts
FORMATS = "JPEG, HEIC, PNG, WebP, AVIF or BMP"
# Of the formats that their first bytes tell.
STARTS = {jpeg.START: "JPEG", png.SIGNATURE: "PNG", b"BM": "BMP"}
HEIF = "HEIF"  # Pillow's name of HEIC; a file may hold further views of its scene
PHOTOGRAPHS = {HEIF, "AVIF"}
COMPONENTS = {1, 3}  # of a JPEG that is grey or in colours
# Other files that people have among their photos, by their first bytes.
TIFF = dict.fromkeys((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), "a TIFF, or a raw photo such as DNG, NEF or ARW")
CONVERTIBLE = TIFF | {
    b"GIF8": "a GIF", b"8BPS": "a document of Photoshop", b"%PDF": "a PDF", b"\xff\x0a": "a JPEG XL",
    b"\0\0\0\x0cJXL ": "a JPEG XL", b"\0\0\0\x0cjP  ": "a JPEG 2000",
}  # fmt: skip
CONVERT = "`magick mogrify -format png FILE` converts it"
OTHERS = {LFS: IS_LFS, b"<": "a web page or a drawing in SVG"} | dict.fromkeys(
    (b"IIRO", b"IIRS", b"IIU\0", b"MMOR", b"FUJIFILM"), "a raw photo of a camera; export it as JPEG"
)
OTHERS |= {start: f"{what}; {CONVERT}" for start, what in CONVERTIBLE.items()}


def accepted(content: bytes, filename: str, transparency: Transparency = "drop") -> Image | BadImage:
    """Decode a file completely and convert it to an image for a record, or return the reason for rejection."""
    try:
        if content.startswith(jpeg.START):
            image = _jpeg(content, filename)
            return image if image.original else _readable(image)  # the header of an original was just read
        return _readable(_image(content, filename, transparency))
    except Refused as error:
        return BadImage(filename=filename, reason=str(error))
    except decode.PILLOW_ERRORS as error:
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
        white = transparency == "white" and opened.has_transparency_data
        if parsed.window and not white:
            hidden = decode.holds_the_picture(opened, np.asarray(decode.plain(opened)))
            return image._replace(hidden=hidden)
        pixels = np.asarray(decode.plain(opened, transparency))
        return image._replace(encoded=png.encode(pixels))
    except decode.PILLOW_ERRORS as error:
        return BadImage(filename=filename, reason=_reason(error))


def _reason(error: Exception) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", str(error)).strip() or type(error).__name__


def limited(image: Image, max_side: int) -> Image | BadImage:
    """An image of a record whose longer side has at most `max_side` pixels; smaller ones are not changed."""
    longer = max(image.height, image.width)
    if longer <= max_side:
        return image
    note = image.annotations
    try:
        encoded = smaller(image.encoded, max_side)
        if (now := decode.header(encoded)) is None:
            raise Refused("it cannot be reduced")
    except decode.PILLOW_ERRORS as error:
        return BadImage(filename=image.filename or "an image without a name", reason=_reason(error))
    if note is not None and note.areas is not None:
        scale = now.height * now.width / (image.height * image.width)
        note = note._replace(areas=tuple(area * scale for area in note.areas))
    return image._replace(encoded=encoded, height=now.height, width=now.width, annotations=note, original=False)


def smaller(encoded: bytes, max_side: int) -> bytes:
    """Reduce a JPEG or PNG file by Lanczos until its longer side has at most `max_side` pixels."""
    head = decode.header(encoded)
    if head is None or max(sides := (head.width, head.height)) <= max_side:
        return encoded
    width, height = (max(1, round(side * max_side / max(sides))) for side in sides)
    image = decode.opened(encoded)
    if head.format == "jpg":
        image.draft(image.mode, (2 * width, 2 * height))
    image.load()
    reduced = decode.plain(image).resize((width, height), PIL.Image.Resampling.LANCZOS)
    if head.format == "png":
        return png.encode(decode.array(reduced))
    return _photograph(reduced)


def _photograph(image: PIL.Image.Image) -> bytes:
    """Encode grey or RGB as JPEG of high quality, with chroma of half the resolution, as cameras do."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=REDUCED_QUALITY, subsampling="4:2:0")
    return stream.getvalue()


def shaped(image: Image | BadImage, shape: tuple[int, int, int]) -> Image | BadImage:
    """An image of a record with this height, width and number of channels, 1 or 3; resized by Lanczos."""
    height, width, channels = shape
    if isinstance(image, BadImage) or ((head := decode.header(image.encoded)) and head.size == shape):
        return image
    try:
        opened = decode.opened(image.encoded)
        opened.load()
        plain = decode.plain(opened).convert("L" if channels == 1 else "RGB")
        encoded = png.encode(decode.array(plain.resize((width, height), PIL.Image.Resampling.LANCZOS)))
    except decode.PILLOW_ERRORS as error:
        return BadImage(filename=image.filename or "an image without a name", reason=_reason(error))
    return image._replace(encoded=encoded, format="png", height=height, width=width, original=False)


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
    match format_name(content):
        case "JPEG" | "PNG":
            if (head := decode.header(content)) is None:
                return None
            width, height = head.width, head.height
        case "BMP":
            width, height = other_formats.bmp_size(content)
        case "WEBP":
            width, height = other_formats.webp_size(content)
        case "HEIC" | "AVIF":
            width, height = other_formats.opened(content).size
        case _:
            return None
    check_size(width, height)
    return width, height


def format_name(content: bytes) -> str:
    """The name of the format of a file that is accepted."""
    return next((name for start, name in STARTS.items() if content.startswith(start)), "") or (
        other_formats.format_name(content)
        or ("WEBP" if content[:4] + content[8:12] == b"RIFFWEBP" else "unknown")
    )


def other(content: bytes) -> str | None:
    """Why a file of another known format is not accepted, and what to do."""
    return next((f"it is {what}" for start, what in OTHERS.items() if content.startswith(start)), None)


def _readable(image: Image) -> Image:
    """Reject an image whose header the checks of records cannot read."""
    head = decode.header(image.encoded)
    if head is None or (head.format, head.height, head.width) != (image.format, image.height, image.width):
        raise Refused("it is damaged: its header cannot be read")
    return image


def _image(content: bytes, filename: str, transparency: Transparency) -> Image:
    size(content)
    opened: PIL.Image.Image
    match format_name(content):
        case "PNG":
            return _png(content, filename, transparency)
        case "WEBP":
            opened = WebPImageFile(io.BytesIO(content))
        case "BMP":
            opened = BmpImageFile(io.BytesIO(content))
        case "HEIC" | "AVIF":
            opened = other_formats.opened(content)
        case _:
            unknown = f"not a {FORMATS}: it starts with {content[:8]!r}" if content else "it is empty"
            raise Refused(other(content) or other_formats.refusal(content) or unknown)
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
    return Image(stream.getvalue(), "jpg", height, width, filename, turned=True)


def _png(content: bytes, filename: str, transparency: Transparency) -> Image:
    parsed = png_file.check(content)  # of every byte and line, so that any decoder reads a plain file
    if not parsed.plain:
        return _converted(_opened_png(content, parsed), filename, parsed.orientation, transparency)
    encoded = content if parsed.kept else parsed.for_decoder(content)
    return Image(encoded, "png", parsed.height, parsed.width, filename, original=parsed.kept)


def _opened_png(content: bytes, parsed: png_file.Png) -> PngImageFile:
    """Open a PNG, its transparent colour scaled to 8 bits; Pillow leaves that in the file's range."""
    image, bits = PngImageFile(io.BytesIO(parsed.for_decoder(content))), parsed.bits
    key = [value >> bits - 8 if bits > 8 else value * 255 // (2**bits - 1) for value in parsed.key(content)]
    if key and image.mode in {"1", "L", "RGB"}:
        image.info[decode.KEY] = tuple(key) if image.mode == "RGB" else key[0]
    return image


def _converted(image: PIL.Image.Image, name: str, turned: int, transparency: Transparency = "drop") -> Image:
    """Convert the image to PNG, or to JPEG, as a PNG of a photograph would be ten times as large."""
    check_size(*image.size)
    if getattr(image, "is_animated", False) and image.format != HEIF:
        raise Refused("it is an animation")
    is_photograph = image.format in PHOTOGRAPHS
    image.load()
    image = orientation.applied(image, turned)
    upright = decode.plain(image, transparency)
    pixels = np.asarray(upright)
    height, width = pixels.shape[:2]
    hidden = transparency == "drop" and decode.holds_the_picture(image, pixels)
    kind, encoded = ("jpg", _photograph(upright)) if is_photograph else ("png", png.encode(pixels))
    return Image(encoded, kind, height, width, name, turned=turned != orientation.UPRIGHT, hidden=hidden)
