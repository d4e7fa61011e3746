"""All files of a data set, and what to say when some are missing."""

from collections.abc import Callable, Sequence
from pathlib import Path

from perennial.downloads import addresses, verify
from perennial.downloads.fetch import Unavailable, fetch
from perennial.downloads.limits import Limits
from perennial.downloads.wanted import Wanted
from perennial.errors import DataError, PerennialError


def originals(  # noqa: PLR0917
    wanted: Sequence[Wanted],
    instead: Sequence[Wanted],
    mirrors: Sequence[str],
    folder: Path,
    limits: Limits,
    arrived: Callable[[Path], None] = lambda _: None,
    credentials: tuple[str, str] | None = None,
) -> list[Path]:
    """The verified files in the folder; those that are as good instead, where the wanted ones cannot be had.

    `arrived` is told of each as soon as it is there.

    Raises:
        DataError: a mirror has other bytes, or refuses for good; says what to put where by hand.
        PerennialError: the network or a server failed, which may pass, or the disk.
    """
    choices = [choice for choice in (wanted, instead) if choice]
    if len(choices) > 1:
        # What a person put there comes before the network.
        choices.sort(key=lambda choice: not all(verify.at_hand(folder / each.name, each) for each in choice))
    failed: list[Unavailable] = []
    for choice in choices:
        found = []
        try:
            for each in choice:
                found.append(fetch(each, mirrors, folder, limits, credentials))
                arrived(found[-1])
        except Unavailable as error:
            failed.append(error)
        else:
            return found
    kind = PerennialError if any(error.may_pass for error in failed) else DataError
    told = "".join(f"{error.wanted.name} could not be had:{error}\n" for error in failed)
    raise kind(f"{told}Nothing was put in its place.{_by_hand(choices, mirrors, folder)}")


def _by_hand(choices: Sequence[Sequence[Wanted]], mirrors: Sequence[str], folder: Path) -> str:
    """What a person without a network has to bring."""
    missing = [[each for each in choice if not verify.at_hand(folder / each.name, each)] for choice in choices]
    if not all(each.sha256 for choice in missing for each in choice):
        return ""  # a file that nothing is known of is not recognised when it is put there
    places = ", ".join(addresses.public(mirror) for mirror in mirrors)
    listed = "\nor instead".join("".join(f"\n  {each}" for each in choice) for choice in missing)
    return f" Without a network, put into {folder.absolute()}{listed}\n(from {places}) and run this again."
