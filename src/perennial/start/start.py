"""From a folder of images to a params.yaml: look, choose, fetch weights, write, pin."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perennial import config, outputs
from perennial.config import Config
from perennial.config.pretrained import BY_NAME
from perennial.config.release import PathsConfig
from perennial.downloads.spec import Limits
from perennial.errors import PerennialError
from perennial.sources import pin, previous, published_weights, weights
from perennial.start import machine, plan, survey, write
from perennial.start.machine import Machine
from perennial.start.plan import Choice
from perennial.start.survey import Survey

QUICK = Limits(connect_s=5, stall_s=10, total_s=600, tries=1)  # a laptop may have no network


@dataclass(frozen=True, kw_only=True)
class Started:
    """What was found, chosen and written."""

    file: Path
    kept: Path | None  # the old file, where git does not have it
    images: Survey
    machine: Machine
    choices: Sequence[Choice]  # without those that the user made
    values: Mapping[str, Any]  # that the user chose
    weights_missing: str | None  # why ImageNet weights could not be fetched
    minutes: float  # of the training, roughly

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "file": str(self.file),
            "kept": None if self.kept is None else str(self.kept),
            "images": {**asdict(self.images), "path": str(self.images.path)},
            "machine": asdict(self.machine),
            "choices": [asdict(each) for each in self.choices],
            "set": dict(self.values),
            "weights_missing": self.weights_missing,
            "minutes": round(self.minutes, 1),
        }


def start(folder: Path, params: Path, values: Mapping[str, Any], *, force: bool) -> Started:
    """Write parameters that fit the images in a folder or archive, and pin what the stages read.

    Raises:
        ConfigError: params.yaml has changes that git does not have, or a value is not valid.
        DataError: the folder has no folder for each class; nothing was written.
    """
    work = _work(params)
    write.require_replaceable(params, work, force=force)
    found, here = survey.look(folder, work), machine.this()
    path, missing = str(survey.relative(folder)), None
    choices = plan.choose(found, here, path, pretrained=True)
    text = write.new_text(params, choices, values)
    if (checked := write.parsed(text)).model.weights == BY_NAME:
        missing = _unavailable(checked)
    if missing and "model.weights" not in values:
        choices = plan.choose(found, here, path, pretrained=False)
        text = write.new_text(params, choices, values)
    outputs.require_outputs(write.parsed(text).paths)
    kept = write.write(params, text, work)
    written = config.load(params)
    pin.pin(written)
    weights.pin(written)
    previous.pin(written.paths)
    return Started(
        file=params,
        kept=kept,
        images=found,
        machine=here,
        choices=[each for each in choices if each.key not in values],
        values=values,
        weights_missing=missing,
        minutes=plan.minutes(found, here, written),
    )


def _work(params: Path) -> Path:
    """The work folder of the parameters, whether or not they are valid."""
    try:
        return config.load(params).paths.work
    except PerennialError:
        return PathsConfig().work


def _unavailable(checked: Config) -> str | None:
    """Fetch the published weights; why that was not possible, else None."""
    try:
        published_weights.fetch(checked, QUICK)
    except PerennialError as error:
        return str(error)
    return None
