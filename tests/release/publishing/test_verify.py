"""Published models that were tampered with are refused, each with the file, what was expected and got."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support import forks
from support.exports import list_files, write_export
from support.git import git

from perennial.base import config as parameters_file
from perennial.base import files
from perennial.base.dvc import dvc_digests
from perennial.base.project.git import repository
from perennial.base.storage import open_store
from perennial.model import export_layout
from perennial.release.publishing import fetch_version, provenance
from perennial.release.publishing.publish import publish
from perennial.release.publishing.verify import verify
from perennial.release.publishing.version_layout import PROVENANCE, RECORD
from perennial.release.registry import versions

WEIGHTS, PLACE = "variables/variables.index", Path("served/digits")


def commit(config, text):
    """Commits a revision whose dvc.lock has the export and decision that are there; returns the commit."""
    paths = (config.paths.export, config.paths.decision)
    outs = [f"    - {{path: {path}, md5: {dvc_digests.digest(path)}}}" for path in paths]
    lines = [f"# {text}", "stages:", "  export:", "    cmd: x", "    outs:", *outs]
    Path("dvc.lock").write_text("\n".join(lines))
    git("add", "dvc.lock", "params.yaml")
    git("commit", "-qm", text)
    return git("rev-parse", "HEAD")


def export(config, model):
    folder = write_export(config, model)
    files.write_json(folder / export_layout.CARD, {"intended_use": "tests"})
    list_files(folder)
    (folder / files.MARK).write_bytes(files.mark("export"))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project with a version that is published, and a later commit with another model."""
    folder = tmp_path_factory.mktemp("verify")
    shutil.copy(Path(__file__).parents[3] / "params.yaml", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        git("init", "-q")
        config = parameters_file.load(Path("params.yaml"))
        export(config, "a")
        first = commit(config, "first")
        here = repository(Path(), "t", "t@t")
        here.update(versions.promotion(here, versions.read(here, "classifier"), first, {"accuracy": 0.9})[1])
        publish(config, to=str(PLACE))
        export(config, "b")
        commit(config, "second")
    return folder


@pytest.fixture
def config(made, load, workspace):
    """A copy of it, which the test works in."""
    shutil.copytree(made, workspace, dirs_exist_ok=True, symlinks=True)
    return load()


def verified(place=PLACE):
    return verify(repository(Path()), "classifier", str(place))


def change(name, edit):
    """Edits a JSON file of the version."""
    file = PLACE / "1" / name
    content = json.loads(file.read_text())
    edit(content)
    files.write_json(file, content)


def seal(*, provenance=True):
    """Makes record and provenance agree with the files, as one would who hides a change."""
    found = files.digests(PLACE / "1")
    for added in (RECORD, PROVENANCE):
        found.pop(added.as_posix(), None)
    if provenance:
        subject = [{"name": name, "digest": {"sha256": found[name]}} for name in sorted(found)]
        change(PROVENANCE, lambda content: content.update(subject=subject))
    sha256 = files.sha256(PLACE / "1" / PROVENANCE)
    change(RECORD, lambda content: content.update(files=found, provenance=sha256))


def write(name, text="other"):
    (PLACE / "1" / name).write_text(text)


def link(name):
    """Moves a file out of the version, and leaves a link to it."""
    Path("elsewhere").write_bytes((PLACE / "1" / name).read_bytes())
    (PLACE / "1" / name).unlink()
    (PLACE / "1" / name).symlink_to(Path("elsewhere").absolute())


def material(name, digest):
    """Another digest of a material of the provenance, whose own digest is recorded."""

    def edit(content):
        listed = content["predicate"]["buildDefinition"]["resolvedDependencies"]
        (found,) = (each for each in listed if each["name"] == name)
        found["digest"] = digest

    change(PROVENANCE, edit)
    seal(provenance=False)


def parameters(content):
    content["predicate"]["buildDefinition"]["externalParameters"]["params"]["train"]["epochs"] = 1


def decide(content):
    content["decision"]["candidate"]["accuracy"] = 1.0


TAMPERED = {
    "weights": (lambda: write(WEIGHTS), WEIGHTS),
    "labels": (lambda: write(export_layout.LABELS, "0:dog\n"), str(export_layout.LABELS)),
    "an additional file": (lambda: write("assets/mine"), "assets/mine"),
    "a link to an equal file": (lambda: link(WEIGHTS), WEIGHTS),
    "an additional link to a folder": (
        lambda: (PLACE / "1" / "assets" / "more").symlink_to(Path().absolute()),
        "assets/more",
    ),
    "a missing file": ((PLACE / "1" / export_layout.LABELS).unlink, str(export_layout.LABELS)),
    "weights and all lists": (lambda: [write(WEIGHTS), seal()], "models/export in dvc.lock"),
    "labels and the record": (
        lambda: [write(export_layout.LABELS), seal(provenance=False)],
        str(export_layout.LABELS),
    ),
    "provenance": (lambda: change(PROVENANCE, parameters), str(PROVENANCE)),
    "parameters in provenance and record": (
        lambda: [change(PROVENANCE, parameters), seal(provenance=False)],
        f"{PROVENANCE}: predicate",
    ),
    "another commit": (
        lambda: material("git", {"gitCommit": repository(Path()).commit_of("HEAD")}),
        "models/export in dvc.lock",
    ),
    "an unknown commit": (lambda: material("git", {"gitCommit": "0" * 40}), f"{PROVENANCE}: git"),
    "packages": (lambda: material("params.yaml", {"sha256": "0" * 64}), f"{PROVENANCE}: predicate"),
    "no provenance": ((PLACE / "1" / PROVENANCE).unlink, str(PROVENANCE)),
    "provenance that is not JSON": (lambda: [write(PROVENANCE, "{"), seal(provenance=False)], str(PROVENANCE)),
    "the decision": (lambda: change(RECORD, decide), f"{RECORD}: decision"),
    "the number": (lambda: change(RECORD, lambda content: content.update(version=2)), f"{RECORD}: version"),
}


@pytest.mark.fast_rows(
    "weights",
    "an additional file",
    "a link to an equal file",
    "weights and all lists",
    "provenance",
    "an unknown commit",
)
@pytest.mark.parametrize(("tamper", "named"), TAMPERED.values(), ids=TAMPERED)
def test_a_model_that_was_tampered_with_is_refused_with_the_file(config, tamper, named):
    tamper()
    problems = verified().problems
    assert any(each.file.startswith(named) for each in problems), problems
    assert all(each.expected != each.got for each in problems)


def test_a_whole_model_is_accepted_with_its_version(config):
    found = verified()
    assert (found.number, found.version, found.files) == (1, "v0.0.1", 8)
    assert found.commit == repository(Path()).commit_of("HEAD~1")
    statement = json.loads((PLACE / "1" / PROVENANCE).read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    fetch_version.fetch(str(PLACE), Path("fetched"))
    assert verified("fetched").problems == ()


def test_a_model_that_was_published_before_its_commit_is_found_by_its_lock(config):
    text = Path("dvc.lock").read_text()
    Path("dvc.lock").write_text(text + "\n")
    publish(config, to=str(PLACE))
    assert "git" in verified().problems[0].file
    git("commit", "-qam", "later")
    assert (verified().problems, verified().commit) == ((), repository(Path()).commit_of("HEAD"))


def test_a_model_in_s3(config, bucket):
    url = f"s3://{bucket.name}/models"
    publish(config, to=url)
    assert (verified(url).problems, verified(url).version) == ((), None)
    open_store(url).put("1/assets/labels.txt", b"0:dog\n")
    (problem,) = set(verified(url).problems)
    assert (problem.file, problem.got) == ("assets/labels.txt", hashlib.sha256(b"0:dog\n").hexdigest())


def test_the_command_ends_with_3_and_one_line(config):
    command = [forks.python(), "-m", "perennial", "verify", str(PLACE)]
    write(export_layout.LABELS)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], done.stderr.count("\n")) == (3, False, 1)
    assert found["problems"][0]["file"] == str(export_layout.LABELS)


def test_a_model_without_a_dvc_lock_is_from_no_commit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "Start")
    materials = json.loads(provenance.of_checkout("classifier", {}))["predicate"]["buildDefinition"]
    assert materials["resolvedDependencies"] == []
