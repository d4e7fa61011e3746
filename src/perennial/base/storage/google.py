"""Google Cloud Storage as a store; an object's ETag here is its generation."""

import base64
import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from perennial.base import retries
from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.storage import Changed, Entry, bucket, provider_hints
from perennial.base.storage.bucket import CONNECT_S, CONNECTIONS, BucketStore, Condition, Gone, Page
from perennial.base.storage.receive import Target
from perennial.base.storage.refusals import Answer, Provider, Temporary, clean, refusal

PAGE = 1000
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
NO_BUCKET = "NoSuchBucket"  # our own code: Google's answers have none
LIMITED = "rateLimitExceeded"
GOOGLE = Provider(
    missing_bucket={NO_BUCKET},
    temporary={LIMITED},
    credentials_hint=provider_hints.GOOGLE_CREDENTIALS_HINT,
    expired_hint=provider_hints.GOOGLE_EXPIRED_HINT,
    rights_hint=provider_hints.GOOGLE_RIGHTS_HINT,
    endpoint_hint="check the network, STORAGE_EMULATOR_HOST and the proxy",
)


class GoogleStore(BucketStore):
    """The objects below `gs://bucket/prefix`, with credentials that the client finds, or of a DVC remote."""

    OPTIONS = frozenset({"endpointurl", "credentialpath", "projectname"})
    scheme = "gs"
    no_such_etag = "1"

    def __init__(self, url: str, options: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(url)
        with _translated(self.url):
            client, self._session = _client(options)
            self._bucket = client.bucket(self.bucket)
        self._once = {"retry": None, "timeout": (CONNECT_S, bucket.STALL_S)}  # the store itself tries again

    def _page(self, prefix: str, after: str | None, *, folders: bool) -> Page:
        with self._calling(prefix, of_bucket=True):
            listed = self._bucket.list_blobs(
                prefix=self._key(prefix), delimiter="/" if folders else None, page_token=after,
                page_size=PAGE, **self._once,
            )  # fmt: skip
            found = tuple(next(listed.pages, ()))
        return Page(
            entries=tuple(map(self._entry, found)),
            folders=tuple(self._below(each) for each in listed.prefixes),
            after=listed.next_page_token,
        )

    def _entry(self, blob: Any) -> Entry:
        """Return the entry of an object; a composed one has no MD5."""
        md5 = base64.b64decode(blob.md5_hash).hex() if blob.md5_hash else None
        return Entry(
            key=self._below(blob.name),
            size=blob.size,
            etag=str(blob.generation),
            modified=blob.updated,
            md5=md5,
        )

    def _about(self, key: str) -> Entry:
        with self._calling(key):
            blob = self._bucket.blob(self._key(key))
            blob.reload(**self._once)
        return self._entry(blob)

    def _read(self, key: str, target: Target) -> Entry:
        # The version must be known before the first byte: a broken connection does not tell it.
        entry = target.known = target.known or self._about(key)
        if entry.md5 is None:
            target.restart()  # the client compares the CRC of complete reads only
        target.begin(entry.etag, target.size)
        if (start := target.size) >= entry.size:
            return entry
        with self._calling(key):
            blob = self._bucket.blob(self._key(key))
            blob.download_to_file(
                target, start=start or None, raw_download=True, if_generation_match=int(entry.etag),
                checksum="crc32c", **self._once,
            )  # fmt: skip
        if blob.generation not in {None, entry.etag, int(entry.etag)}:  # some servers ignore conditions
            raise Changed(f"{self.url}/{key} changed: expected {entry.etag}, got {blob.generation}")
        return entry

    def _write(self, key: str, stream: BinaryIO, size: int, _md5: bytes, condition: Condition) -> str:
        with self._calling(key, of_bucket=True):
            blob = self._bucket.blob(self._key(key))
            blob.upload_from_string(stream.read(size), checksum="md5", **_conditions(condition), **self._once)
        return str(blob.generation)

    def _parts(self, key: str, file: Path, condition: Condition) -> "_Parts":
        with file.open("rb") as stream:
            md5 = hashlib.file_digest(stream, "md5").digest()
            size = stream.tell()
        with self._calling(key, of_bucket=True):
            blob = self._bucket.blob(self._key(key))
            url = blob.create_resumable_upload_session(
                size=size, checksum=None, **_conditions(condition), **self._once
            )
        return _Parts(partial(self._put_range, key, url, size), size, base64.b64encode(md5).decode())

    def _put_range(self, key: str, url: str, size: int, span: str, body: bytes, digest: str = "") -> Any:
        """Send a part of a resumable upload, and return the answer; 308 says that more is missing."""
        headers = {"Content-Range": f"bytes {span}/{size}"} | (
            {"X-Goog-Hash": f"md5={digest}"} if digest else {}
        )
        with self._calling(key, of_bucket=True):
            answer = self._session.put(url, data=body, headers=headers, timeout=self._once["timeout"])
            if answer.status_code in {404, 410}:
                raise Gone(f"{self.url}/{key}: the server ended the upload ({answer.status_code})")
            if answer.status_code not in {200, 201, 308}:
                raise _exceptions().from_http_response(answer)
        return answer

    def _remove(self, key: str) -> None:
        with self._calling(key):
            self._bucket.blob(self._key(key)).delete(**self._once)

    @contextmanager
    def _calling(self, key: str, *, of_bucket: bool = False) -> Iterator[None]:
        """Translate errors in the block; in a request `of_bucket`, what a 404 does not find is the bucket."""
        with _translated(f"{self.url}/{key}", of_bucket=of_bucket):
            yield


class _Parts:
    """A resumable upload, which takes the parts in order; the last one makes the object."""

    def __init__(self, put: Callable[..., Any], size: int, md5: str) -> None:
        self._put, self._size, self._md5 = put, size, md5
        self._before = self._arrived = 0  # bytes before this part, and those that the server has
        self._tried, self._generation = 0, ""

    def send(self, number: int, part: bytes) -> None:
        """See `Parts.send`; the server ignores bytes that it has already."""
        skip, end = max(0, self._arrived - self._before), self._before + len(part)
        again, self._tried = number == self._tried, number
        try:
            answer = self._put(
                f"{self._before + skip}-{end - 1}", part[skip:], self._md5 if end == self._size else ""
            )
        except Gone:
            if again and end == self._size:  # the upload may be over, and its answer lost; `complete` finds out
                return
            raise
        if answer.status_code == 308:
            self._arrived = (
                int(answer.headers["Range"].rpartition("-")[2]) + 1 if "Range" in answer.headers else 0
            )
            if self._arrived < end:
                raise Temporary(f"only {self._arrived:,} of {end:,} bytes arrived")
            self._before = end
        elif (found := answer.json()).get("md5Hash") != self._md5:  # Google itself compares it before
            raise DataError(f"the server put other bytes together: MD5 {found.get('md5Hash')}, not {self._md5}")
        else:
            self._generation = str(found["generation"])

    def complete(self) -> str:
        """See `Parts.complete`; the last part has done it."""
        if not self._generation:
            raise Gone("the answer to the last part was lost")
        return self._generation

    def is_written(self, entry: Entry) -> bool:
        """See `Parts.is_written`."""
        return entry.md5 is not None and base64.b64encode(bytes.fromhex(entry.md5)).decode() == self._md5

    def abort(self) -> None:
        """See `Parts.abort`; Google removes what was sent after a week."""


def _conditions(condition: Condition) -> dict[str, int]:
    if condition.etag is not None:
        return {"if_generation_match": int(condition.etag)}
    return {"if_generation_match": 0} if condition.is_new else {}


def _exceptions() -> Any:
    from google.api_core import exceptions  # noqa: PLC0415 - optional

    return exceptions


def _client(options: Mapping[str, str]) -> tuple[Any, Any]:
    """Return a client of Google, and the session with its credentials."""
    auth: Any = importlib.import_module("google.auth")
    import requests  # noqa: PLC0415 - of the client

    transport: Any = importlib.import_module("google.auth.transport.requests")
    from google.cloud import storage  # noqa: PLC0415

    # Else a thread of the client asks about the bucket itself, for traces, which takes another permission.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    if file := options.get("credentialpath"):
        credentials, _ = auth.load_credentials_from_file(file, scopes=[SCOPE])
    elif os.environ.get("STORAGE_EMULATOR_HOST"):
        credentials = importlib.import_module("google.auth.credentials").AnonymousCredentials()
    else:
        credentials, _ = auth.default(scopes=[SCOPE])
    session = transport.AuthorizedSession(credentials, max_refresh_attempts=1)
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))
    endpoint = options.get("endpointurl")
    client = storage.Client(
        project=options.get("projectname") or "none", credentials=credentials, _http=session,
        client_options={"api_endpoint": endpoint} if endpoint else None,
    )  # fmt: skip
    return client, session


@contextmanager
def _translated(where: str, *, of_bucket: bool = False) -> Iterator[None]:
    """Translate the client's errors in the block into this project's."""
    import requests  # noqa: PLC0415 - of the client
    from google.auth import exceptions as auth  # noqa: PLC0415 - optional
    from google.cloud.storage.exceptions import DataCorruption  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    try:
        yield
    except _exceptions().GoogleAPICallError as error:
        said, status = clean(error.message, ()), int(error.code or 0)
        missing = status == 404 and (of_bucket or "bucket does not exist" in said)
        limited = any(LIMITED.lower() in str(each).lower() for each in error.errors)  # with 403, too
        code = NO_BUCKET if missing else LIMITED if limited else ""
        raise refusal(Answer(where=where, status=status, code=code, message=said), GOOGLE) from None
    except auth.TransportError as error:
        raise _unreachable(where, error) from None
    except (auth.GoogleAuthError, OSError) as error:
        if isinstance(error, requests.ConnectionError) and "Max retries" in str(error):
            raise _unreachable(where, error) from None
        if isinstance(error, requests.RequestException | ConnectionError | TimeoutError):
            raise Temporary(f"{where}: the connection was interrupted: {clean(str(error), ())}") from None
        said = clean(str(error), ())
        hint = provider_hints.remedy(said) or GOOGLE.credentials_hint  # a clock, or a login of the past
        raise ConfigError(f"{where}: no credentials ({said}); {hint}") from None
    except (DataCorruption, HTTPError) as error:
        raise Temporary(f"{where}: the content was damaged on its way: {clean(str(error), ())}") from None


def _unreachable(where: str, error: Exception) -> PerennialError:
    message = f"{where}: the server cannot be reached: {clean(str(error), ())}; {GOOGLE.endpoint_hint}"
    return Temporary(message, tries=retries.STORE_UNREACHABLE_TRIES)
