"""User and password for `dataset.base_url`: from the environment or a netrc file, never from the address."""

import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit

from perennial.errors import ConfigError

USER, PASSWORD = "PERENNIAL_BASE_URL_USER", "PERENNIAL_BASE_URL_PASSWORD"
HINT = f"set {USER} and {PASSWORD}, or add the host to the netrc file (~/.netrc, or the one that NETRC names)"


def of(base_url: str) -> tuple[str, str] | None:
    """User and password for a server; None where there are none.

    The environment comes first, then the netrc entry of the host (`default` entries are ignored: they would go
    to any server).

    Raises:
        ConfigError: the netrc file is not valid, or others may read it.
    """
    if urlsplit(base_url).scheme not in {"http", "https"}:
        return None
    if PASSWORD in os.environ:
        return os.environ.get(USER, ""), os.environ[PASSWORD]
    file = Path(os.environ.get("NETRC") or "~/.netrc").expanduser()
    try:
        # Without a name, netrc also checks who may read the file in the home folder.
        hosts = netrc.netrc(file if "NETRC" in os.environ else None).hosts
    except OSError:
        return None
    except netrc.NetrcParseError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        # The error's own message may hold a password.
        raise ConfigError(f"{file}{line}: not a valid netrc file, or others may read it (chmod 600)") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not a valid netrc file: not UTF-8") from None
    user, _, password = hosts.get(urlsplit(base_url).hostname or "", ("", "", ""))
    return (user, password or "") if user else None
