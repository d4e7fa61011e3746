"""Bring the data of a search up to date, and write the best settings into params.yaml."""

import logging
import sys
from pathlib import Path

from perennial.base.config import Config
from perennial.base.dvc import dvc_program, repro
from perennial.base.errors import ERRORS, PerennialError
from perennial.base.params import edit_params
from perennial.project.tune.tune import Search, settings_line

log = logging.getLogger(__name__)


def prepare_data(config: Config) -> None:
    """Bring the data and initial weights up to date with DVC, as all trials read them."""
    python, here = Path(sys.executable), Path.cwd()
    arguments = ("repro", "validate", "initialize")
    ended = repro.run(
        python, *arguments, folder=here, work=config.paths.work, to=lambda line: log.info("%s", line),
        variables=repro.environment(python, here),
    )  # fmt: skip
    if ended.failure:
        kind = next((each for each in ERRORS if each.exit_code == ended.failure["code"]), PerennialError)
        raise kind(f"{ended.failure['stage']}: {ended.failure['message']}")
    if ended.code:
        lines = [line for line in ended.lines if dvc_program.NOISE not in line][-dvc_program.LINES :]
        raise PerennialError(f"`dvc {' '.join(arguments)}` failed: {' '.join(lines)}")


def choose(found: Search) -> bool:
    """Write the best settings into params.yaml if they are better than the present ones; returns whether."""
    found.require_unchanged()
    best, present = found.study.best(), found.present_trial
    if best is None or (present and present.state == "finished" and not found.study.better(best, present)):
        return False
    edit_params.change_file(found.params, values=best.settings)
    log.info("%s has the settings of trial %d: %s", found.params, best.number, settings_line(best.settings))
    return True
