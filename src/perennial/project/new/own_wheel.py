"""The wheel of the perennial that runs, which a project keeps: its environments ask no package index for it.

Equal packages make equal bytes: the files are stored without dates, and uncompressed, so that git keeps only
what an upgrade changes.
"""

import base64
import hashlib
import io
import json
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perennial.base.errors import redacted
from perennial.base.project import code_digests
from perennial.base.project.source_code import DISTRIBUTION, PACKAGE

NAME = DISTRIBUTION.replace("-", "_")  # in names of files
TAG = "py3-none-any"
ABOUT = ("METADATA", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE")
KIND = f"Wheel-Version: 1.0\nGenerator: perennial\nRoot-Is-Purelib: true\nTag: {TAG}\n"


def origin() -> str:
    """Where the installed perennial came from, as its installer noted it."""
    noted = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    url = json.loads(noted)["url"] if noted else "a package index"
    return unquote(urlsplit(url).path) if url.startswith("file:") else redacted(str(url))


def wheel() -> tuple[str, bytes]:
    """The name and the content of the wheel."""
    name = f"{NAME}-{code_digests.installed()}"
    content = {**dict(_package()), **_about(f"{name}.dist-info")}
    rows = [f"{file},sha256={_digest(each)},{len(each)}\n" for file, each in content.items()]
    record = f"{name}.dist-info/RECORD"
    content[record] = "".join([*rows, f"{record},,\n"]).encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as packed:
        for file, each in content.items():
            about = zipfile.ZipInfo(file)  # dated 1980
            about.external_attr = 0o644 << 16
            packed.writestr(about, each)
    return f"{name}-{TAG}.whl", written.getvalue()


def _package() -> Iterator[tuple[str, bytes]]:
    """The files of the package, with those that its build adds to a source."""
    placed = {PACKAGE: Path(PACKAGE.name)}
    project = PACKAGE.parents[1] / "pyproject.toml"
    if PACKAGE.parent.name == "src" and project.is_file():
        built = tomllib.loads(project.read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
        added = built["targets"]["wheel"]["force-include"]
        placed |= {project.parent / source: Path(place) for source, place in added.items()}
    found = {
        (place / file.relative_to(top)).as_posix(): file
        for top, place in placed.items()
        for file in ((top,) if top.is_file() else top.rglob("*"))
        if file.is_file() and file.suffix != ".pyc"
    }
    return ((name, found[name].read_bytes()) for name in sorted(found))


def _about(folder: str) -> dict[str, bytes]:
    distribution = metadata.distribution(DISTRIBUTION)
    texts = {name: distribution.read_text(name) for name in ABOUT}
    return {f"{folder}/{name}": text.encode() for name, text in {**texts, "WHEEL": KIND}.items() if text}


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
