"""`perennial forget`: nothing that shows the image is left where it may be removed, and the rest stays."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from support import kept, raw
from support.git import git
from support.odd_images import saved
from support.parameters import change_params
from support.records import data_in
from support.s3 import bucket, proxy, server
from typer.testing import CliRunner

from perennial.base import config
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.project.pins import Exclusions
from perennial.base.storage import Store, open_store
from perennial.cli import app
from perennial.data import archives, datasets
from perennial.data.datasets.readers import labelled
from perennial.data.images import accept
from perennial.data.sources.pin import collect_labels, pin
from perennial.data.tfrecord import example
from perennial.live.capture import place
from perennial.live.capture.place import KeptImage
from perennial.live.capture.same_image import Wanted
from perennial.live.label import answers, branch
from perennial.live.label.answers import Answers
from perennial.live.label.queue import Choice
from perennial.model.export import reference
from perennial.model.inference import image_inputs
from perennial.stages.convert import convert
from perennial.stages.download import download
from perennial.stages.validate import validate

__all__ = ["bucket", "proxy", "server"]
pytestmark = pytest.mark.usefixtures("forked_dvc")
T = PIL.Image.Transpose
DAYS = ("2026-11-26", "2026-11-27")
PHOTO = PIL.Image.fromarray(raw.picture(7, 160)).crop((0, 0, 160, 120))
OTHERS = [saved(PIL.Image.fromarray(raw.picture(seed, 64)), "JPEG") for seed in range(20, 26)]
SIDE = 64  # a value of dataset.max_side


def exif(orientation: int) -> PIL.Image.Exif:
    found = PIL.Image.Exif()
    found[0x0112], found[0x010E] = orientation, "Jane Doe"
    return found


def webp(image: PIL.Image.Image) -> bytes:
    return saved(image, "WEBP", quality=80)


def transparent() -> PIL.Image.Image:
    image = PHOTO.convert("RGBA")
    image.putalpha(
        PIL.Image.fromarray(raw.picture(3, 160)).crop((0, 0, 160, 120)).convert("L").point(lambda v: v | 128)
    )
    return image


def deep() -> PIL.Image.Image:
    return PIL.Image.fromarray((np.asarray(PHOTO.convert("L")).astype(np.uint16) << 8) + 77)


PLAIN, SIDEWAYS = saved(PHOTO, "JPEG", quality=92), PHOTO.transpose(T.ROTATE_90)
TURNED = saved(SIDEWAYS, "JPEG", exif=exif(6))
# What the owner has, and what a client sent of it.
CLIENTS: dict[str, tuple[bytes, bytes]] = {
    "the same JPEG": (PLAIN, PLAIN),
    "with metadata": (saved(PHOTO, "JPEG", exif=exif(1)),) * 2,
    "turned by its metadata": (TURNED, TURNED),
    "without the metadata that turn it": (TURNED, saved(SIDEWAYS, "JPEG", quality=80)),
    "mirrored": (PLAIN, saved(PHOTO.transpose(T.FLIP_LEFT_RIGHT), "JPEG")),
    "half the size": (PLAIN, saved(PHOTO.resize((80, 60)), "JPEG", quality=75)),
    "a WebP of the JPEG": (PLAIN, webp(PHOTO)),
    "a palette": (saved(PHOTO.quantize(128), "PNG"), saved(PHOTO.quantize(128), "PNG")),
    "16 bits": (saved(deep(), "PNG"), saved(deep(), "PNG")),
    "transparent": (saved(transparent(), "PNG"), saved(transparent(), "PNG")),
    "grey": (PLAIN, saved(PHOTO.convert("L"), "JPEG")),
    "HEIC": (saved(PHOTO, "HEIF"),) * 2,
    "a HEIC that the client converted": (saved(PHOTO, "HEIF"), saved(PHOTO, "JPEG")),
}  # fmt: skip


def small(image: PIL.Image.Image) -> np.ndarray:
    return np.asarray(image.convert("L").resize((8, 8), PIL.Image.Resampling.BOX), np.float64)


def shows(content: bytes) -> bool:
    """Whether a file shows the photograph, however it lies; by another measure than the program's."""
    try:
        image = PIL.Image.open(io.BytesIO(content))
        image.load()
    except (OSError, SyntaxError, ValueError):
        return False
    found = small(image)
    ways = [small(PHOTO if way is None else PHOTO.transpose(way)) for way in (None, *T)]
    return any(np.corrcoef(found.ravel(), way.ravel())[0, 1] > 0.98 for way in ways)


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files below a folder, members of tar files, and images of records; not the owner's, nor git's."""
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if not file.is_file() or name.startswith((".git/", "own/", "photo")):
            continue
        content = file.read_bytes()
        yield name, content
        if file.suffix == ".tar":
            with tarfile.open(file) as tar:
                yield from (
                    (f"{name}/{each.name}", tar.extractfile(each).read()) for each in tar if each.isfile()
                )
        if file.parent.name == "records" and ".tfrecord" in file.name:
            yield from ((name, example.parse(each)[1]) for each in data_in(file.read_bytes()))


def left(store: Store | None = None) -> list[str]:
    """Where something that shows the photograph is left."""
    found = [name for name, content in contents(Path()) if shows(content)]
    return (
        found + [each.key for each in store.list() if shows(store.get_bytes(each.key)[0])] if store else found
    )


@pytest.fixture
def project(workspace):
    """A repository with the parameters of pictures of one's own."""
    change_params(workspace / "params.yaml", {"dataset.name": "image_folder", "dataset.path": "own"})
    Path(".gitignore").write_text("/data/\n/own/\n/.work/\n")
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "Start")
    return config.load(workspace / "params.yaml")


@pytest.fixture(params=["folder", "bucket"])
def store(request, project) -> Store:
    if request.param == "folder":
        return open_store("captured")
    return open_store(f"s3://{request.getfixturevalue('bucket').name}/captured")


def kept_form(content: bytes, max_side: int | None = None) -> bytes:
    """What a server keeps of an image."""
    budget = image_inputs.PixelBudget()
    return accept.without_metadata(
        image_inputs.limited(image_inputs.to_encoded(content, budget), budget, max_side)
    )


def record(day: str, sha256: str, **fields: object) -> KeptImage:
    return kept.record(sha256=sha256, time=f"{day}T02:00:00.000+00:00", **fields)


def keep(store: Store, *images: bytes, day: str = DAYS[0]) -> list[str]:
    """Keep images as a server does; returns their digests."""
    digests = [place.put_image(store, day, each) for each in images]
    place.put_records(store, day, f"020000-{len(images)}", [record(day, each) for each in digests])
    return digests


def forget(*arguments: str, code: int = 0) -> dict:
    done = CliRunner().invoke(app, ["forget", *arguments, "--because", "asked", "--json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def said(*arguments: str) -> tuple[int, str]:
    """The exit code of the command, and what it prints to a person, in one line."""
    done = CliRunner().invoke(app, ["forget", *arguments, "--because", "asked"])
    return done.exit_code, " ".join(done.output.split())


def photo(content: bytes, name: str = "photo.jpg") -> str:
    Path(name).write_bytes(content)
    return name


@pytest.mark.parametrize(("number", "client"), [*enumerate(CLIENTS)])
def test_nothing_is_left_in_a_place(project, number, client):
    max_side = (None, SIDE)[number % 2]
    mine, sent = CLIENTS[client]
    store = open_store("captured")
    there = keep(store, kept_form(sent, max_side), *map(kept_form, OTHERS))
    assert len(left(store)) >= 1
    found = forget(photo(mine), "--kept", "captured")
    assert (left(store), found["kept_removed"], sorted(place.images(store))) == ([], 1, sorted(there[1:]))
    assert {each.sha256 for each in place.read(store)} == set(there[1:])
    assert there[0] in Exclusions.read().digests


def test_a_place_in_a_bucket_or_folder_keeps_nothing_of_any_day(store):
    keep(store, kept_form(PLAIN), kept_form(OTHERS[0]))
    keep(store, kept_form(PLAIN, SIDE), kept_form(OTHERS[0]), day=DAYS[1])
    assert forget(photo(PLAIN), "--kept", store.url)["kept_removed"] == 2
    assert (left(store), len(list(place.read(store)))) == ([], 2)


@pytest.mark.parametrize("named", ["the photo", "its digest", "the digest of the record"])
def test_statistics_are_removed_with_the_record(store, named):
    change_params(Path("params.yaml"), {"dataset.max_side": SIDE})
    digest = hashlib.sha256(kept_form(TURNED, SIDE)).hexdigest()
    lines = [record(DAYS[0], each, features=reference.packed(np.zeros(256, np.float32)), brightness=1.0)
             for each in (digest, "0" * 64)]  # fmt: skip
    place.put_records(store, DAYS[0], "020000-n2", lines)
    mine = photo(TURNED)
    what = {"the photo": mine, "its digest": digest, "the digest of the record": f"sha256:{digest}"}[named]
    assert forget(what, "--kept", store.url)["kept_removed"] == 1
    assert [each.sha256 for each in place.read(store)] == ["0" * 64]


def test_statistics_of_an_earlier_limit_are_found_by_its_history(project):
    store = open_store("captured")
    for side in (SIDE, None):
        change_params(Path("params.yaml"), {"dataset.max_side": side})
        git("commit", "-qam", f"Limit {side}")
    lines = [record(DAYS[0], hashlib.sha256(kept_form(PLAIN, SIDE)).hexdigest(), brightness=1.0,
                    features=reference.packed(np.zeros(256, np.float32)))]  # fmt: skip
    place.put_records(store, DAYS[0], "020000-n1", lines)
    assert forget(photo(PLAIN), "--kept", "captured")["kept_removed"] == 1


def test_what_cannot_be_searched_is_said(project, tmp_path, monkeypatch):
    lines = [record(DAYS[0], "0" * 64, features=reference.packed(np.zeros(256, np.float32)), brightness=1.0)]
    git("commit", "-q", "--allow-empty", "-m", "More")
    git("clone", "-q", "--depth", "1", Path.cwd().as_uri(), str(tmp_path / "shallow"))
    monkeypatch.chdir(tmp_path / "shallow")
    git("remote", "remove", "origin")  # else the older commits are fetched
    place.put_records(open_store("captured"), DAYS[0], "020000-n1", lines)
    _, output = said(photo(PLAIN), "--kept", "captured")
    assert "captured: 1 statistics have no pixels, so only their digests were compared" in output
    assert "this clone is shallow: older commits were not searched" in output


def test_a_digest_leads_to_the_image_and_so_to_its_other_forms(store):
    digests = keep(store, kept_form(PLAIN), kept_form(PLAIN, SIDE), kept_form(saved(PHOTO, "JPEG", quality=60)))
    assert (forget(digests[1], "--kept", store.url)["kept_removed"], left(store)) == (3, [])


def test_a_damaged_record_does_not_keep_the_digest(project):
    store = open_store("captured")
    (digest,) = keep(store, kept_form(PLAIN))
    key = f"{DAYS[0]}/records/030000-ab.jsonl"
    store.put(key, b'{"sha256": "%s", "top": [[\n{"time": 3}\n' % digest.encode())
    forget(photo(PLAIN), "--kept", "captured")
    assert store.get_bytes(key)[0] == b'{"time": 3}\n'


def test_places_that_were_used_here_are_searched_without_naming_them(project):
    change_params(Path("params.yaml"), {"monitor.traffic": "watched"})
    for name in ("watched", "served"):
        keep(open_store(name), kept_form(PLAIN))
    place.note_place(project.paths.work, "served")
    assert (forget(photo(PLAIN))["kept_removed"], left()) == (2, [])


def drawn(project, *images: bytes, name: str = 'cat, "tabby"\nof two lines') -> Answers:
    """A queue of images, of which all but the last have this label."""
    keep(open_store("captured"), *images)
    answers = Answers(project.paths.work / "label")
    queue = answers.draw("captured", Choice(count=len(images)))
    for each in queue.images[:-1]:
        answers.add(each, name, "Ada")
    return answers


def test_a_queue_its_images_and_its_answers_forget_the_image(project):
    answers = drawn(project, kept_form(PLAIN), *map(kept_form, OTHERS))
    digest = hashlib.sha256(kept_form(PLAIN)).hexdigest()
    others = set(answers.labels()) - {digest}
    found = forget(photo(saved(PHOTO, "JPEG", quality=60)))
    assert (left(), len(answers.drawn().images), set(answers.labels())) == ([], len(OTHERS), others)
    assert digest not in "".join(file.read_text(errors="ignore") for file in answers.folder.glob("*.*"))
    assert str(answers.folder) in found["images"][0]["found"]


def test_an_image_that_only_the_queue_has_is_found(project):
    drawn(project, kept_form(PLAIN))
    (image,) = place.images(open_store("captured")).values()
    open_store("captured").delete(image)
    forget(photo(PLAIN))
    assert left() == []


def merged(project, *images: bytes, push: bool = False) -> Answers:
    """Labels of images, merged from a branch."""
    answers = drawn(project, *images, kept_form(OTHERS[5]), name="cat")
    for each in answers.drawn().images:
        if each.sha256 not in answers.labels():
            answers.add(each, "cat", "Ada")
    branch.make(project, answers, "new", push=push)
    git("merge", "-q", "--no-edit", "new")
    return answers


def test_a_labelled_image_and_its_row_leave_the_project_and_git_says_where_it_still_is(project):
    merged(project, kept_form(PLAIN), *map(kept_form, OTHERS[:2]))
    git("branch", "other")
    found = forget(photo(PLAIN))
    assert (left(), len(labelled.parse(labelled.TABLE.read_text()))) == ([], 3)
    (there,) = found["git"]
    assert there["path"].startswith("labels/images/")
    assert {"main", "new", "other"} <= set(there["references"])
    assert f"git filter-repo --invert-paths --path {there['path']}" in said("photo.jpg")[1]


def keep_by_dvc(remote: str):
    """Let labelled images be in DVC's cache and remote, pushed and merged."""
    git("init", "-q", "--bare", "server.git")
    git("remote", "add", "origin", "server.git")
    change_params(Path("params.yaml"), {"label.images": "dvc"})
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], check=True)
    assert CliRunner().invoke(app, ["remote", "add", "storage", remote]).exit_code == 0
    with Path(".gitignore").open("a") as stream:
        stream.write("/server.git/\n/storage/\n/captured/\n/photo.jpg\n")
    git("add", ".")
    git("commit", "-qm", "Keep labelled images in DVC")
    changed = config.load(Path("params.yaml"))
    merged(changed, kept_form(PLAIN), *map(kept_form, OTHERS[:2]), push=True)
    return changed


@pytest.fixture
def kept_by_dvc(project):
    return keep_by_dvc(str(Path("storage").absolute()))


def test_a_clone_gets_the_labelled_images_of_dvc_and_git_has_none(kept_by_dvc, monkeypatch):
    names = git("log", "--all", "--format=", "--name-only", "--", "labels").split()
    assert {Path(each).suffix for each in names} == {".csv", ".dvc", ""}
    assert git("status", "--porcelain") == ""
    git("clone", "-q", "server.git", "clone", "--branch", "new")
    monkeypatch.chdir("clone")
    pin(kept_by_dvc)
    Path("raw").mkdir()
    collect_labels(Path("raw"))
    members = {Path(each.name).stem for each in archives.contents(Path("raw", labelled.TAR))}
    assert members - {"labels", "images"} == labelled.parse(labelled.TABLE.read_text()).keys()
    assert "labels" not in git("status", "--porcelain")


@pytest.mark.parametrize(
    ("named", "pulled"),
    [
        ("digest", True),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("digest", False), ("file", True))),
    ],
)
def test_a_labelled_image_of_dvc_leaves_its_cache_and_remote(kept_by_dvc, pulled, named):
    if pulled:
        pin(kept_by_dvc)
        Path("raw").mkdir()
        collect_labels(Path("raw"))
        shutil.rmtree("raw")
    shutil.rmtree(".work")
    digest = hashlib.sha256(kept_form(PLAIN)).hexdigest()
    there = [*labelled.IMAGES.glob(f"*{labelled.POINTER}")]
    assert any(name.startswith("storage") for name in left())
    found = forget(photo(saved(PHOTO, "JPEG", quality=60)) if named == "file" else digest, "--kept", "captured")
    Path("photo.jpg").unlink(missing_ok=True)
    assert (left(), found["not_searched"]) == ([], {})
    assert digest not in labelled.TABLE.read_text()
    assert {*labelled.IMAGES.glob(f"*{labelled.POINTER}")} == {
        each for each in there if digest not in each.name
    }
    git("add", ".")
    git("commit", "-qm", "Forget")
    audited = CliRunner().invoke(app, ["audit", "--all"])
    assert audited.exit_code == 0, audited.output


def versions(bucket) -> tuple[list[bool], int]:
    """Whether each version of DVC's objects shows the photograph, and the number of marks of deletion."""
    found = bucket.list_object_versions(Bucket=bucket.name, Prefix="dvc/")
    names = [{"Key": each["Key"], "VersionId": each["VersionId"]} for each in found["Versions"]]
    there = [bucket.get_object(Bucket=bucket.name, **each)["Body"].read() for each in names]
    return sorted(map(shows, there)), len(found.get("DeleteMarkers", ()))


@pytest.mark.parametrize("versioning", [pytest.param((), marks=pytest.mark.slow), ("Enabled", "Suspended")])
def test_no_version_of_a_labelled_image_stays_in_the_bucket_of_a_remote(project, bucket, versioning):
    for each in versioning:
        bucket.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": each})
    keep_by_dvc(f"{bucket.url}/dvc")
    assert versions(bucket) == ([False] * 3 + [True], 0)
    forget(photo(saved(PHOTO, "JPEG", quality=60)), "--kept", "captured")
    assert versions(bucket) == ([False] * 3, 0)


def test_versions_that_may_not_be_listed_are_named_and_the_rest_is_freed(project, proxy, bucket):
    bucket.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    keep_by_dvc(f"{bucket.url}/dvc")
    proxy.denies = lambda _method, path, _headers: "versions" in path
    code, output = said(photo(PLAIN), "--kept", "captured")
    assert (code, left(), versions(bucket)) == (1, [], ([False] * 3 + [True], 1))
    assert "DVC's remote may keep some: s3://" in output
    assert "its old versions stay until the bucket's rules end them" in output
    proxy.denies = lambda *_: False
    forget(hashlib.sha256(kept_form(PLAIN)).hexdigest())  # DVC has no object of it any more
    assert versions(bucket) == ([False] * 3, 0)


def test_another_project_of_the_same_remote_is_told_and_forgets_it_too(kept_by_dvc, tmp_path, monkeypatch):
    git("clone", "-q", ".", str(tmp_path / "other"))
    forget(photo(PLAIN), "--kept", "captured")
    monkeypatch.chdir(tmp_path / "other")
    Path("raw").mkdir()
    pin(kept_by_dvc)
    with pytest.raises(PerennialError, match=r"`dvc pull` failed: labels/images/0ab7"):
        collect_labels(Path("raw"))
    forget(photo(PLAIN))
    pin(kept_by_dvc)
    collect_labels(Path("raw"))


def test_without_a_remote_no_branch_is_made(project):
    subprocess.run([sys.executable, "-m", "dvc", "init", "-q"], check=True)
    change_params(Path("params.yaml"), {"label.images": "dvc"})
    with pytest.raises(
        ConfigError, match=r"needs a remote of DVC.*nothing was committed; `perennial remote add"
    ):
        merged(config.load(Path("params.yaml")), kept_form(PLAIN))
    assert git("branch", "--list", "new") == ""


def test_a_branch_to_come_does_not_take_the_image_again(project):
    answers = merged(project, kept_form(PLAIN), kept_form(OTHERS[0]))
    forget(photo(PLAIN))
    (late,) = keep(open_store("captured"), kept_form(OTHERS[1]), day=DAYS[1])
    (queued,) = answers.draw("captured", Choice(count=9)).images
    assert queued.sha256 == late
    answers.add(queued, "cat", "Ada")
    branch.make(project, answers, "new", push=False)
    names = git("ls-tree", "-r", "--name-only", "new").splitlines()
    blobs = [
        subprocess.run(["git", "show", f"new:{name}"], capture_output=True, check=True).stdout for name in names
    ]
    digest = hashlib.sha256(kept_form(PLAIN)).hexdigest()
    assert [
        name for name, blob in zip(names, blobs, strict=True) if shows(blob) or digest.encode() in blob
    ] == []
    assert f"labels/images/{late}.jpg" in names


def test_an_image_that_others_labelled_is_named_on_the_remote_and_excluded(project, tmp_path):
    merged(project, kept_form(saved(PHOTO, "JPEG", quality=60)))
    git("clone", "-q", "--bare", ".", str(tmp_path / "remote.git"))
    git("remote", "add", "origin", str(tmp_path / "remote.git"))  # not fetched here
    shutil.rmtree("captured")
    shutil.rmtree(".work")
    git("reset", "-q", "--hard", "HEAD~1")
    git("branch", "-qD", "new")
    found = forget(photo(PLAIN))
    (there,) = found["git"]
    assert set(there["references"]) == {"origin/main", "origin/new"}
    assert Path(there["path"]).stem in Exclusions.read().digests


def test_a_remote_that_does_not_answer_is_an_error_after_the_rest_is_done(project):
    keep(open_store("captured"), kept_form(PLAIN))
    git("remote", "add", "origin", "/nowhere/remote.git")
    found = forget(photo(PLAIN), "--kept", "captured", code=1)
    assert (left(), list(found["not_searched"])) == ([], ["origin"])


def test_an_image_that_was_committed_by_mistake_is_named(project):
    Path("shots").mkdir()
    Path("shots/a b.jpg").write_bytes(PLAIN)
    git("add", "-f", "shots")
    git("commit", "-qm", "Oops")
    git("rm", "-rq", "shots")
    git("commit", "-qm", "Better")
    assert forget(photo(PLAIN))["git"] == [{"path": "shots/a b.jpg", "references": []}]


def test_an_image_of_a_commit_that_was_amended_away_is_named(project):
    merged(project, kept_form(PLAIN))
    git("checkout", "-q", "--orphan", "other")
    git("rm", "-rqf", "labels")
    git("commit", "-qm", "Without it")
    for name in git("for-each-ref", "--format=%(refname)", "refs/heads").split():
        if name != "refs/heads/other":
            git("update-ref", "-d", name)
    shutil.rmtree("captured")
    shutil.rmtree(".work")
    (there,) = forget(photo(PLAIN))["git"]
    assert (there["path"].startswith("labels/images/"), there["references"]) == (True, [])


COPIED = {"as it is": PLAIN, "HEIC": saved(PHOTO, "HEIF"), "smaller": saved(PHOTO.resize((80, 60)), "PNG")}


@pytest.mark.parametrize("copied", COPIED.values(), ids=COPIED)
def test_copies_of_the_source_and_what_a_killed_command_left_are_removed(project, copied):
    old, new, copies = (project.paths.work / name for name in ("monitor-a1", "monitor-b2", "source/0f/3c"))
    for folder in (old, new, copies):
        folder.mkdir(parents=True)
        (folder / "1").write_bytes(copied)
    (copies / "2").write_bytes(OTHERS[0])
    os.utime(old, (1, 1))
    assert forget(photo(PLAIN))["kept_removed"] == 1
    assert [old.exists(), new.exists(), sorted(each.name for each in copies.iterdir())] == [False, True, ["2"]]


def test_what_another_process_removes_meanwhile_is_no_error(project, monkeypatch):
    store = open_store("captured")
    keep(store, kept_form(PLAIN), day=DAYS[0])
    keep(store, kept_form(PLAIN), *map(kept_form, OTHERS), day=DAYS[1])
    wanted = Wanted()
    wanted.add(0, PLAIN)
    found = list(store.list())
    shutil.rmtree(f"captured/{DAYS[0]}")  # as a server does with old days, after they were listed
    monkeypatch.setattr(type(store), "list", lambda self, prefix="": iter(found))
    assert sum(place.remove_images(store, wanted).values()) == 1


def trained(project, **changes: object) -> Callable[[], int]:
    """Records of pictures of one's own; the result counts them when they are made again."""
    change_params(Path("params.yaml"), changes)
    raw.write_pictures(Path("own"))

    def run() -> int:
        found = config.load(Path("params.yaml"))
        pin(found).write()
        download(found)
        convert(found)
        validate(found)
        return sum(len(data_in(file.read_bytes())) for file in found.paths.records.glob("*.tfrecord*"))

    return run


OWN = {
    "the file itself": (PLAIN, PLAIN, None),
    "another encoding that is reduced": (PLAIN, saved(PHOTO, "JPEG", quality=70), SIDE),
    "mirrored": (PLAIN, saved(PHOTO.transpose(T.FLIP_LEFT_RIGHT), "PNG"), None),
}


@pytest.mark.parametrize("kind", OWN)
def test_records_to_come_leave_out_what_shows_the_image(project, kind):
    mine, theirs, side = OWN[kind]
    run = trained(project, **{"dataset.max_side": side})
    Path("own/cat/photo").write_bytes(theirs)
    Path("own/cat/photo").rename("own/cat/mine.img.png")
    before = run()
    found = forget(photo(mine))
    assert (sum(found["images"][0]["found"]["records"].values()), run()) == (1, before - 1)
    assert [name for name in left() if "records" in name] == []
    assert Path("own/cat/mine.img.png").read_bytes() == theirs


def test_what_a_killed_search_leaves_is_what_the_next_one_removes(project, monkeypatch):
    folders, run = [], trained(project)
    Path("own/cat/photo.jpeg").write_bytes(PLAIN)
    run()
    read = datasets.read
    monkeypatch.setattr(datasets, "read", lambda *given: folders.append(given[2]) or read(*given))
    forget(photo(PLAIN))
    assert any(folders[0].match(name) for name in answers.LEFT)


@pytest.mark.fast_rows("another encoding")
@pytest.mark.parametrize("named", ["another encoding", "the digest of the record"])
def test_records_of_another_limit_leave_it_out_too(project, named):
    run = trained(project, **{"dataset.max_side": SIDE})
    Path("own/cat/large.jpeg").write_bytes(PLAIN)
    before = run()
    reduced = accept.limited(accept.accepted(PLAIN, ""), SIDE)
    is_digest = named == "the digest of the record"
    forget(
        hashlib.sha256(reduced.encoded).hexdigest() if is_digest else photo(saved(PHOTO, "JPEG", quality=60))
    )
    change_params(Path("params.yaml"), {"dataset.max_side": SIDE + 16})
    assert run() == before - 1


def test_records_that_were_written_after_their_validation_are_not_passed_over(project):
    run = trained(project)
    run()
    Path("own/cat/aaa.png").write_bytes(saved(PHOTO, "PNG"))
    found = config.load(Path("params.yaml"))
    pin(found).write()
    download(found)
    convert(found)
    assert "none that were validated, so none were searched" in said(photo(PLAIN))[1]


@pytest.mark.slow
def test_a_model_to_come_is_not_trained_on_a_labelled_image_even_if_it_is_merged_later(project):
    run = trained(project)
    merged(project, kept_form(PLAIN, SIDE), kept_form(OTHERS[0]))
    before = run()
    forget(photo(PLAIN))
    git("checkout", "-q", "--", "labels")  # as a merge of an earlier branch does
    assert (run(), [name for name in left() if "records" in name]) == (before - 1, [])


def test_several_images_are_told_apart(project):
    store = open_store("captured")
    keep(store, kept_form(PLAIN), kept_form(OTHERS[0]), kept_form(OTHERS[1]))
    Path("other.jpg").write_bytes(OTHERS[1])
    found = forget(photo(PLAIN), "other.jpg", "--kept", "captured")
    assert [each["found"] for each in found["images"]] == [{"captured": {"file": 1}}] * 2
    assert len(place.images(store)) == 1


def test_what_is_found_nowhere_is_said_and_excluded_all_the_same(project):
    keep(open_store("captured"), *map(kept_form, OTHERS))
    assert forget(photo(PLAIN), "--kept", "captured", code=3)["kept_removed"] == 0
    undecoded, digest = photo(b"\0\0\0\x18ftypheic" + b"x" * 99, "photo.heic"), "ab" * 32
    for image, code, words in (
        ("photo.jpg", 3, "photo.jpg: found nowhere, so nothing of it was removed"),
        (undecoded, 3, "photo.heic: not a format that is read here"),
        (digest, 0, f"{digest}: found nowhere here"),
    ):
        found, output = said(image)
        assert (found, words in output) == (code, True), output
    assert {digest, hashlib.sha256(PLAIN).hexdigest()} <= set(Exclusions.read().digests)


def test_a_place_that_cannot_be_reached_is_an_error_after_the_rest_is_done(project, bucket):
    keep(open_store("captured"), kept_form(PLAIN))
    forget(photo(PLAIN), "--kept", "s3://nobody-has-this/x", "--kept", "captured", code=1)
    assert left(open_store("captured")) == []


def test_a_place_that_does_not_exist_is_refused_before_anything_changes(project):
    assert (said(photo(PLAIN), "--kept", "captrued")[0], Exclusions.read().digests) == (2, [])


def test_images_of_a_burst_stay(project):
    store = open_store("captured")
    shifted = PIL.Image.fromarray(np.roll(np.asarray(PHOTO), 2, axis=1))
    keep(store, kept_form(saved(shifted, "JPEG")), kept_form(PLAIN))
    assert forget(photo(PLAIN), "--kept", "captured")["kept_removed"] == 1


def test_two_files_of_one_image_are_found_together(project):
    keep(open_store("captured"), kept_form(PLAIN))
    Path("photo-copy.jpg").write_bytes(PLAIN)
    Path("photo-small.webp").write_bytes(webp(PHOTO.resize((120, 90))))
    digest = hashlib.sha256(PLAIN).hexdigest()
    names = (photo(PLAIN), "photo-copy.jpg", "photo-small.webp", digest)
    assert forget(*names, "--kept", "captured")["kept_removed"] == 1
    small = hashlib.sha256(Path("photo-small.webp").read_bytes()).hexdigest()
    assert {digest, small} <= set(Exclusions.read().digests)


def test_a_place_on_a_disk_that_is_not_mounted_is_not_passed_over(project):
    place.note_place(project.paths.work, "captured")
    code, output = said(photo(PLAIN))
    assert (code, "captured may keep some: there is no such folder" in output) == (1, True)
