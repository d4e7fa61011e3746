"""S3, or a server with an S3-compatible API, as a store."""

import hashlib
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from perennial.base import limits, retries
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.storage import Entry, bucket
from perennial.base.storage.bucket import CHUNK_BYTES, CONNECT_S, CONNECTIONS, BucketStore, Condition, Page
from perennial.base.storage.provider_hints import S3_CHECKSUMS, S3_CREDENTIALS_HINT, S3_EXPIRED_HINT
from perennial.base.storage.receive import Target
from perennial.base.storage.refusals import Answer, Provider, Temporary, clean, refusal

PLAIN_ETAG = re.compile('"([0-9a-f]{32})"')  # of an object that was written in one request
# Options of a DVC remote, by the names that boto3 gives them.
OPTIONS = {
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


S3 = Provider(
    temporary={
        "BadDigest",  # the body was damaged in transit
        "ConditionalRequestConflict",  # another write of the object is still running
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "ThrottlingException",
        "TooManyRequests",
        "XAmzContentSHA256Mismatch",
    },
    rejected={"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"},
    expired={"ExpiredToken", "RequestExpired", "TokenRefreshRequired"},
    skewed={"RequestTimeTooSkewed"},
    missing_bucket={"NoSuchBucket"},
    credentials_hint=S3_CREDENTIALS_HINT,
    expired_hint=S3_EXPIRED_HINT,
    endpoint_hint="check the network, AWS_ENDPOINT_URL and the proxy",
    other_hint="if it rejects checksums, unset AWS_REQUEST_CHECKSUM_CALCULATION, or set it to when_required",
)
NO_BODY = "400"  # the code of an answer to a HEAD request


class S3Store(BucketStore):
    """The objects below `s3://bucket/prefix`, with credentials that boto3 finds, or of a DVC remote."""

    OPTIONS = frozenset((*OPTIONS, *WRITE_OPTIONS, CUSTOMER_KEY, CUSTOMER_ALGORITHM))
    scheme = "s3"
    no_such_etag = '"00000000000000000000000000000000"'

    def __init__(self, url: str, options: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(url)
        self._client, self._secrets = _client(options)
        self._keeps_versions = False  # as far as answers say
        self._key_headers = _customer_key(options)
        written = {name: options[key] for key, name in WRITE_OPTIONS.items() if key in options}
        self._write_headers = {**self._key_headers, **written}
        self._secrets |= frozenset(filter(None, [options.get(CUSTOMER_KEY)]))

    def _page(self, prefix: str, after: str | None, *, folders: bool) -> Page:
        options = {"Delimiter": "/"} if folders else {}
        token = {"ContinuationToken": after} if after else {}
        page = self._call("list_objects_v2", prefix, Prefix=self._key(prefix), **options, **token)
        return Page(
            entries=tuple(
                self._entry(found["Key"], found, found["Size"]) for found in page.get("Contents", ())
            ),
            folders=tuple(self._below(each["Prefix"]) for each in page.get("CommonPrefixes", ())),
            after=page["NextContinuationToken"] if page.get("IsTruncated") else None,
        )

    def _entry(self, name: str, found: dict[str, Any], size: int) -> Entry:
        """Return the entry of an object; with a key of KMS, which no listing shows, the ETag is no MD5."""
        plain = PLAIN_ETAG.fullmatch(found["ETag"])
        if found.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in found:
            plain = None
        return Entry(
            key=self._below(name), size=size, etag=found["ETag"], modified=found.get("LastModified"),
            md5=plain and plain[1],
        )  # fmt: skip

    def _about(self, key: str) -> Entry:
        found = self._call("head_object", key, Key=self._key(key), **self._key_headers)
        return self._entry(self._key(key), found, found["ContentLength"])

    def _read(self, key: str, target: Target) -> Entry:
        conditions = {} if target.etag is None else {"IfMatch": target.etag}
        if start := target.size:
            conditions["Range"] = f"bytes={start}-"
        answer = self._call("get_object", key, Key=self._key(key), **conditions, **self._key_headers)
        if not str(answer.get("ContentRange", "")).startswith(f"bytes {start}-"):
            start = 0  # the complete object
        with closing(answer["Body"]) as body, _translated(f"{self.url}/{key}", self._secrets):
            target.begin(answer["ETag"], start)
            for chunk in body.iter_chunks(CHUNK_BYTES):
                target.write(chunk)
        return self._entry(self._key(key), answer, start + int(answer["ContentLength"]))

    def _write(self, key: str, stream: BinaryIO, size: int, md5: bytes, condition: Condition) -> str:
        answer = self._call(
            "put_object",
            key,
            Key=self._key(key),
            Body=stream,
            ContentLength=size,
            ContentMD5=b64encode(md5).decode(),
            **_conditions(condition),
            **self._write_headers,
        )
        self._keeps_versions |= "VersionId" in answer
        return str(answer["ETag"])

    def _parts(self, key: str, _file: Path, condition: Condition) -> "_Parts":
        started = self._call("create_multipart_upload", key, Key=self._key(key), **self._write_headers)
        call = partial(self._call, key=key, Key=self._key(key), UploadId=started["UploadId"])
        return _Parts(call, condition, self._key_headers)

    def _remove(self, key: str) -> None:
        answer = self._call("delete_object", key, Key=self._key(key))
        self._keeps_versions |= "VersionId" in answer

    def purge(self, key: str) -> None:
        """See `Store.purge`."""
        if self._keeps_versions:
            self._retried(key, lambda: self._remove_versions(key))

    def _remove_versions(self, key: str) -> None:
        """Remove all versions but the one that readers see, and then the marks that it was deleted."""
        name = self._key(key)
        with _translated(f"{self.url}/{key}", self._secrets):
            pages = list(
                self._client.get_paginator("list_object_versions").paginate(Bucket=self.bucket, Prefix=name)
            )
        versions = [each for page in pages for each in page.get("Versions", ()) if not each["IsLatest"]]
        marks = [each for page in pages for each in page.get("DeleteMarkers", ())]
        for each in versions + marks:
            if each["Key"] == name:
                self._call("delete_object", key, Key=name, VersionId=each["VersionId"])

    def _call(self, operation: str, key: str, **arguments: Any) -> dict[str, Any]:
        """Send one request, with boto3's own retries, and translate its errors."""
        with _translated(f"{self.url}/{key}", self._secrets):
            answer: dict[str, Any] = getattr(self._client, operation)(Bucket=self.bucket, **arguments)
        return answer


class _Parts:
    """A multipart upload."""

    def __init__(
        self, call: Callable[..., dict[str, Any]], condition: Condition, headers: Mapping[str, Any]
    ) -> None:
        self._call, self._condition, self._headers = call, condition, headers
        self._sent: dict[int, tuple[str, bytes]] = {}

    def send(self, number: int, part: bytes) -> None:
        """See `Parts.send`."""
        md5 = hashlib.md5(part, usedforsecurity=False).digest()
        answer = self._call(
            "upload_part",
            PartNumber=number,
            ContentMD5=b64encode(md5).decode(),
            Body=part,
            **self._headers,
        )
        self._sent[number] = answer["ETag"], md5

    def complete(self) -> str:
        """See `Parts.complete`."""
        parts = [{"PartNumber": number, "ETag": etag} for number, (etag, _) in self._sent.items()]
        listed = {"MultipartUpload": {"Parts": parts}}
        return str(self._call("complete_multipart_upload", **listed, **_conditions(self._condition))["ETag"])

    def is_written(self, entry: Entry) -> bool:
        """See `Parts.is_written`."""
        digests = b"".join(md5 for _, md5 in self._sent.values())
        return entry.etag == f'"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(self._sent)}"'

    def abort(self) -> None:
        """See `Parts.abort`."""
        self._call("abort_multipart_upload")


def _conditions(condition: Condition) -> dict[str, str]:
    if condition.etag is not None:
        return {"IfMatch": condition.etag}
    return {"IfNoneMatch": "*"} if condition.is_new else {}


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
        "retries": {"mode": "standard", "total_max_attempts": retries.STORE_TRIES_INSIDE},
        "connect_timeout": limits.scaled(CONNECT_S),
        "read_timeout": limits.scaled(bucket.STALL_S),
        "max_pool_connections": CONNECTIONS,
    }
    # All servers support Content-MD5, which `put` sends.
    settings |= {
        name.removeprefix("AWS_").lower(): value
        for name, value in S3_CHECKSUMS.items()
        if name not in os.environ
    }
    with _translated("S3"):
        given = {name: options[key] for key, name in OPTIONS.items() if key in options}
        endpoint = given.pop("endpoint_url", None)
        session = boto3.session.Session(**given)
        client = session.client("s3", endpoint_url=endpoint, config=Config(**settings))
        found = session.get_credentials()
        frozen = found.get_frozen_credentials() if found else None
    return client, frozenset(filter(None, (frozen.secret_key, frozen.token) if frozen else ()))


@contextmanager
def _translated(where: str, secrets: Collection[str] = ()) -> Iterator[None]:
    """Translate boto3's errors in the block into this project's; `where` is the URL of the object."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - optional
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    try:
        yield
    except ClientError as error:
        found = error.response
        status = int(found.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code, message = (
            clean(str(found.get("Error", {}).get(key, "")), secrets) for key in ("Code", "Message")
        )
        if status == 400 and code == NO_BODY:
            said = "the server answered 400 without a reason, as to expired credentials"
            raise ConfigError(f"{where}: {said}; {S3.expired_hint}") from None
        raise refusal(Answer(where=where, status=status, code=code, message=message), S3) from None
    except (BotoCoreError, HTTPError, ValueError) as error:  # ValueError: a malformed endpoint
        raise _failure(where, error, clean(str(error), secrets)) from None


def _failure(where: str, error: Exception, reason: str) -> PerennialError:
    """Return the error for a failure without an answer of the server."""
    from botocore import exceptions as boto  # noqa: PLC0415 - optional
    from botocore.parsers import ResponseParserError  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - of botocore

    if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
        return ConfigError(f"{where}: no credentials ({reason}); {S3_CREDENTIALS_HINT}")
    if isinstance(error, boto.SSLError):
        return PerennialError(f"{where}: TLS failed: {reason}; set AWS_CA_BUNDLE to use other certificates")
    if isinstance(error, boto.EndpointConnectionError | boto.ConnectTimeoutError):
        waited = isinstance(error, boto.ConnectTimeoutError)
        tries = retries.STORE_CONNECT_TRIES if waited else retries.STORE_UNREACHABLE_TRIES
        return Temporary(f"{where}: the server cannot be reached: {reason}; {S3.endpoint_hint}", tries=tries)
    if isinstance(error, boto.ReadTimeoutError):
        silent = f"{where}: the server accepts the connection and does not answer: {reason}; {S3.endpoint_hint}"
        return Temporary(silent, tries=retries.STORE_SILENT_TRIES)
    broken = boto.HTTPClientError, boto.IncompleteReadError, boto.ResponseStreamingError
    if isinstance(error, (*broken, ResponseParserError, HTTPError)):
        return Temporary(f"{where}: the connection was interrupted: {reason}")
    return ConfigError(f"{where}: {reason}; {S3_CREDENTIALS_HINT}; {S3.endpoint_hint}")
