"""The environment as a parameter: versions of the packages that can change a stage's results.

`requirements/*.yaml` hold them, and dvc.yaml lists these files under `params`: an upgrade of such a package
makes the stages stale that depend on it, any other upgrade none. `make lock` writes them from requirements/.

The files do not contain Python's version: the lock is for Python 3.11 to 3.13, and all results would be stale
with another one. The record of a training names it. If the lock has a version per Python version, all are
accepted.
"""

import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from perennial.base import documents, files
from perennial.base.errors import ConfigError
from perennial.base.layout import Project
from perennial.base.project import stage_table

FOLDER = Path("requirements")  # in the project's top folder
OWN = FOLDER / "perennial.txt"  # the lock of perennial itself, in a project without its source
# The other packages check, print, download, lock, or compute a standard such as CRC-32, equal in every version.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "data": ("numpy", "pillow", "pillow-heif", "protobuf", "scikit-learn"),
    "train": ("h5py", "keras", "keras-hub", "ml-dtypes", "numpy", "protobuf", "scipy", "tensorflow"),
    "evaluate": ("matplotlib", "scipy"),
    "export": ("onnx", "onnxruntime", "tf2onnx"),
}
EXTRAS = ("onnx", "keras-hub", "heic")  # lock files of some export formats, networks and image files
# The stages that have each file as a parameter.
STAGES = {
    file: tuple(name for name, each in stage_table.STAGES.items() if file in each.environment)
    for file in PACKAGES
}
INSTALLED_ALWAYS, INSTALLED_MAYBE = "packages", ("cuda", "optional")  # keys of a file
Versions = Mapping[str, tuple[str, ...]]


def require(stage: str, folder: Path | None = None, outcome: str = "nothing was changed") -> None:
    """Check that installed packages have the versions that a stage's files name; without a file nothing."""
    wrong = {}
    folder = folder or Project.find().shared(FOLDER)
    known = stage_table.STAGES.get(stage)
    for name in known.environment if known else ():
        file = folder / f"{name}.yaml"
        if file.is_file() and (differences := _differences(file)):
            wrong[str(file)] = differences
    if wrong:
        found = "; ".join(f"{', '.join(each)} in {file}" for file, each in wrong.items())
        raise ConfigError(
            f"other packages are installed than this revision names: {found}; {outcome}; `perennial run` "
            f"works with these versions, or write yours into {' and '.join(wrong)} and commit that: the stages "
            "that depend on it then run again"
        )


def _differences(file: Path) -> list[str]:
    """List installed packages whose version differs from a file, and missing ones."""
    named = _read(file)
    found = []
    for key in (INSTALLED_ALWAYS, *INSTALLED_MAYBE):
        for package, expected in named.get(key, {}).items():
            try:
                installed = version(package)
            except PackageNotFoundError:
                if key in INSTALLED_MAYBE:
                    continue
                installed = "missing"
            if installed not in expected:
                found.append(f"{package} is {installed}, expected {' or '.join(expected)}")
    return found


def _read(file: Path) -> Mapping[str, Versions]:
    try:
        content = documents.parse_yaml(file.read_text(encoding="utf-8"))
        return {
            key: {
                package: tuple(map(str, versions if isinstance(versions, list) else [versions]))
                for package, versions in packages.items()
            }
            for key, packages in content.items()
        }
    except (ValueError, AttributeError) as error:
        raise ConfigError(
            f"{file} does not hold versions by package; `git checkout {file}` restores it"
        ) from error


def pinned_versions(file: Path) -> Versions:
    """Read the versions of each package in a requirements file; several if they depend on Python's version."""
    found: dict[str, tuple[str, ...]] = {}
    text = file.read_text(encoding="utf-8")
    for name, number in re.findall(r"^([a-z0-9-]+)(?:\[[^]]*\])?==([^\s;]+)", text, re.MULTILINE):
        found[name] = (*found.get(name, ()), number)
    return found


def write(requirements: Path = FOLDER, folder: Path = FOLDER) -> None:
    """Write the environment files from the locked requirements."""
    base, gpu = (pinned_versions(requirements / f"{name}.txt") for name in ("base", "gpu"))
    extras = [pinned_versions(requirements / f"{name}.txt") for name in EXTRAS]
    optional = {name: versions for extra in extras for name, versions in extra.items()}
    cuda = sorted(name for name in gpu if name.startswith("nvidia-"))
    for name, packages in PACKAGES.items():
        required = [each for each in packages if each in base]
        maybe = [each for each in packages if each not in base]
        text = f"# Decides what {_listed(STAGES[name])} {'makes' if len(STAGES[name]) == 1 else 'make'}: "
        text += "versions of packages. Written by `make lock`.\n"
        text += _section(INSTALLED_ALWAYS, base, required)
        text += _section("optional", optional, maybe)
        text += _section("cuda", gpu, cuda if name == "train" else [])
        files.write_bytes(folder / f"{name}.yaml", text.encode())


def _section(key: str, versions: Versions, packages: Iterable[str]) -> str:
    lines = [f"  {name}: {_text(versions[name])}\n" for name in packages]
    return f"{key}:\n{''.join(lines)}" if lines else ""


def _text(versions: tuple[str, ...]) -> str:
    quoted = [f'"{each}"' for each in versions]  # else 2.21 would be a number
    return quoted[0] if len(quoted) == 1 else f"[{', '.join(quoted)}] # by the version of Python"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + (" and " if names[:-1] else "") + names[-1]


if __name__ == "__main__":
    write()
