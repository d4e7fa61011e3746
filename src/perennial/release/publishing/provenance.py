"""Provenance of a published model: an in-toto Statement with SLSA's predicate, beside its files.

It depends only on the files and the revision, so that anyone with a clone can create it again and
compare. Sources: https://in-toto.io/Statement/v1, https://slsa.dev/spec/v1.0/provenance
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from perennial.base import documents, files
from perennial.base.dvc import dvc_lock
from perennial.base.errors import PerennialError
from perennial.base.layout import Project
from perennial.base.project import code_digests, pins
from perennial.base.project.git import Repository, repository
from perennial.base.stage_state.environment import EXTRAS, OWN
from perennial.release.registry.versions import read_artifact

STATEMENT, PREDICATE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
BUILD_TYPE, BUILDER = "urn:perennial:dvc-pipeline:v1", "urn:perennial:retrain:v1"
PARAMS = Path("params.yaml")
PINNED = (pins.Exclusions.FILE, *pins.FILES, pins.FOLDER / "baseline.json")
# Files of a revision that determine a model: results by digest, parameters, pins, packages.
MATERIALS = (dvc_lock.FILE, Path("dvc.yaml"), PARAMS, *PINNED, Path("digests.json"))
SHARED = (  # by the pipelines of a project
    Path(code_digests.FILE),
    *(Path("requirements", f"{name}.yaml") for name in ("data", "train", "evaluate", "export")),
    *(Path("requirements", f"{name}.txt") for name in ("base", OWN.stem, "gpu", "ray", *EXTRAS)),
)
Reader = Callable[[Path], bytes | None]


def statement(read_file: Reader, commit: str | None, products: Mapping[str, str]) -> dict[str, Any]:
    """Build the statement for the files of a model, by SHA-256, and the revision that `read_file` reads."""
    # `commit`: None if the revision has not been committed yet.
    contents = {file.as_posix(): read_file(file) for file in (*MATERIALS, *map(Project.find().shared, SHARED))}
    found = {name: content for name, content in contents.items() if content is not None}
    materials: list[dict[str, Any]] = [
        {"name": name, "digest": {"sha256": hashlib.sha256(content).hexdigest()}}
        for name, content in found.items()
    ]
    if commit is not None:
        materials.insert(0, {"name": "git", "digest": {"gitCommit": commit}})
    source = documents.json_object(read_file(pins.SourcePin.FILE) or b"")
    if source.get("url"):
        digest = {"sha256": source.get("listing_sha256")}
        counts = {"objects": source.get("objects"), "bytes": source.get("bytes")}
        materials.append({"name": "source", "uri": source["url"], "digest": digest, "annotations": counts})
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": products[name]}} for name in sorted(products)],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"params": _yaml(found.get(PARAMS.as_posix()))},
                "resolvedDependencies": materials,
            },
            "runDetails": {"builder": {"id": BUILDER}},
        },
    }


def of_checkout(artifact: str, products: Mapping[str, str]) -> bytes:
    """Build the statement for a model of this checkout, as JSON."""
    # The commit is the version's, or HEAD, whose dvc.lock is the one here; outside of git there is none.
    read_file: Reader = _read_here
    commit: str | None = None
    with suppress(PerennialError):
        git, lock = repository(Path()), _read_here(dvc_lock.FILE)
        if lock and (commit := _commit_with(git, artifact, lock)):
            read_file = reader(git, commit)
    return files.json_bytes(statement(read_file, commit, products))


def _commit_with(git: Repository, artifact: str, lock: bytes) -> str | None:
    """The newest version, else HEAD, whose dvc.lock has these bytes; None if neither has."""
    registered = [each.commit for each in reversed(read_artifact(git, artifact).versions)]
    candidates = git.blobs(dvc_lock.FILE, [*registered, *filter(None, [git.commit_of("HEAD")])])
    wanted = git.run("hash-object", "--stdin", stdin=lock.decode("utf-8", "surrogateescape"))
    return next((commit for commit, blob in candidates.items() if blob == wanted), None)


def reader(git: Repository, commit: str) -> Reader:
    """A function that reads the files of a commit."""
    return lambda file: git.blob(f"{commit}:./{file.as_posix()}")


def _read_here(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _yaml(content: bytes | None) -> Any:
    """Parse parameters to JSON values; None if they cannot be read."""
    try:
        return json.loads(json.dumps(documents.parse_yaml((content or b"").decode())))
    except (ValueError, TypeError):
        return None
