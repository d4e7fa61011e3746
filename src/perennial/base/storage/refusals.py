"""Turn what a provider's server or client refuses into errors of this project, in one way for all providers."""

from collections.abc import Collection
from dataclasses import dataclass

from perennial.base.errors import ConfigError, PerennialError, redacted
from perennial.base.storage import Changed, Missing
from perennial.base.storage.provider_hints import CLOCK_HINT


class Temporary(PerennialError):
    """A failure that is worth a retry."""

    def __init__(self, message: str, *, status: int = 0, tries: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.tries = tries  # instead of the usual number


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The codes of a provider's errors, and what a person can do about them."""

    credentials_hint: str
    expired_hint: str
    endpoint_hint: str
    rights_hint: str = "grant it, or use other credentials"
    other_hint: str = ""  # about a request that the server does not support
    bucket: str = "bucket"  # its word for it
    missing_bucket: Collection[str] = ()
    rejected: Collection[str] = ()  # the credentials are wrong
    expired: Collection[str] = ()
    skewed: Collection[str] = ()  # the clock of this machine is wrong
    temporary: Collection[str] = ()
    blocked: Collection[str] = ()  # 409 or 412, but not because the object is another version


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A server's answer that is an error."""

    where: str  # the URL of the object
    status: int
    code: str  # the provider's name of the error, or empty
    message: str = ""

    @property
    def said(self) -> str:
        """The code and the message, as a person reads them."""
        return ": ".join(filter(None, (self.code, self.message)))


def clean(text: str, secrets: Collection[str]) -> str:
    """Return a message in one line, without secrets."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return " ".join(redacted(text).split())


def refusal(answer: Answer, provider: Provider) -> PerennialError:
    """Return the error for an answer of a server."""
    where, status, said = answer.where, answer.status, answer.said
    if error := _of_credentials(answer, provider):
        return error
    if answer.code in provider.missing_bucket:
        error = ConfigError(f"{where}: the {provider.bucket} does not exist; create it, or correct the URL")
    elif answer.code in provider.temporary or status in {408, 416, 429} or (status >= 500 and status != 501):
        error = Temporary(f"{where}: the server answered {status} ({said})", status=status)
    elif status in {409, 412} and answer.code not in provider.blocked:
        error = Changed(f"{where} is not the expected version: it was written in the meantime")
    elif status == 404:
        error = Missing(f"{where} does not exist")
    else:
        unsupported = status == 501 or (status == 400 and "checksum" in said.lower())
        advice = f"; {provider.other_hint}" if unsupported and provider.other_hint else ""
        error = PerennialError(f"{where}: the server answered {status} ({said}){advice}")
    return error


def _of_credentials(answer: Answer, provider: Provider) -> PerennialError | None:
    """Return the error if the server refuses who asks, or when."""
    where, status, said = answer.where, answer.status, answer.said
    if answer.code in provider.expired:
        return ConfigError(f"{where}: the credentials have expired ({said}); {provider.expired_hint}")
    if answer.code in provider.skewed:
        return PerennialError(f"{where}: the server answered {status} ({said}); {CLOCK_HINT}")
    if answer.code in provider.rejected:
        return ConfigError(f"{where}: the server rejects the credentials ({said}); {provider.credentials_hint}")
    if status in {401, 403} and answer.code not in provider.temporary:
        return ConfigError(f"{where}: access denied ({said}); {provider.rights_hint}")
    return None
