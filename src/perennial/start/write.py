"""Write chosen parameters into params.yaml, so that nothing of the old file is lost."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from perennial import config, files
from perennial.config import Config, options
from perennial.config.upgrade import preset_keys, set_values, upgrade
from perennial.errors import ConfigError
from perennial.registry.git import Repository
from perennial.start.plan import OPTIONAL, Choice

WRITTEN = Path("start.json")  # in paths.work: the digest of what the last call wrote


def new_text(file: Path, choices: Sequence[Choice], values: Mapping[str, Any]) -> str:
    """The params.yaml with the choices and values of the user's own.

    Keys of presets without a choice get their defaults; all others stay as they are.

    Raises:
        ConfigError: the file or a value is not valid.
    """
    text = file.read_text(encoding="utf-8") if file.exists() else options.defaults()
    try:
        parsed(text)
    except ConfigError:
        text = upgrade(text).text
    reset = {".".join(path) for path in preset_keys()} | set(OPTIONAL)
    defaults = {key: options.values(tuple(key.split("."))) for key in sorted(reset)}
    return set_values(text, {**defaults, **{each.key: each.value for each in choices}, **values}).text


def parsed(text: str) -> Config:
    """The parameters in a text."""
    return config.check(config.read(text))


def require_replaceable(file: Path, work: Path, *, force: bool) -> None:
    """Refuse a changed params.yaml that git does not have.

    Raises:
        ConfigError: says how to keep it.
    """
    if force or not file.exists() or _is_kept(file, work):
        return
    raise ConfigError(
        f"{file} has changes that git does not have; nothing was written; commit it, or run this again with "
        f"--force, which keeps the old file as {_free(file)}"
    )


def write(file: Path, text: str, work: Path) -> Path | None:
    """Write params.yaml; returns where the old one was kept, if git does not have it."""
    kept = None
    if file.exists() and not _is_kept(file, work):
        kept = _free(file)
        files.copy(file, kept)
    files.write_bytes(file.resolve(), text.encode())
    files.write_json(work / WRITTEN, {"sha256": hashlib.sha256(text.encode()).hexdigest()})
    return kept


def _is_kept(file: Path, work: Path) -> bool:
    """Whether git has the file as it is, or it has nothing of the user's: defaults, or an earlier call's."""
    content = file.read_bytes()
    if content == options.defaults().encode():
        return True
    written = work / WRITTEN
    if written.exists() and files.read_json(written).get("sha256") == hashlib.sha256(content).hexdigest():
        return True
    git = Repository(file.resolve().parent)
    return git.ask("ls-files", "--error-unmatch", file.name) is not None and (
        git.ask("diff", "--quiet", "HEAD", "--", file.name) is not None
    )


def _free(file: Path) -> Path:
    """A name beside the file that no other file has."""
    names = (file.with_name(f"{file.name}.{number}.old") for number in range(1, 1000))
    return next(name for name in names if not name.exists())
