"""Weights & Biases: a training is a run, whose name is the digest of its fingerprint, so that it can resume."""

import os
from pathlib import Path

import wandb

from perennial.base.config import Config
from perennial.base.errors import ConfigError
from perennial.operations.sinks.content import Content

KEY, MODE, PROJECT = "WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"
CONNECT_S = 10
STEP = "step"  # the axis of all curves


def opened(config: Config) -> "WandbSink":
    """The account of WANDB_API_KEY, or a folder."""
    return WandbSink(config)


class WandbSink:
    """Sends to the account of WANDB_API_KEY; with WANDB_MODE=offline it writes below `paths.work`."""

    def __init__(self, config: Config) -> None:
        """Take the account from the environment.

        Raises:
            ConfigError: there is none; W&B would ask at a terminal.
        """
        netrc = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
        if os.environ.get(MODE) != "offline" and KEY not in os.environ and not netrc.exists():
            raise ConfigError(
                f"{KEY} is not set; set it, or set {MODE}=offline and send later with `wandb sync`"
            )
        self._folder, self._sent = config.paths.work, dict[str, int]()
        self._run: wandb.Run | None = None
        self._code = 0

    def send(self, content: Content, status: str) -> str:
        """Send what was not sent by this process. Returns the address or the folder of the run."""
        run = self._run = self._run or self._started(content)
        origin = {f"perennial.{key}": value for key, value in content.tags.items()}
        run.config.update({**content.params, **origin}, allow_val_change=True)
        for group, points in content.curves.items():
            for point in points:
                if point.step > self._sent.get(group, 0):
                    run.log({STEP: point.step, **point.metrics})
                    self._sent[group] = point.step
        run.summary.update(dict(content.scores))
        if content.export is not None:
            artifact = wandb.Artifact(f"{content.project}-{content.training[:12]}", type="model")
            artifact.add_dir(str(content.export), name="export")
            for file in content.files:
                artifact.add_file(str(file))
            run.log_artifact(artifact)
        self._code = 1 if status == "KILLED" else 0
        return str(run.url or Path(run.dir).parent)

    def close(self) -> None:
        """Send the rest and end."""
        if self._run is not None:
            self._run.finish(exit_code=self._code)

    def _started(self, content: Content) -> wandb.Run:
        revision = content.tags.get("git.revision")
        tags = [content.tags[key] for key in ("version", "decision") if key in content.tags]
        run = wandb.init(
            id=content.training[:40],
            resume="allow",
            project=os.environ.get(PROJECT) or content.project,
            name=content.name,
            tags=[*tags, *([revision[:12]] if revision else [])],
            dir=str(self._folder),
            settings=wandb.Settings(silent=True, console="off", init_timeout=CONNECT_S, disable_git=True),
        )
        run.define_metric(STEP, hidden=True)
        run.define_metric("*", step_metric=STEP)
        if run.resumed:
            last = run.summary.get(STEP, 0)
            self._sent = dict.fromkeys(content.curves, int(last))
        return run
