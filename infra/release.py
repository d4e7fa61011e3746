"""A release of the package, up to its upload: build it, check it, use it in an empty environment, and tag it.

`make release` runs the tests first. `--check` builds and checks, and tags nothing: this is `make wheel`.
The docs of the version go to the branch gh-pages, whose pages have a menu of all versions.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / ".work" / "dist"
BIN = Path(sys.executable).parent
INDEX = "https://pypi.org"


def run(*command: str | Path, folder: Path = ROOT, **variables: str) -> str:
    """Run a command without this checkout's PYTHONPATH; returns its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env={**kept, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"release: `{words}` failed; nothing was tagged:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, check and tag the version of pyproject.toml."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="build and check only")
    parser.add_argument("--index", default=INDEX, metavar="URL", help="package index (default: %(default)s)")
    given = parser.parse_args()
    check = given.check
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    tag = f"perennial-{version}"  # `v0.1.0` would be taken for a version of a model
    if not check and (reasons := [*unready(version, tag), *taken(project, given.index)]):
        sys.exit("\n- ".join(["release: not ready, and nothing was built:", *reasons]))
    wheel = build(version)
    use(wheel, version)
    if check:
        print(f"{wheel.name} and its source archive, installed and used once, are in {DIST}")
        return
    run("git", "tag", "-a", tag, "-m", f"perennial {version}")
    run(BIN / "mike", "deploy", "-F", "infra/mkdocs.yml", "--update-aliases", version, "latest")
    run(BIN / "mike", "set-default", "-F", "infra/mkdocs.yml", "latest")
    upload = f"`uv publish {DIST}/*.whl {DIST}/*.gz`, `git push origin HEAD gh-pages {tag}`"
    print(f"tagged {tag}, with its docs on the branch gh-pages; upload it: {upload}")


def unready(version: str, tag: str) -> Iterable[str]:
    """Reasons against a release of what is checked out."""
    if changed := run("git", "status", "--porcelain"):
        yield f"files are not committed: {', '.join(line[3:] for line in changed.splitlines()[:5])}"
    if run("git", "tag", "--list", tag):
        yield f"the tag {tag} exists: raise the version in pyproject.toml"
    log = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8").splitlines()
    heading = next((line for line in log if line.startswith(f"## {version}")), "")
    if not heading or "unreleased" in heading:
        yield f"docs/changelog.md needs the heading `## {version} (YYYY-MM-DD)`, and has {heading or 'none'!r}"
    code = str(ROOT / "src")
    stale = run(sys.executable, "-m", "dvc", "status", "--quiet", "--json", PYTHONPATH=code).strip()
    if stale not in {"", "{}"}:
        yield f"dvc.lock is not of this code, so run `make run` and commit it: {stale[:300]}"


def taken(project: Mapping[str, Any], index: str) -> Iterable[str]:
    """Reasons of the package index against a release: another project's name, or a version that it has."""
    name, version = project["name"], project["version"]
    try:
        with urllib.request.urlopen(f"{index}/pypi/{name}/json", timeout=20) as answer:
            there = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code != 404:  # which says that the name is free
            print(f"release: not checked: {index} answers {error.code} for {name}", file=sys.stderr)
        return
    except (OSError, ValueError) as error:
        print(f"release: not checked: whether {index} has another {name}: {error}", file=sys.stderr)
        return
    if there["info"]["summary"] != project["description"]:
        yield f"{name} on {index} is another project ({there['info']['summary']}): choose another name"
    elif version in there["releases"]:
        yield f"{index} has {name} {version}: raise the version in pyproject.toml"


def build(version: str) -> Path:
    """Build the wheel and the source archive, and check the wheel; returns it."""
    for old in DIST.glob("*") if DIST.is_dir() else ():
        old.unlink()
    date = run("git", "log", "-1", "--format=%ct").strip() if (ROOT / ".git").exists() else "1577836800"
    run(BIN / "hatchling", "build", "-d", DIST, SOURCE_DATE_EPOCH=date)  # equal bytes from equal code
    (wheel,) = DIST.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(opened.read(about), validate=True)
    package = (file for file in (ROOT / "src" / "perennial").rglob("*") if file.is_file())
    missing = {str(file.relative_to(ROOT / "src")) for file in package if file.suffix != ".pyc"} - set(names)
    problems = [
        *(f"{wheel.name} lacks {name}" for name in sorted(missing)),
        *(
            f"{wheel.name} lacks {needed}"
            for needed in ("LICENSE", "NOTICE")
            if not any(name.endswith(f"licenses/{needed}") for name in names)
        ),
        *([] if str(metadata.version) == version else [f"{wheel.name} is of version {metadata.version}"]),
    ]
    if problems:
        sys.exit("release: nothing was tagged:\n" + "\n".join(problems[:20]))
    return wheel


def use(wheel: Path, version: str) -> None:
    """Install the wheel with the locked packages into an empty environment, run it, and list what it holds."""
    folder = ROOT / ".work" / "release"
    run(sys.executable, "-m", "venv", "--clear", folder)
    uv = (BIN / "uv", "pip", "install", "-q", "--python", folder / "bin" / "python")
    run(*uv, "--require-hashes", "-r", "requirements/base.txt")
    run(*uv, "--no-deps", wheel)
    run(BIN / "uv", "pip", "check", "-q", "--python", folder / "bin" / "python")
    perennial = folder / "bin" / "perennial"
    if (said := run(perennial, "--version", folder=folder).strip()) != f"perennial {version}":
        sys.exit(f"release: nothing was tagged: the installed program says {said!r}")
    run(perennial, "--help", folder=folder)
    run(perennial, "models", "--json", folder=folder)
    bill = (".work/infra/bin/cyclonedx-py", "environment", "--output-reproducible")
    about = ("--pyproject", "pyproject.toml", "-o", DIST / "sbom.json", folder / "bin" / "python")
    run(*bill, *about, PYTHONWARNINGS="ignore")


if __name__ == "__main__":
    main()
