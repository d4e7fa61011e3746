"""The files of a project that holds no source of perennial.

They are this repository's own files, which a wheel holds in `perennial/template`. A project keeps pristine
copies in `.perennial/base`, so that an upgrade can tell what its owner changed.
"""

import base64
import hashlib
import io
import json
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perennial.base.choices import EXTRAS
from perennial.base.dvc.pipeline_file import of_project
from perennial.base.errors import PerennialError, redacted
from perennial.base.layout import PARAMS, STAGES, Project
from perennial.base.params import options
from perennial.base.project import code_digests
from perennial.base.project.source_code import DISTRIBUTION, PACKAGE
from perennial.base.stage_state import environment

NAME = DISTRIBUTION.replace("-", "_")  # in names of files
TAG = "py3-none-any"
ABOUT = ("METADATA", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE")
KIND = f"Wheel-Version: 1.0\nGenerator: perennial\nRoot-Is-Purelib: true\nTag: {TAG}\n"
IN_WHEEL = PACKAGE / "template"
BASE = Path(".perennial", "base")
LOCK = environment.OWN.as_posix()
OWN_WHEEL = f".perennial/{NAME}-*.whl"
LOCKED = """\
# The wheel of perennial itself; no package index is asked for it, which may have another project of this name.
--no-index
--find-links ../.perennial
{name}=={version} --hash=sha256:{digest}
"""
LOCKS = ("base", "pip", "uv", *EXTRAS)
# What a wheel has of the repository; pyproject.toml lists the folders.
COPIED = (
    "flows/*.py", "tasks/*.py", "requirements/*.yaml", "prefect.yaml", ".dvcignore", ".gitattributes",
    ".gitignore", ".dvc/.gitignore", ".dvc/config", ".dvc/plots.html", "components/__init__.py",
    "components/data/__init__.py", "own/README.md",
    *(f"requirements/{name}.txt" for name in LOCKS),
    "infra/Caddyfile", "infra/Dockerfile", "infra/Dockerfile.dockerignore", "infra/*.yaml", "infra/*/*.yaml",
    "infra/pools/*.json", "infra/systemd/*",
)  # fmt: skip
# Only a project has these; its README, which its owner rewrites, is no part of an upgrade.
PROJECT = Path(__file__).with_name("project")
FILES = {".github/workflows/ci.yml": "ci.yml"}
# What names our source in these files, and what stands there in a project.
COMPILED = (
    "RUN uv pip install -q --no-cache --offline --no-deps --no-build-isolation -e . && python -m compileall "
    "-q src flows tasks"
)
INSTALLED = (
    "RUN uv pip install -q --no-cache --offline --no-deps -r requirements/perennial.txt \\\n"
    "    && python -m compileall -q flows tasks"
)
ON_PATH = (
    "from pathlib import Path\n\n"
    "# The code beside these tasks, whichever checkout is installed.\n"
    'sys.path.insert(0, str(Path(__file__).parents[1] / "src"))\n'
)
IN_PODS = ("/var/lib/perennial/project/src }", "/var/lib/perennial/project }")
WITHOUT_SOURCE = {
    "tasks/__init__.py": (ON_PATH, ""),
    "infra/Dockerfile": (COMPILED, INSTALLED),
    "infra/Dockerfile.dockerignore": ("!src\n", "!.perennial/*.whl\n!code.yaml\n!components\n"),
    "infra/systemd/perennial-retrain.service": ("PYTHONPATH=/opt/perennial/src", "PYTHONPATH=/opt/perennial"),
    **dict.fromkeys((f"infra/kubernetes/{name}.yaml" for name in ("jobset", "retrain", "training")), IN_PODS),
}


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


def template() -> dict[str, bytes]:
    """The content of each file of a new project with one pipeline, by its path."""
    content, (name, packed) = _of_repository(), wheel()
    digest = hashlib.sha256(packed).hexdigest()
    lock = LOCKED.format(name=DISTRIBUTION, version=code_digests.installed(), digest=digest)
    return {
        **content,
        **{name: _without_source(name, content[name]) for name in WITHOUT_SOURCE},
        **{path: (PROJECT / name).read_bytes() for path, name in FILES.items()},
        STAGES: of_project(content[STAGES].decode()).encode(),
        code_digests.FILE: code_digests.content().encode(),
        LOCK: lock.encode(),
        f".perennial/{name}": packed,
    }


def generated(name: str) -> bool:
    """Whether an upgrade always replaces a file."""
    return name in (code_digests.FILE, LOCK) or fnmatch(name, OWN_WHEEL)


def _of_repository() -> dict[str, bytes]:
    """Those of these files that this repository has, as it has them."""
    root = IN_WHEEL if IN_WHEEL.is_dir() else PACKAGE.parents[1]
    if not (root / STAGES).is_file():
        raise PerennialError(
            f"{root} does not hold the files of a project; install {DISTRIBUTION} again, from its package"
        )
    found = sorted(file for pattern in COPIED for file in root.glob(pattern) if file.is_file())
    content = {file.relative_to(root).as_posix(): file.read_bytes() for file in (*found, root / STAGES)}
    return {**content, PARAMS: options.defaults().encode()}


def lock_file(name: str) -> Path:
    """A lock file: the project's, else ours."""
    files = (root / f"requirements/{name}.txt" for root in (Project.find().root, IN_WHEEL, PACKAGE.parents[1]))
    return next(filter(Path.is_file, files))


def _without_source(name: str, content: bytes) -> bytes:
    """The file `name` as a project without our source has it."""
    ours, theirs = (text.encode() for text in WITHOUT_SOURCE[name])
    if ours not in content:
        raise PerennialError(f"{name} has no text {ours.decode()!r}, which a project replaces: see {__name__}")
    return content.replace(ours, theirs)


def readme(name: str) -> bytes:
    """The README of a new project."""
    return (PROJECT / "README.md").read_text(encoding="utf-8").replace("{name}", name).encode()


def write_all(root: Path, content: Mapping[str, bytes]) -> None:
    """Write files that git is going to have, so none is flushed to the disk by itself."""
    for name, written in content.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(written)


def write_base(root: Path, content: Mapping[str, bytes]) -> None:
    """Write the pristine copies of a project's files."""
    write_all(root / BASE, {name: each for name, each in content.items() if not generated(name)})
    for name in read_base(root).keys() - content.keys():
        (root / BASE / name).unlink()


def read_base(root: Path) -> dict[str, bytes]:
    """The pristine copies that a project has."""
    base = root / BASE
    return {file.relative_to(base).as_posix(): file.read_bytes() for file in base.rglob("*") if file.is_file()}
