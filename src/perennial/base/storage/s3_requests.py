"""The requests to S3, or to a server with an S3-compatible API: each function sends one."""

import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from perennial.base import limits
from perennial.base.errors import ConfigError
from perennial.base.storage import Entry
from perennial.base.storage.s3_errors import CHECKSUM_SETTINGS, ENDPOINT_HINT, translated

CONNECT_S = 10
STALL_S = 30  # without a byte
CHUNK_BYTES = 1 << 20
CONNECTIONS = 16
PLAIN_ETAG = re.compile('"([0-9a-f]{32})"')  # of an object that was written in one request
# Options of a DVC remote, by the names that boto3 gives them.
CLIENT_OPTIONS = {
    "endpointurl": "endpoint_url",
    "region": "region_name",
    "profile": "profile_name",
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}
WRITE_OPTIONS = {  # headers of every write
    "sse": "ServerSideEncryption",
    "sse_kms_key_id": "SSEKMSKeyId",
    "acl": "ACL",
    "grant_read": "GrantRead",
    "grant_read_acp": "GrantReadACP",
    "grant_write_acp": "GrantWriteACP",
    "grant_full_control": "GrantFullControl",
}
CUSTOMER_KEY = "sse_customer_key"  # of every request for an object, as the next
CUSTOMER_ALGORITHM = "sse_customer_algorithm"
OPTIONS = frozenset((*CLIENT_OPTIONS, *WRITE_OPTIONS, CUSTOMER_KEY, CUSTOMER_ALGORITHM))


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer to a list request."""

    entries: tuple[Entry, ...]
    folders: tuple[str, ...]  # keys that end with `/`, if the request asked for folders
    after: str | None  # where the next page starts; None: this is the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The content of an object from an offset, as it arrives."""

    entry: Entry
    start: int
    chunks: Iterator[bytes]


class Requests:
    """Requests for the objects below `s3://bucket/prefix`; all keys are below it."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self.bucket, self._prefix = parts.netloc, parts.path.strip("/")
        if not self.bucket or "@" in self.bucket or {"?", "#"} & set(url) or parts.path.startswith("//"):
            # DVC would take the last two as parts of names.
            raise ConfigError("the URL must be s3://bucket/prefix, without user, password, `?`, `#` or `//`")
        self.url = f"s3://{self.bucket}/{self._prefix}".rstrip("/")
        self.keeps_versions = False  # as far as answers say
        self._client, self._secrets = _client(options)
        self._key_headers = _customer_key(options)
        written = {name: options[key] for key, name in WRITE_OPTIONS.items() if key in options}
        self._write_headers = {**self._key_headers, **written}
        self._secrets |= frozenset(filter(None, [options.get(CUSTOMER_KEY)]))

    def page(self, prefix: str, after: str | None, *, folders: bool) -> Page:
        """List a page of the keys with a prefix."""
        options = {"Prefix": self._name(prefix)} | ({"Delimiter": "/"} if folders else {})
        token = {"ContinuationToken": after} if after else {}
        page = self._call("list_objects_v2", prefix, "IsTruncated", **options, **token)
        below = len(self._name(""))
        return Page(
            entries=tuple(_entry(each["Key"][below:], each, each["Size"]) for each in page.get("Contents", ())),
            folders=tuple(each["Prefix"][below:] for each in page.get("CommonPrefixes", ())),
            after=page["NextContinuationToken"] if page.get("IsTruncated") else None,
        )

    def about(self, key: str) -> Entry:
        """Describe an object."""
        found = self._call("head_object", key, "ETag", Key=self._name(key), **self._key_headers)
        return _entry(key, found, found["ContentLength"])

    @contextmanager
    def reading(self, key: str, etag: str | None, start: int) -> Iterator[Content]:
        """Provide an object's content from an offset, or from 0 if the server knows no offsets."""
        conditions = {"Key": self._name(key)} | ({} if etag is None else {"IfMatch": etag})
        if start:
            conditions["Range"] = f"bytes={start}-"
        answer = self._call("get_object", key, "ETag", **conditions, **self._key_headers)
        if not str(answer.get("ContentRange", "")).startswith(f"bytes {start}-"):
            start = 0
        entry = _entry(key, answer, start + int(answer["ContentLength"]))
        with closing(answer["Body"]) as body, translated(f"{self.url}/{key}", self._secrets):
            yield Content(entry=entry, start=start, chunks=body.iter_chunks(CHUNK_BYTES))

    def write(self, key: str, stream: BinaryIO, size: int, md5: bytes, conditions: Mapping[str, str]) -> str:
        """Write an object, whose MD5 the server compares, and return its ETag."""
        answer = self._call(
            "put_object", key, "ETag", Key=self._name(key), Body=stream, ContentLength=size,
            ContentMD5=b64encode(md5).decode(), **conditions, **self._write_headers,
        )  # fmt: skip
        self.keeps_versions |= "VersionId" in answer
        return str(answer["ETag"])

    def begin_parts(self, key: str) -> str:
        """Begin a write in parts, and return its id."""
        named = {"Key": self._name(key), **self._write_headers}
        answer = self._call("create_multipart_upload", key, "UploadId", **named)
        return str(answer["UploadId"])

    def write_part(self, key: str, upload: str, number: int, part: bytes, md5: bytes) -> str:
        """Write a part, and return its ETag; numbers start at 1."""
        answer = self._call(
            "upload_part", key, "ETag", Key=self._name(key), UploadId=upload, PartNumber=number,
            ContentMD5=b64encode(md5).decode(), Body=part, **self._key_headers,
        )  # fmt: skip
        return str(answer["ETag"])

    def complete_parts(self, key: str, upload: str, etags: list[str], conditions: Mapping[str, str]) -> str:
        """Make the parts the object, and return its ETag."""
        listed = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]}
        arguments = {"Key": self._name(key), "UploadId": upload, "MultipartUpload": listed, **conditions}
        return str(self._call("complete_multipart_upload", key, "ETag", **arguments)["ETag"])

    def abort_parts(self, key: str, upload: str) -> None:
        """Remove the parts, which cost storage."""
        self._call("abort_multipart_upload", key, Key=self._name(key), UploadId=upload)

    def remove(self, key: str, **version: str) -> None:
        """Remove an object, if it exists."""
        answer = self._call("delete_object", key, Key=self._name(key), **version)
        self.keeps_versions |= "VersionId" in answer

    def remove_versions(self, key: str) -> None:
        """Remove all versions but the one that readers see, and then the marks that it was deleted."""
        name = self._name(key)
        with translated(f"{self.url}/{key}", self._secrets):
            paginator = self._client.get_paginator("list_object_versions")
            pages = list(paginator.paginate(Bucket=self.bucket, Prefix=name))
        versions = [each for page in pages for each in page.get("Versions", ()) if not each["IsLatest"]]
        marks = [each for page in pages for each in page.get("DeleteMarkers", ())]
        for each in versions + marks:
            if each["Key"] == name:
                self.remove(key, VersionId=each["VersionId"])

    def _name(self, key: str) -> str:
        """The name of an object in the bucket."""
        return f"{self._prefix}/{key}" if self._prefix else key

    def _call(self, operation: str, key: str, wanted: str = "", **arguments: Any) -> dict[str, Any]:
        """Send a request; `wanted`: what each answer of S3 to it has, but not the page of a proxy."""
        where = f"{self.url}/{key}"
        with translated(where, self._secrets):
            answer: dict[str, Any] = getattr(self._client, operation)(Bucket=self.bucket, **arguments)
        if wanted and wanted not in answer:
            raise ConfigError(f"{where}: what answers is not S3, as it gives no {wanted}; {ENDPOINT_HINT}")
        return answer


def _entry(key: str, found: dict[str, Any], size: int) -> Entry:
    """Return the entry of an object; with a key of KMS, which no listing shows, the ETag is no MD5."""
    plain = PLAIN_ETAG.fullmatch(found["ETag"])
    if found.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in found:
        plain = None
    return Entry(
        key=key, size=size, etag=found["ETag"], modified=found.get("LastModified"), md5=plain and plain[1]
    )


def _customer_key(options: Mapping[str, str]) -> dict[str, Any]:
    """The headers that name a customer's key, which S3 needs to read, too; DVC's option has it in base64."""
    if CUSTOMER_KEY not in options:
        return {}
    try:
        key = b64decode(options[CUSTOMER_KEY], validate=True)
    except ValueError:
        raise ConfigError(f"{CUSTOMER_KEY} of the DVC remote must be in base64; nothing was written") from None
    return {"SSECustomerAlgorithm": options.get(CUSTOMER_ALGORITHM, "AES256"), "SSECustomerKey": key}


def _client(options: Mapping[str, str]) -> tuple[Any, frozenset[str]]:
    """Return a boto3 client, and the secrets that must not appear in messages."""
    import boto3  # noqa: PLC0415 - half a second that most commands do not need
    from botocore.config import Config  # noqa: PLC0415

    settings: dict[str, Any] = {
        "retries": {"mode": "standard", "total_max_attempts": 1},  # the store retries
        "connect_timeout": limits.scaled(CONNECT_S),
        "read_timeout": limits.scaled(STALL_S),
        "max_pool_connections": CONNECTIONS,
    }
    # All servers support Content-MD5, which a write sends.
    settings |= {
        name.removeprefix("AWS_").lower(): value
        for name, value in CHECKSUM_SETTINGS.items()
        if name not in os.environ
    }
    with translated("S3"):
        given = {name: options[key] for key, name in CLIENT_OPTIONS.items() if key in options}
        endpoint = given.pop("endpoint_url", None)
        session = boto3.session.Session(**given)
        client = session.client("s3", endpoint_url=endpoint, config=Config(**settings))
        found = session.get_credentials()
        frozen = found.get_frozen_credentials() if found else None
    return client, frozenset(filter(None, (frozen.secret_key, frozen.token) if frozen else ()))
