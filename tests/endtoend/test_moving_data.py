"""Nights over a bucket that grows: each fetches what is new, and one without news runs nothing."""

import json
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from support import raw, s3
from support.checkout import Checkout
from support.git import IDENTITY

from perennial.orchestration.engine import this_run
from perennial.orchestration.work.stage_failures import StageFailed
from tasks import stages

STAGES = ("download", "convert", "validate")
PINS = ("dvc.lock", "pins/source.json", "pins/baseline.json")


class Nights:
    """A checkout whose data lie in a bucket, behind a proxy that counts requests."""

    def __init__(self, checkout: Checkout, proxy: Any, client: Any) -> None:
        self.checkout, self.proxy, self.client = checkout, proxy, client
        self.environment = {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": proxy.url}

    def put(self, folder: Path) -> None:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            key = f"photos/{file.relative_to(folder).as_posix()}"
            self.client.put_object(Bucket="bucket", Key=key, Body=file.read_bytes())

    def run(self, *names: str, tries: int = 1) -> list[str]:
        """The result of each task, without a flow, which would need a server; `tries`: of the first one."""
        environment = self.checkout.environment(**self.environment)
        with chdir(self.checkout.folder), pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(this_run, "tries", lambda: tries)
            try:
                if tries == 1:
                    stages.pin.__wrapped__({}, fetch=False)
                return ["results:", *(getattr(stages, name).__wrapped__({})[name] for name in names or STAGES)]
            except StageFailed as error:
                return ["failed:", str(error.exit_code), error.message]

    def commit(self) -> None:
        self.checkout.must("git", "add", *PINS)
        self.checkout.must("git", *IDENTITY, "commit", "-qm", "Night")
        self.checkout.must("dvc", "push", "-q")

    def requests(self) -> tuple[list[str], int]:
        """Objects that were fetched since the last call, and the number of other requests."""
        return self.proxy.requests("/photos/")

    def json(self, name: str) -> Any:
        return json.loads((self.checkout.folder / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def nights(make_checkout, tmp_path_factory) -> Iterator[Nights]:
    with pytest.MonkeyPatch.context() as patch, s3.moto() as url:
        for name, value in s3.CREDENTIALS.items():
            patch.setenv(name, value)
        client, proxy = s3.create_bucket(url), s3.Proxy(url)
        checkout = make_checkout("nights")
        checkout.set("dataset", name="image_folder", url="s3://bucket/photos")
        checkout.set("validate.severity", near_duplicate="ignore")
        remote = tmp_path_factory.mktemp("remote")
        checkout.dvc("remote", "add", "-q", "-d", "folder", str(remote))
        checkout.commit("Source")
        yield Nights(checkout, proxy, client)
        proxy.end()


@pytest.mark.slow
def test_nights_over_a_bucket(nights: Nights, tmp_path: Path) -> None:
    """One story, in order: each night starts from the commit of the one before."""
    first, more = tmp_path / "first", tmp_path / "more"
    raw.write_pictures(first, each=12)
    raw.write_pictures(more, classes=("cat",), each=13)
    new = sorted((more / "cat").glob("12.*"))

    nights.put(first)
    assert nights.run() == ["results:", "ran", "ran", "ran"]
    fetched, others = nights.requests()
    assert len(fetched) == 36
    assert others == 2  # listed by the pin and by the stage
    assert nights.json("pins/baseline.json") == {"dataset": None, "statistics": None}
    nights.commit()
    before = nights.json("data/validation.json")["statistics"]

    for file in new:
        nights.client.put_object(Bucket="bucket", Key=f"photos/cat/{file.name}", Body=file.read_bytes())
    nights.requests()
    assert nights.run() == ["results:", "ran", "ran", "ran"]
    assert nights.requests() == ([f"cat/{file.name}" for file in new], 2)
    found = nights.json("data/validation.json")["statistics"]
    assert nights.json("pins/baseline.json")["statistics"]["manifest"] == before["manifest"]
    assert found["drift"]["since"] == before["manifest"] != found["manifest"]
    assert "up to date" in nights.checkout.dvc("status", *STAGES)
    nights.commit()

    assert nights.run() == ["results:", "up to date", "up to date", "up to date"]
    assert nights.requests() == ([], 1)
    assert nights.checkout.must("git", "status", "--porcelain", *PINS) == ""

    _upload_in_parts(nights.client, "photos/cat/00.png", (first / "cat" / "00.png").read_bytes())
    nights.requests()
    assert nights.run() == ["results:", "ran", "up to date", "up to date"]
    assert nights.requests() == (["cat/00.png"], 2)
    nights.commit()
    _clone_is_clean(nights.checkout, tmp_path)


def _upload_in_parts(client: Any, key: str, content: bytes) -> None:
    """The same bytes under another ETag."""
    target = {"Bucket": "bucket", "Key": key}
    target["UploadId"] = client.create_multipart_upload(**target)["UploadId"]
    etag = client.upload_part(**target, PartNumber=1, Body=content)["ETag"]
    client.complete_multipart_upload(**target, MultipartUpload={"Parts": [{"ETag": etag, "PartNumber": 1}]})


def _clone_is_clean(checkout: Checkout, folder: Path) -> None:
    """Git and DVC's remote give the data of each night, without the bucket."""
    clone = Checkout(folder / "clone", checkout.home)
    checkout.must("git", "clone", "-q", str(checkout.folder), str(clone.folder))
    for revision in ("HEAD~2", "HEAD"):
        clone.must("git", "checkout", "-q", revision)
        clone.must("dvc", "pull", "-q", *STAGES)
        assert "up to date" in clone.dvc("status", *STAGES)


@pytest.mark.slow
def test_a_source_that_changes_while_it_is_read_is_pinned_again_by_the_next_try(nights: Nights) -> None:
    """Runs after the nights, or before them: it needs objects of its own only."""

    def put(seed: int, kind: str = "cat") -> None:
        content = raw.encoded(raw.picture(seed))
        nights.client.put_object(Bucket="bucket", Key=f"photos/{kind}/late.png", Body=content)

    put(5000)
    put(5001, "dog")
    s3.before_objects(nights.proxy, lambda: put(6000))
    failed = nights.run("download")
    assert failed[:2] == ["failed:", "1"]
    assert "changed during the read" in failed[2]
    assert nights.run("download", tries=2) == ["results:", "ran"]
