"""S3, or a server with an S3-compatible API, as a store."""

import hashlib
import io
import logging
import os
import random
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar
from urllib.parse import urlsplit

from perennial.base import files
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.project.dvc import S3_CHECKSUMS
from perennial.base.retries import S3_PAUSE_MAX_S, S3_PAUSE_S, S3_TRIES, S3_TRIES_INSIDE
from perennial.base.storage import Access, Changed, Entry, Missing
from perennial.base.storage.s3_errors import Temporary, translated

log = logging.getLogger(__name__)
Result = TypeVar("Result")
CONNECT_S = 10
STALL_S = 30  # without a byte
PROGRESS_BYTES = 256 << 10
CHUNK_BYTES = 1 << 20
SINGLE_BYTES = 64 << 20  # larger files use a multipart upload
PART_BYTES = 16 << 20
PARTS = 9000  # S3 allows 10,000
CONNECTIONS = 16
MD5_DIGITS = 32
PROBE = ".perennial"
PROBE_TEXT = b"perennial tests here whether this store honours conditional writes.\n"
BY_BOTO3 = Access()
NO_SUCH_ETAG = '"00000000000000000000000000000000"'


class S3Store:
    """The objects below `s3://bucket/prefix`; methods as in `Store`.

    Unless `access` sets credentials, region and endpoint, boto3 finds them in the environment, shared files or
    roles.
    """

    def __init__(self, url: str, access: Access = BY_BOTO3) -> None:
        parts = urlsplit(url)
        self.bucket, self.prefix = parts.netloc, parts.path.strip("/")
        if not self.bucket or "@" in self.bucket or parts.query:
            raise ConfigError("an S3 URL is s3://bucket/prefix, without user, password or query")
        self.url = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self._client, self._secrets = _client(access)
        self._stopped = threading.Event()
        self._conditional: bool | None = None

    def list(self, prefix: str = "") -> Iterator[Entry]:
        """See `Store.list`."""
        for page in self._pages(prefix):
            for found in page.get("Contents", ()):
                if not found["Key"].endswith("/"):  # else the marker of an empty folder
                    key = found["Key"][len(self._key("")) :]
                    yield Entry(key=key, size=found["Size"], etag=found["ETag"], modified=found["LastModified"])

    def numbers(self) -> tuple[int, ...]:
        """See `Store.numbers`."""
        prefixes = (
            each["Prefix"][len(self._key("")) : -1]
            for page in self._pages("", Delimiter="/")
            for each in page.get("CommonPrefixes", ())
        )
        return tuple(sorted(int(each) for each in prefixes if each.isdecimal()))

    def _pages(self, prefix: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        token: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", prefix, Prefix=self._key(prefix), **arguments, **token)
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def get(
        self,
        key: str,
        file: Path,
        *,
        if_match: str | None = None,
        size: int | None = None,
        sha256: str | None = None,
    ) -> Entry:
        """See `Store.get`."""
        files.make_folder(file.parent)
        partial, mark = _partial(file, if_match)
        for last in (False, True):
            with files.naming(partial), open(partial, "ab", opener=_not_following) as stream:
                resumed = stream.tell() > 0
                entry = self._receive(key, stream, if_match, size)
            wrong = _mismatch(partial, size, sha256)
            if wrong is None and resumed and sha256 is None:
                wrong = self._damage(key, partial, entry.etag)
            if wrong is None:
                partial.replace(file)
                mark.unlink(missing_ok=True)
                return entry
            partial.unlink()
            if last or not resumed:
                raise DataError(f"{self.url}/{key} has {wrong}; {file} was not changed")
            log.warning("%s/%s has %s after resuming; starting from its first byte", self.url, key, wrong)
        raise AssertionError

    def _damage(self, key: str, file: Path, etag: str) -> str | None:
        """Compare a resumed file with its ETag if that is an MD5: a power cut may have damaged it."""
        expected = etag.strip('"')
        if len(expected) != MD5_DIGITS or (found := files.md5(file)) == expected:
            return None
        about = self._call("head_object", key, Key=self._key(key))
        if about.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in about:
            return None  # the ETag has the length of an MD5, but is another digest
        return f"the MD5 {found}, expected {expected}"

    def get_bytes(self, key: str) -> tuple[bytes, Entry]:
        """See `Store.get_bytes`."""
        stream = io.BytesIO()
        entry = self._receive(key, stream)
        return stream.getvalue(), entry

    def _receive(self, key: str, stream: IO[bytes], etag: str | None = None, size: int | None = None) -> Entry:
        """Append the missing rest of an object of this size, all from the same version of the object."""

        def attempt() -> Entry:
            nonlocal etag
            start = stream.tell()
            conditions = {} if etag is None else {"IfMatch": etag}
            if start:
                conditions["Range"] = f"bytes={start}-"
            try:
                answer = self._call_once("get_object", key, Key=self._key(key), **conditions)
            except Temporary as error:
                if error.status != 416:  # the object ends where the stream does
                    raise
                if start == size and etag is not None:
                    return Entry(key=key, size=size, etag=etag)
                stream.truncate(0)
                stream.seek(0)
                raise
            etag = etag or answer["ETag"]
            # Some servers ignore conditions.
            if answer["ETag"] != etag:
                raise Changed(f"{self.url}/{key} changed: expected the ETag {etag}, got {answer['ETag']}")
            total = self._append(key, answer, stream, start)
            return Entry(key=key, size=total, etag=etag, modified=answer.get("LastModified"))

        return self._retried(key, attempt, stream.tell)

    def _append(self, key: str, answer: dict[str, Any], stream: IO[bytes], start: int) -> int:
        """Append the body of a response; return the size of the complete object."""
        total = int(answer["ContentLength"])
        if start and str(answer.get("ContentRange", "")).startswith(f"bytes {start}-"):
            total += start
        else:  # the complete object
            stream.seek(0)
            stream.truncate()
        with closing(answer["Body"]) as body, translated(f"{self.url}/{key}", self._secrets):
            for chunk in body.iter_chunks(CHUNK_BYTES):
                stream.write(chunk)
                self._raise_if_stopped(key)
        if stream.tell() != total:
            raise Temporary(f"{self.url}/{key}: received {stream.tell():,} of {total:,} bytes")
        return total

    def put(
        self,
        key: str,
        content: bytes | Path,
        *,
        if_match: str | None = None,
        if_none_match: bool = False,
    ) -> Entry:
        """See `Store.put`."""
        conditions = {"IfMatch": if_match} if if_match else {"IfNoneMatch": "*"} if if_none_match else {}
        if isinstance(content, Path) and (size := content.stat().st_size) > SINGLE_BYTES:
            return self._put_parts(key, content, size, conditions)

        def attempt() -> Entry:
            with _opened(content) as stream:
                size, md5 = _md5(stream)
                answer = self._call_once(
                    "put_object",
                    key,
                    Key=self._key(key),
                    Body=stream,
                    ContentLength=size,
                    ContentMD5=b64encode(md5).decode(),
                    **conditions,
                )
            return Entry(key=key, size=size, etag=answer["ETag"])

        try:
            return self._retried(key, attempt)
        except Changed:
            # If the response to an earlier try was lost, the object has the content of that try.
            if found := self._as_put(key, content):
                return found
            raise
        except Missing as error:
            if if_match is None:
                raise
            raise Changed(f"{self.url}/{key} changed: it no longer exists") from error

    def _as_put(self, key: str, content: bytes | Path) -> Entry | None:
        if isinstance(content, Path):
            return None
        try:
            stored, entry = self.get_bytes(key)
        except Missing:
            return None
        return entry if stored == content else None

    def _put_parts(self, key: str, file: Path, size: int, conditions: dict[str, str]) -> Entry:
        target = {"Key": self._key(key)}
        target["UploadId"] = self._call("create_multipart_upload", key, **target)["UploadId"]
        parts: list[dict[str, Any]] = []
        digests, length = b"", max(PART_BYTES, -(-size // PARTS))
        try:
            with files.naming(file), file.open("rb") as stream:
                while part := stream.read(length):
                    md5 = _md5(io.BytesIO(part))[1]
                    part_of = {**target, "PartNumber": len(parts) + 1, "ContentMD5": b64encode(md5).decode()}
                    answer = self._call("upload_part", key, **part_of, Body=part)
                    parts.append({"ETag": answer["ETag"], "PartNumber": len(parts) + 1})
                    digests += md5
            try:
                listed = {"MultipartUpload": {"Parts": parts}}
                answer = self._call("complete_multipart_upload", key, **target, **conditions, **listed)
            except (Changed, Missing):
                # The response to an earlier try may have been lost.
                answer = self._call("head_object", key, Key=target["Key"])
                if answer["ETag"] != f'"{_md5(io.BytesIO(digests))[1].hex()}-{len(parts)}"':
                    raise
        except BaseException:
            with suppress(PerennialError):  # leftover parts cost storage
                self._call_once("abort_multipart_upload", key, **target)
            raise
        return Entry(key=key, size=size, etag=answer["ETag"])

    def delete(self, key: str) -> None:
        """See `Store.delete`."""
        self._call("delete_object", key, Key=self._key(key))

    def clear(self) -> None:
        """See `Store.clear`."""
        for entry in self.list():
            self.delete(entry.key)

    def conditional(self) -> bool:
        """See `Store.conditional`."""
        if self._conditional is None:
            self._conditional = self._probe()
        return self._conditional

    def _probe(self) -> bool:
        self._call("put_object", PROBE, Key=self._key(PROBE), Body=PROBE_TEXT)
        for condition in ({"IfNoneMatch": "*"}, {"IfMatch": NO_SUCH_ETAG}):
            try:
                self._call("put_object", PROBE, Key=self._key(PROBE), Body=PROBE_TEXT, **condition)
            except Changed:
                continue
            return False
        return True

    def stop(self) -> None:
        """See `Store.stop`."""
        self._stopped.set()

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _call(self, operation: str, key: str, **arguments: Any) -> dict[str, Any]:
        return self._retried(key, lambda: self._call_once(operation, key, **arguments))

    def _call_once(self, operation: str, key: str, **arguments: Any) -> dict[str, Any]:
        """Send one request, with boto3's own retries, and translate its errors."""
        self._raise_if_stopped(key)
        with translated(f"{self.url}/{key}", self._secrets):
            answer: dict[str, Any] = getattr(self._client, operation)(Bucket=self.bucket, **arguments)
        return answer

    def _retried(
        self, key: str, attempt: Callable[[], Result], progress: Callable[[], int] = lambda: 0
    ) -> Result:
        """Return the result of an attempt, retried after temporary errors; progress resets the tries."""
        tries, reached = 0, 0
        while True:
            try:
                return attempt()
            except Temporary as error:
                tries = 1 if progress() >= reached + PROGRESS_BYTES else tries + 1
                reached = max(reached, progress())
                if tries >= (error.tries or S3_TRIES):
                    raise PerennialError(f"{error}; try again later") from None
                pause_s = random.uniform(0, min(S3_PAUSE_MAX_S, S3_PAUSE_S * 2**tries))  # noqa: S311 - no secret
                log.debug("%s; retrying in %.1f s", error, pause_s)
                self._stopped.wait(pause_s)
                self._raise_if_stopped(key)

    def _raise_if_stopped(self, key: str) -> None:
        if self._stopped.is_set():
            raise PerennialError(f"{self.url}/{key}: stopped")


def _client(access: Access) -> tuple[Any, frozenset[str]]:
    """Return a boto3 client, and the secrets that must not appear in messages."""
    import boto3  # noqa: PLC0415 - half a second that most commands do not need
    from botocore.config import Config  # noqa: PLC0415

    settings: dict[str, Any] = {
        "retries": {"mode": "standard", "total_max_attempts": S3_TRIES_INSIDE},
        "connect_timeout": CONNECT_S,
        "read_timeout": STALL_S,
        "max_pool_connections": CONNECTIONS,
    }
    # All servers support Content-MD5, which `put` sends.
    settings |= {
        name.removeprefix("AWS_").lower(): value
        for name, value in S3_CHECKSUMS.items()
        if name not in os.environ
    }
    with translated("S3"):
        session = boto3.session.Session(
            profile_name=access.profile, region_name=access.region, aws_access_key_id=access.key_id,
            aws_secret_access_key=access.secret, aws_session_token=access.token,
        )  # fmt: skip
        client = session.client("s3", endpoint_url=access.endpoint, config=Config(**settings))
        found = session.get_credentials()
        frozen = found.get_frozen_credentials() if found else None
    return client, frozenset(filter(None, (frozen.secret_key, frozen.token) if frozen else ()))


def _partial(file: Path, etag: str | None) -> tuple[Path, Path]:
    """Return the partial file, with bytes of this version only, and the file that names the version."""
    partial, mark = file.with_name(f".{file.name}.part"), file.with_name(f".{file.name}.etag")
    known = etag is not None and mark.exists() and mark.read_text(encoding="utf-8") == etag
    if not known:
        partial.unlink(missing_ok=True)
        mark.unlink(missing_ok=True)
        if etag is not None:
            files.write_bytes(mark, etag.encode())
    return partial, mark


def _not_following(path: str, flags: int) -> int:
    """Open a file of a known name, but no link that somebody put in its place."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _mismatch(file: Path, size: int | None, sha256: str | None) -> str | None:
    if size is not None and (found := file.stat().st_size) != size:
        return f"{found:,} bytes, expected {size:,}"
    if sha256 is not None and (digest := files.sha256(file)) != sha256:
        return f"the SHA-256 {digest}, expected {sha256}"
    return None


def _opened(content: bytes | Path) -> BinaryIO:
    return io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")


def _md5(stream: BinaryIO) -> tuple[int, bytes]:
    """Return the size and MD5 of a stream, and rewind it."""
    digest = hashlib.md5(usedforsecurity=False)
    while chunk := stream.read(CHUNK_BYTES):
        digest.update(chunk)
    size = stream.tell()
    stream.seek(0)
    return size, digest.digest()
