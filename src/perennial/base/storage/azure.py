"""Azure Blob Storage as a store."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

from perennial.base import retries
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.storage import Entry, bucket, provider_hints
from perennial.base.storage.bucket import CONNECT_S, CONNECTIONS, BucketStore, Condition, Page
from perennial.base.storage.receive import Target
from perennial.base.storage.refusals import Answer, Provider, Temporary, clean, refusal

RANGE_BYTES = 4 << 20  # the most for which the server sends an MD5
# Our own codes: Azure's is AuthenticationFailed; by the words of its answer.
EXPIRED, SKEWED = "SignatureExpired", "RequestTooOld"
DETAILS = {EXPIRED: "Signature not valid in the specified time frame", SKEWED: "Request date header too old"}
AZURE = Provider(
    bucket="container",
    temporary={"ServerBusy", "InternalError", "OperationTimedOut", "Md5Mismatch"},
    missing_bucket={"ContainerNotFound", "ContainerBeingDeleted", "ContainerDisabled"},
    rejected={"AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"},
    expired={EXPIRED},
    skewed={SKEWED},
    blocked={
        "BlobArchived",
        "BlobBeingRehydrated",
        "BlobImmutableDueToPolicy",
        "InvalidBlobType",
        "LeaseIdMissing",
        "PublicAccessNotPermitted",
    },
    credentials_hint=provider_hints.AZURE_CREDENTIALS_HINT,
    expired_hint=provider_hints.AZURE_EXPIRED_HINT,
    rights_hint=provider_hints.AZURE_RIGHTS_HINT,
    endpoint_hint="check the network, AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_CONNECTION_STRING and the proxy",
)


class AzureStore(BucketStore):
    """The objects below `azure://container/prefix`, with credentials of the environment or of a DVC remote."""

    OPTIONS = frozenset(
        {
            "connection_string",
            "account_name",
            "account_key",
            "sas_token",
            "tenant_id",
            "client_id",
            "client_secret",
        }
    )
    scheme, bucket_word = "azure", "container"
    no_such_etag = '"0x0"'

    def __init__(self, url: str, options: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(url)
        with _translated(self.url, frozenset()):
            self._container, self._secrets = _container(self.bucket, options)

    def _page(self, prefix: str, after: str | None, *, folders: bool) -> Page:
        ask = self._container.walk_blobs if folders else self._container.list_blobs
        options = {"delimiter": "/"} if folders else {"include": ["metadata"]}
        with self._calling(prefix):
            pages = ask(name_starts_with=self._key(prefix), **options).by_page(after)
            found = list(next(pages))
        entries = [each for each in found if "etag" in each and not _is_folder(each)]
        return Page(
            entries=tuple(self._entry(each["name"], each) for each in entries),
            folders=tuple(self._below(each["name"]) for each in found if "etag" not in each),
            after=pages.continuation_token or None,
        )

    def _entry(self, name: str, found: Mapping[str, Any]) -> Entry:
        md5 = found["content_settings"].get("content_md5")
        return Entry(
            key=self._below(name), size=found["size"], etag=_quoted(found["etag"]),
            modified=found["last_modified"], md5=bytes(md5).hex() if md5 else None,
        )  # fmt: skip

    def _about(self, key: str) -> Entry:
        with self._calling(key) as blob:
            return self._entry(self._key(key), blob.get_blob_properties())

    def _read(self, key: str, target: Target) -> Entry:
        start, conditions = target.size, _conditions(Condition(etag=target.etag))
        with self._calling(key) as blob:
            answer = blob.download_blob(offset=start or None, validate_content=True, **conditions)
            target.begin(_quoted(answer.properties["etag"]), start)
            for chunk in answer.chunks():
                target.write(chunk)
            return self._entry(self._key(key), answer.properties)

    def _write(self, key: str, stream: BinaryIO, size: int, md5: bytes, condition: Condition) -> str:
        from azure.storage.blob import ContentSettings  # noqa: PLC0415 - optional

        with self._calling(key) as blob:
            answer = blob.upload_blob(
                stream, length=size, overwrite=not condition.is_new, validate_content=True,
                content_settings=ContentSettings(content_md5=bytearray(md5)), **_conditions(condition),
            )  # fmt: skip
        return _quoted(answer["etag"])

    def _parts(self, key: str, file: Path, condition: Condition) -> "_Parts":
        with file.open("rb") as stream:
            md5 = hashlib.file_digest(stream, "md5").digest()
        return _Parts(partial(self._calling, key), md5, condition)

    def _remove(self, key: str) -> None:
        with self._calling(key) as blob:
            blob.delete_blob(delete_snapshots="include")

    @contextmanager
    def _calling(self, key: str) -> Iterator[Any]:
        """Provide the client of an object, and translate errors in the block."""
        with _translated(f"{self.url}/{key}", self._secrets):
            yield self._container.get_blob_client(self._key(key) or "-")


class _Parts:
    """Blocks that become a blob with one last request."""

    def __init__(
        self, blob: Callable[[], AbstractContextManager[Any]], md5: bytes, condition: Condition
    ) -> None:
        self._blob, self._md5, self._condition = blob, md5, condition
        self._sent: list[str] = []

    def send(self, number: int, part: bytes) -> None:
        """See `Parts.send`."""
        name = f"{self._md5.hex()}-{number:06}"
        with self._blob() as blob:
            blob.stage_block(name, part, length=len(part), validate_content=True)
        self._sent.append(name)

    def complete(self) -> str:
        """See `Parts.complete`."""
        from azure.storage.blob import BlobBlock, ContentSettings  # noqa: PLC0415 - optional

        with self._blob() as blob:
            answer = blob.commit_block_list(
                [BlobBlock(name) for name in self._sent],
                content_settings=ContentSettings(content_md5=bytearray(self._md5)),
                **_conditions(self._condition),
            )
        return _quoted(answer["etag"])

    def is_written(self, entry: Entry) -> bool:
        """See `Parts.is_written`."""
        return entry.md5 == self._md5.hex()

    def abort(self) -> None:
        """See `Parts.abort`; Azure removes blocks of no blob after a week."""


def _conditions(condition: Condition) -> dict[str, Any]:
    from azure.core import MatchConditions  # noqa: PLC0415 - optional

    if condition.etag is not None:
        return {"etag": condition.etag, "match_condition": MatchConditions.IfNotModified}
    return {"match_condition": MatchConditions.IfMissing} if condition.is_new else {}


def _quoted(etag: str) -> str:
    return f'"{etag.strip(chr(34))}"'


def _is_folder(found: Mapping[str, Any]) -> bool:
    """Whether a listed blob stands for a folder, as in accounts with a hierarchical namespace."""
    return (found.get("metadata") or {}).get("hdi_isfolder") == "true"


def _container(name: str, options: Mapping[str, str]) -> tuple[Any, frozenset[str]]:
    """Return the client of a container, and the secrets that must not appear in messages."""
    import requests  # noqa: PLC0415 - of azure-core
    from azure.core.pipeline.transport import RequestsTransport  # noqa: PLC0415 - optional
    from azure.storage.blob import BlobServiceClient  # noqa: PLC0415

    logging.getLogger("azure").setLevel(logging.ERROR)  # else it logs all requests, and credentials it tries
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=CONNECTIONS))
    settings: dict[str, Any] = {
        "retry_total": 0,
        "max_single_get_size": RANGE_BYTES,
        "max_chunk_get_size": RANGE_BYTES,
        "max_single_put_size": bucket.SINGLE_BYTES,
        "transport": RequestsTransport(
            session=session, connection_timeout=CONNECT_S, read_timeout=bucket.STALL_S
        ),
    }
    given = {
        option: options.get(option) or os.environ.get(f"AZURE_STORAGE_{variable}", "")
        for option, variable in (
            ("connection_string", "CONNECTION_STRING"), ("account_name", "ACCOUNT"),
            ("account_key", "KEY"), ("sas_token", "SAS_TOKEN"),
        )
    }  # fmt: skip
    if given["connection_string"]:
        client = BlobServiceClient.from_connection_string(given["connection_string"], **settings)
    elif given["account_name"]:
        url = f"https://{given['account_name']}.blob.core.windows.net"
        client = BlobServiceClient(url, _credential(given, options), **settings)
    else:
        raise ConfigError(f"azure://{name}: no account; {AZURE.credentials_hint}")
    return client.get_container_client(name), _secrets(given)


def _credential(given: Mapping[str, str], options: Mapping[str, str]) -> Any:
    from azure import identity  # noqa: PLC0415 - optional

    if given["account_key"]:
        return {"account_name": given["account_name"], "account_key": given["account_key"]}
    if given["sas_token"]:
        return given["sas_token"]
    principal = [options.get(name, "") for name in ("tenant_id", "client_id", "client_secret")]
    return identity.ClientSecretCredential(*principal) if all(principal) else identity.DefaultAzureCredential()


def _secrets(given: Mapping[str, str]) -> frozenset[str]:
    """Return the keys and signatures in what was given."""
    parts = dict(part.partition("=")[::2] for part in given["connection_string"].split(";"))
    tokens = given["sas_token"], parts.get("SharedAccessSignature", "")
    found = {given["account_key"], parts.get("AccountKey", ""), *tokens}
    return frozenset(filter(None, found))


@contextmanager
def _translated(where: str, secrets: frozenset[str]) -> Iterator[None]:
    """Translate the client's errors in the block into this project's."""
    import requests  # noqa: PLC0415 - of azure-core
    from azure.core import exceptions as azure  # noqa: PLC0415 - optional

    try:
        yield
    except azure.HttpResponseError as error:
        raise _refusal(where, error, secrets) from None
    except (azure.ServiceRequestError, azure.ServiceResponseError, azure.IncompleteReadError) as error:
        said = clean(error.message, secrets)
        if isinstance(error, azure.ServiceRequestError):
            message = f"{where}: the server cannot be reached: {said}; {AZURE.endpoint_hint}"
            raise Temporary(message, tries=retries.STORE_UNREACHABLE_TRIES) from None
        raise Temporary(f"{where}: the connection was interrupted: {said}") from None
    except requests.RequestException as error:  # of a body that the client reads late
        raise Temporary(f"{where}: the connection was interrupted: {clean(str(error), secrets)}") from None
    except azure.AzureError as error:
        raise PerennialError(f"{where}: {clean(error.message, secrets)}; {AZURE.endpoint_hint}") from None
    except ValueError as error:  # a malformed connection string or key
        raise ConfigError(f"{where}: {clean(str(error), secrets)}; {AZURE.credentials_hint}") from None


def _refusal(where: str, error: Any, secrets: frozenset[str]) -> PerennialError:
    said, status = clean(error.message.partition("\n")[0], secrets), error.status_code
    if status is None:
        from azure.core.exceptions import ClientAuthenticationError  # noqa: PLC0415 - optional

        if isinstance(error, ClientAuthenticationError):
            return ConfigError(f"{where}: no credentials ({said}); {AZURE.credentials_hint}")
        return Temporary(f"{where}: the connection was interrupted: {said}")
    code = getattr(error, "error_code", None) or error.response.headers.get("x-ms-error-code") or ""
    code = str(getattr(code, "value", code))
    for own, words in DETAILS.items():
        if words in error.message:
            code, said = own, clean(words + error.message.partition(words)[2].partition("\n")[0], secrets)
    return refusal(Answer(where=where, status=status, code=code, message=said), AZURE)
