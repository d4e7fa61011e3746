"""Prefect's settings of a client, from the places where Prefect looks for them, in its order.

Prefect itself is not imported: that takes seconds.
"""

import base64
import importlib.util
import io
import json
import os
import ssl
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from perennial.base.errors import ConfigError, redacted

PREFIX = "PREFECT_"
URL, AUTH, KEY = "PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_API_KEY"
SKIP, CERTIFICATE = "PREFECT_API_TLS_INSECURE_SKIP_VERIFY", "PREFECT_API_SSL_CERT_FILE"
HEADERS, CSRF = "PREFECT_CLIENT_CUSTOM_HEADERS", "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED"
TIMEOUT = "PREFECT_API_REQUEST_TIMEOUT"
TIMEOUT_S = 60.0
YES, NO = {"1", "true", "t", "yes", "y", "on"}, {"0", "false", "f", "no", "n", "off"}  # as Prefect reads them
EXAMPLE = "http://127.0.0.1:4200/api"
# Of flows and workers, where nothing else is set.
DEFAULTS = {
    "DO_NOT_TRACK": "1",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # seconds; automations miss them after 90
    # A request that is given up may leave the server's SQLite locked for good; SQLite waits 60 s for its lock.
    TIMEOUT: "600",
    "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500,504",  # a busy server or its proxy
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a client needs; `url` is None where no server is set."""

    url: str | None
    headers: Mapping[str, str]
    verify: ssl.SSLContext | bool
    csrf: bool = True
    timeout_s: float = TIMEOUT_S


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read settings from the environment, `.env`, `prefect.toml`, `pyproject.toml` and Prefect's profile."""
    found: dict[str, tuple[Any, str]] = {}
    for place, values in _places(environment):
        for name, value in values.items():
            found.setdefault(name, (value, place))
    values = {name: value for name, (value, _) in found.items() if value not in (None, "")}

    def refuse(name: str, problem: str) -> ConfigError:
        return ConfigError(f"{name} ({found[name][1]}) {problem}")

    url = str(values[URL]) if URL in values else None
    if url and (wrong := problem(url)):
        raise refuse(URL, f"{wrong}, got {redacted(url)}; set it to an address such as {EXAMPLE}")
    for name in (SKIP, CSRF):
        if str(values.get(name, "no")).lower() not in YES | NO:
            raise refuse(name, f"must be true or false, got {values[name]}")
    try:
        timeout_s = float(values.get(TIMEOUT, TIMEOUT_S))
    except (TypeError, ValueError):
        raise refuse(TIMEOUT, f"must be a number of seconds, got {values[TIMEOUT]}") from None
    headers = _headers(values, refuse)
    csrf = str(values.get(CSRF, "yes")).lower() in YES
    verify = _verification(url or "", values, environment)
    return Settings(url=url, headers=headers, verify=verify, csrf=csrf, timeout_s=timeout_s)


def problem(url: str) -> str | None:
    """Why a URL cannot be the address of a server."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "holds brackets that enclose no IPv6 address"
    try:
        port = parts.port
    except ValueError:
        return "has a port that is not a number from 0 to 65535"
    if parts.scheme not in {"http", "https"}:
        return "must start with http:// or https://"
    if not parts.hostname or port == 0 or any(mark.isspace() for mark in url):
        return "names no host or port that can be reached"
    return None


def _headers(values: Mapping[str, Any], refuse: Callable[[str, str], ConfigError]) -> dict[str, str]:
    own = values.get(HEADERS, {})
    if isinstance(own, str):
        with suppress(ValueError):
            own = json.loads(own)
    if not isinstance(own, dict) or not all(isinstance(each, str) for each in own.values()):
        raise refuse(HEADERS, """must be a JSON object of texts, such as '{"X-Team": "vision"}'""")
    headers = dict(own)
    if user := values.get(AUTH):
        headers["Authorization"] = f"Basic {base64.b64encode(str(user).encode()).decode()}"
    elif key := values.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    for name, value in headers.items():
        if not (name + value).isascii() or any(mark in name + value for mark in "\r\n\0") or " " in name:
            source = HEADERS if name in own else KEY
            raise refuse(source, f"holds what no HTTP header may hold, in {name!r}")
    return headers


def _verification(url: str, values: Mapping[str, Any], environment: Mapping[str, str]) -> ssl.SSLContext | bool:
    """How to check the server's certificate; nothing is loaded, which takes a while, where it has none."""
    name = CERTIFICATE if CERTIFICATE in values else "SSL_CERT_FILE"
    file = str(values.get(CERTIFICATE) or environment.get(name) or "")
    try:
        if file:
            Path(file).open("rb").close()
        if not url.startswith("https:") or str(values.get(SKIP, "no")).lower() in YES:
            return False
        return ssl.create_default_context(cafile=file) if file else True
    except OSError as error:  # an SSLError, too
        reason = "holds no certificate in PEM format" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"{name} names {file}: {reason}; correct it, or unset it for a server whose certificate this "
            "machine trusts"
        ) from error


def _places(environment: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each place where settings may be, and its settings, by the names of their variables; first ones win."""
    yield "in the environment", _variables(environment)
    dotenv = _variables(_parsed(Path(".env"), _dotenv))
    yield "in .env", dotenv
    own = _parsed(Path("prefect.toml"))
    yield "in prefect.toml", _flat(own)
    project = _parsed(Path("pyproject.toml")).get("tool", {}).get("prefect", {})
    yield "in pyproject.toml", _flat(project)
    named = [each.get("PREFECT_PROFILES_PATH") for each in (environment, dotenv)]
    named += [each.get("profiles_path") for each in (own, project)]
    file, name, values = _profile(environment, next(filter(None, named), None))
    yield f"in the profile {name} of {file}", values


def _dotenv(text: str) -> dict[str, Any]:
    from dotenv import dotenv_values

    return dict(dotenv_values(stream=io.StringIO(text)))


def _variables(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {key.upper(): value for key, value in environment.items() if key.upper().startswith(PREFIX)}


def _flat(tables: Mapping[str, Any], prefix: str = PREFIX) -> dict[str, Any]:
    """The settings of nested tables, by the names of their variables."""
    found: dict[str, Any] = {}
    for key, value in tables.items():
        name = f"{prefix}{key.upper()}"
        if isinstance(value, dict) and name != HEADERS:
            found |= _flat(value, f"{name}_")
        else:
            found[name] = value
    return found


def _profile(environment: Mapping[str, str], named: str | None) -> tuple[Path, str, Mapping[str, Any]]:
    """The file of profiles, the name of the active one, and its settings."""
    file = Path(named) if named else _profiles_file(environment.get("PREFECT_HOME"))
    found = _parsed(file)
    profiles = found.get("profiles", {})
    active = environment.get("PREFECT_PROFILE") or found.get("active") or "ephemeral"
    if environment.get("PREFECT_PROFILE") and file.exists() and active not in {*profiles, "ephemeral"}:
        raise ConfigError(
            f"PREFECT_PROFILE names {active}, and {file} has: {', '.join(profiles) or 'none'}; correct it, or "
            "unset it"
        )
    return file, str(active), _variables(profiles.get(active, {}))


def _profiles_file(home: str | None) -> Path:
    """The user's file of profiles; Prefect has one of its own, which applies while there is none."""
    if home:
        return Path(home, "profiles.toml")
    with suppress(RuntimeError):  # the user has no home folder
        own = Path.home() / ".prefect" / "profiles.toml"
        if own.exists():
            return own
    package = importlib.util.find_spec("prefect")
    assert package is not None
    return Path(str(package.origin)).parent / "settings" / "profiles.toml"


def _parsed(file: Path, parse: Callable[[str], dict[str, Any]] = tomllib.loads) -> dict[str, Any]:
    """The content of a file that may hold Prefect's settings; empty if there is none."""
    try:
        return parse(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:  # a ValueError also of a file that is not UTF-8
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"{file}, which may hold Prefect's settings, cannot be read: {reason}; correct it, or move it away"
        ) from error
