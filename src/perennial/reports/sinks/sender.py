"""Send results to the sinks from a process of its own, which fails no run whatever a sink does."""

import importlib
import json
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perennial.base import config as configuration
from perennial.base import layout, logs
from perennial.base.config import Config
from perennial.base.errors import PerennialError, printable, redacted
from perennial.base.processes import programs
from perennial.base.processes.programs import TimedOut
from perennial.reports.sinks import content

log = logging.getLogger(__name__)
RESULTS_S = 600.0  # to send all results, the export among them
LOG = "sinks.log"  # in paths.work
SHOWN = 300  # characters of a sink's error


@dataclass(frozen=True)
class Sent:
    """What became of a sink: where the training is shown, or why it is not."""

    sink: str
    place: str | None
    problem: str | None


def send(params: Path) -> list[Sent]:
    """Send the results of this checkout to all sinks, within ten minutes."""
    config = configuration.load(params)
    config.paths.work.mkdir(parents=True, exist_ok=True)
    with (config.paths.work / LOG).open("a", encoding="utf-8") as stream:
        try:
            done = programs.run(
                [sys.executable, "-m", __name__, str(params)],
                limit_s=RESULTS_S,
                env={**os.environ, "PYTHONPATH": layout.python_path()},
                log=lambda line: print(line, file=stream),
                grace_s=0,
            )
            # Packages may print before it.
            return [Sent(**each) for each in json.loads(done.output.splitlines()[-1])]
        except TimedOut as error:
            why = f"it took more than {error.limit_s:g} s"
        except (ValueError, LookupError, TypeError):
            why = f"its process failed; see {config.paths.work / LOG}"
    return [Sent(name, None, why) for name in config.logging.sinks]


def problems(sent: list[Sent]) -> Iterator[str]:
    """What to tell about sinks that did not take the results."""
    for each in sent:
        if each.problem is not None:
            yield f"{each.sink} lacks results: {each.problem}; `perennial report --send` sends them again"


def _sent(name: str, config: Config) -> Sent:
    try:
        sink: Any = importlib.import_module(f"perennial.reports.sinks.{name}_sink")
        return Sent(name, redacted(sink.send(content.of_results(config))), None)
    except Exception as error:  # of any package
        log.warning("%s failed", name, exc_info=not isinstance(error, PerennialError))
        text = printable(redacted(" ".join(str(error).split())))[:SHOWN]
        if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("perennial."):
            text = f"{error.name} is not installed: `perennial add {name}`"
        return Sent(name, None, text or type(error).__name__)


def _main(params: Path) -> None:
    logs.to_stderr("%(asctime)s %(name)s: %(message)s", logging.WARNING)
    config = configuration.load(params)
    sys.stdout.write(json.dumps([asdict(_sent(name, config)) for name in config.logging.sinks]) + "\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
