"""The lock of a pipeline on this machine: two runs never train here at once, whatever the server reports.

The kernel frees the lock however its holder ends. The lock belongs to the repository, not the checkout: a
run started by a worker and one started from a shell in the deployed checkout exclude each other.
"""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from perennial.base import files
from perennial.base.errors import ConfigError
from perennial.orchestration.client.owner import REPOSITORY, normal, owner_of_checkout, top_folder
from perennial.orchestration.engine import this_run
from perennial.orchestration.work.stage_failures import StageFailed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Holder:
    """The run that holds a lock; `since` is a time in UTC, to the minute."""

    run: str
    id: str
    since: str
    folder: str
    process: int


class Held(Exception):
    """Another run holds the lock."""

    def __init__(self, holder: Holder | None) -> None:
        super().__init__(str(holder))
        self.holder = holder
        self.reason = "another run has just started"
        if holder and holder.id:
            self.reason = running_since(f"{holder.run} in {holder.folder}", holder.since)


def holder() -> Holder:
    """This run as the holder of a lock."""
    since = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    return Holder(this_run.run_name(), str(this_run.run_id()), since, str(Path.cwd()), os.getpid())


def running_since(name: str, moment: datetime | str) -> str:
    """The reason why another run does not start; `moment` is a time in UTC."""
    shown = moment if isinstance(moment, str) else f"{moment:%Y-%m-%d %H:%M} UTC"
    return f"run {name} has been running since {shown}"


@contextmanager
def fence(repositories: Sequence[str], pipeline: str, holder: Holder) -> Iterator[None]:
    """Hold the locks of a pipeline of these repositories during the block."""
    with ExitStack() as locks:
        for repository in sorted(set(repositories)):
            key = hashlib.sha256(f"{repository}\n{pipeline}".encode()).hexdigest()[:16]
            try:
                folder = files.home() / "locks"
                folder.mkdir(parents=True, exist_ok=True)
                file = locks.enter_context((folder / f"{key}.lock").open("a+", encoding="utf-8"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ConfigError as error:
                raise StageFailed("retrain", error.exit_code, str(error)) from error
            except BlockingIOError:
                raise Held(_holder(file)) from None
            except OSError as error:
                log.warning("no lock keeps other runs on this machine away: %s", error)
                continue
            file.truncate(0)
            file.write(json.dumps(asdict(holder)))
            file.flush()
        yield


def repositories(*, deployed: bool, server: bool) -> list[str]:
    """The repositories to lock: the deployed one, else the checkout and, with a server, its remotes."""
    # Without a server a run pushes nothing by itself, so runs in two clones of one remote do not conflict. A
    # project in a subfolder has locks of its own.
    named = os.environ if deployed else {}
    local = owner_of_checkout(Path.cwd(), None, named)
    places = local.places
    if deployed and named.get(REPOSITORY):
        places = frozenset({normal(local.repository)})
    elif not server:
        places = frozenset({normal(str(top_folder(Path.cwd())))})
    return [f"{place}\n{local.folder}" if local.folder else place for place in sorted(places)]


def _holder(file: IO[str]) -> Holder | None:
    """The holder of a lock; None if it has taken the lock only just now."""
    file.seek(0)
    with suppress(ValueError, TypeError):
        return Holder(**json.loads(file.read()))
    return None
