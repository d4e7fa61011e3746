"""Write a params.yaml for a folder of images: survey, choose, fetch weights, write, pin.

No user's change to an existing params.yaml is lost.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from perennial.base import config, documents, files
from perennial.base.config import Config
from perennial.base.config.networks import BY_NAME
from perennial.base.config.paths import Paths
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.params import options
from perennial.base.params.edit_params import preset_keys, set_values, upgrade, write_reasons
from perennial.base.project.git import Repository
from perennial.base.stage_state import outputs
from perennial.data.downloads.spec import TransferLimits
from perennial.data.sources import pin, previous, published_weights, weights
from perennial.project.start import plan, survey
from perennial.project.start.candidates import Named
from perennial.project.start.plan import OPTIONAL, Choice
from perennial.project.start.survey import Machine, Survey

NAME_IT = "name the table and its columns with --table, --file-column, --label-column and --split-column"
QUICK = TransferLimits(connect_s=5, stall_s=10, total_s=600, tries=1)  # a laptop may have no network


@dataclass(frozen=True, kw_only=True)
class Started:
    """The survey, the choices and the written file."""

    file: Path
    kept: Path | None  # copy of the old file, if git does not have it
    images: Survey
    machine: Machine
    choices: Sequence[Choice]  # except for the user's values
    values: Mapping[str, Any]  # set by the user
    weights_missing: str | None  # why ImageNet weights could not be fetched
    minutes: float  # estimated training time

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        found = asdict(self)
        found["images"]["path"] = str(self.images.path)
        kept = None if self.kept is None else str(self.kept)
        found |= {"file": str(self.file), "kept": kept, "minutes": round(self.minutes, 1)}
        return found | {"set": found.pop("values")}


def start(
    folder: Path,
    params: Path,
    values: Mapping[str, Any],
    *,
    force: bool,
    named: Named = survey.NOTHING,
    confirm: Callable[[Survey], bool] = lambda _: True,
) -> Started:
    """Write parameters that fit the images in a folder or archive, and pin the inputs of the stages.

    named: a table and columns. confirm: whether a person accepts a reading of a table that nobody named.
    """
    work = _work(params)
    _require_replaceable(params, work, force=force)
    task = values.get("dataset.task", named.task)
    named = replace(named, whole=values.get("dataset.table", named.whole), task=task)
    found, here = survey.look(folder, work, named), survey.this_machine()
    values = {key: found.block if key == "dataset.table" else value for key, value in values.items()}
    if found.chosen and not confirm(found):
        raise ConfigError(f"nothing was written; {NAME_IT}")
    path, missing = str(survey.relative(folder)), None
    size = values.get("preprocessing.image_size")
    choose = partial(plan.choose, found, here, path, image_size=size if isinstance(size, int) else None)
    choices = choose(pretrained=values.get("model.weights", BY_NAME) is not None)
    text = new_text(params, choices, values)
    if (checked := parsed(text)).model.weights == BY_NAME:
        missing = _unavailable(checked)
    if missing and "model.weights" not in values:
        choices = choose(pretrained=False)
        text = new_text(params, choices, values)
    outputs.require_outputs(parsed(text).paths)
    kept = _write(params, text, work)
    written = config.load(params)
    pin.pin(written)
    weights.pin(written)
    previous.pin(written.paths)
    return Started(
        file=params, kept=kept, images=found, machine=here,
        choices=[each for each in choices if each.key not in values], values=values, weights_missing=missing,
        minutes=plan.minutes(found, here, written),
    )  # fmt: skip


def _work(params: Path) -> Path:
    """Return the work folder that the parameters name; the default if they are invalid."""
    try:
        return config.load(params).paths.work
    except PerennialError:
        return Paths().work


def _unavailable(checked: Config) -> str | None:
    """Fetch the published weights; return the reason if that fails, else None."""
    try:
        published_weights.fetch(checked, QUICK)
    except PerennialError as error:
        return str(error).replace(published_weights.ALTERNATIVES, "")  # it is about to choose one
    return None


WRITTEN = Path("start.json")  # in paths.work: the digest of the params.yaml that the last call wrote


def new_text(file: Path, choices: Sequence[Choice], values: Mapping[str, Any]) -> str:
    """The text of params.yaml with choices, their reasons and the user's values; presets are reset."""
    text = file.read_text(encoding="utf-8") if file.exists() else options.defaults()
    try:
        parsed(text)
    except ConfigError:
        text = upgrade(text).text
    reset = {".".join(path) for path in preset_keys()} | set(OPTIONAL)
    defaults = {key: options.values(tuple(key.split("."))) for key in sorted(reset)}
    text = set_values(text, {**defaults, **{each.key: each.value for each in choices}, **values}).text
    chosen = {each.key: each.reason for each in choices if each.key not in values}
    return write_reasons(text, {**dict.fromkeys(defaults), **chosen})


def parsed(text: str) -> Config:
    """Parse and check the parameters in a text."""
    return config.check(config.read(text))


def _require_replaceable(file: Path, work: Path, *, force: bool) -> None:
    """Check that overwriting params.yaml loses no change that git does not have."""
    if force or not file.exists() or _is_kept(file, work):
        return
    raise ConfigError(
        f"{file} has uncommitted changes; nothing was written; commit them, or run this again with "
        f"--force, which keeps the old file as {_free(file)}"
    )


def _write(file: Path, text: str, work: Path) -> Path | None:
    """Write params.yaml; return the path of a copy of the old file, if git does not have it."""
    kept = None
    if file.exists() and not _is_kept(file, work):
        kept = _free(file)
        files.copy(file, kept)
    files.write_bytes(file.resolve(), text.encode())
    files.write_json(work / WRITTEN, {"sha256": hashlib.sha256(text.encode()).hexdigest()})
    return kept


def _is_kept(file: Path, work: Path) -> bool:
    """Whether git has this content, or none of it is the user's: defaults, or the output of an earlier call."""
    content = file.read_bytes()
    if content == options.defaults().encode():
        return True
    written = work / WRITTEN
    if written.exists() and documents.read_json(written).get("sha256") == hashlib.sha256(content).hexdigest():
        return True
    git = Repository(file.resolve().parent)
    return git.ask("ls-files", "--error-unmatch", file.name) is not None and (
        git.ask("diff", "--quiet", "HEAD", "--", file.name) is not None
    )


def _free(file: Path) -> Path:
    """Return an unused name beside the file."""
    names = (file.with_name(f"{file.name}.{number}.old") for number in range(1, 1000))
    return next(name for name in names if not name.exists())
