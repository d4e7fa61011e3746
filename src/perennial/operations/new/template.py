"""The files of a project that holds no source of perennial.

They are this repository's own files, which a wheel holds in `perennial/template`. A project keeps pristine
copies in `.perennial/base`, so that an upgrade can tell what its owner changed.
"""

from pathlib import Path

from perennial.base import files
from perennial.base.config import options
from perennial.base.errors import PerennialError
from perennial.base.project import code_digests
from perennial.base.project.layout import PARAMS, STAGES
from perennial.base.project.pipeline_file import of_project
from perennial.base.project.source_code import DISTRIBUTION, PACKAGE
from perennial.base.runtime import environment

IN_WHEEL = PACKAGE / "template"
BASE = Path(".perennial", "base")
LOCK = environment.OWN.as_posix()
# What a wheel has of the repository; pyproject.toml lists the folders.
COPIED = (
    "flows/*.py", "tasks/*.py", "environment/*.yaml", "prefect.yaml", ".dvcignore", ".gitattributes",
    "own/README.md",
    *(f"requirements/{name}.txt" for name in ("base", "gpu", "onnx", "pip", "ray", "uv")),
    "infra/Caddyfile", "infra/Dockerfile", "infra/Dockerfile.dockerignore", "infra/*.yaml", "infra/*/*.yaml",
    "infra/systemd/*",
)  # fmt: skip
# Written anew for each version, whatever a project has.
GENERATED = (code_digests.FILE, LOCK)


def template(root: Path | None = None) -> dict[str, bytes]:
    """The content of each file of a new project with one pipeline, by its path.

    root: a folder with this repository's files; by default those of the perennial that runs.

    Raises:
        PerennialError: they are not there.
    """
    root = root or (IN_WHEEL if IN_WHEEL.is_dir() else PACKAGE.parents[1])
    if not (root / STAGES).is_file():
        raise PerennialError(
            f"{root} does not hold the files of a project; install {DISTRIBUTION} again, from its package"
        )
    found = sorted(file for pattern in COPIED for file in root.glob(pattern) if file.is_file())
    content = {file.relative_to(root).as_posix(): file.read_bytes() for file in found}
    pipeline = (root / STAGES).read_text(encoding="utf-8")
    return {
        **content,
        STAGES: of_project(pipeline).encode(),
        PARAMS: options.defaults().encode(),
        code_digests.FILE: code_digests.content().encode(),
        LOCK: f"{DISTRIBUTION}=={code_digests.installed()}\n".encode(),
    }


def write_base(root: Path, content: dict[str, bytes]) -> None:
    """Write the pristine copies of a project's files."""
    for name in sorted(content.keys() - set(GENERATED)):
        files.write_bytes(root / BASE / name, content[name])
    for name in read_base(root).keys() - content.keys():
        (root / BASE / name).unlink()


def read_base(root: Path) -> dict[str, bytes]:
    """The pristine copies that a project has."""
    base = root / BASE
    return {file.relative_to(base).as_posix(): file.read_bytes() for file in base.rglob("*") if file.is_file()}
