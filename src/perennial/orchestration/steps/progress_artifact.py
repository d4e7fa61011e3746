"""The progress of a training, as a Prefect artifact and for a person."""

import contextvars
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from perennial.orchestration.engine import this_run
from perennial.orchestration.work.dvc_repo import work_folder

PROGRESS_S = 3.0  # between two looks at the file of a training
TIMEOUT_S = 10.0


@contextmanager
def training_progress() -> Iterator[None]:
    """Show the progress of the training in this block as the Prefect artifact `training`."""
    if not this_run.has_server():
        yield
        return
    file, over = work_folder() / "progress.json", threading.Event()
    # The run that artifacts belong to is in the context.
    run, before = contextvars.copy_context().run, _changed(file)
    thread = threading.Thread(target=lambda: run(_show_progress, file, before, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _show_progress(file: Path, shown: int, over: threading.Event) -> None:
    """Show each new content of a file until the training is over; `shown`: the change to leave out."""
    from prefect.artifacts import create_progress_artifact, update_progress_artifact
    from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    artifact: UUID | None = None
    last = False
    while not last:
        last = over.wait(PROGRESS_S)
        if (changed := _changed(file)) == shown:
            continue
        # Nobody waits for this one: the next look shows more.
        limits = {PREFECT_API_REQUEST_TIMEOUT: TIMEOUT_S, PREFECT_CLIENT_MAX_RETRIES: 0}
        try:
            percent, text = progress(json.loads(file.read_text(encoding="utf-8")))
            with temporary_settings(limits):
                if artifact is None:
                    created = create_progress_artifact(percent, key="training", description=text)
                    artifact = UUID(str(created))
                else:
                    update_progress_artifact(artifact, percent, description=text)
        except Exception as error:  # noqa: BLE001 - the server is down; training continues
            logging.getLogger(__name__).debug("the progress is not shown: %s", error)
        else:
            shown = changed


def progress(training: Mapping[str, Any]) -> tuple[float, str]:
    """The progress of a training as a percentage and as text, from the file that it writes."""
    # The accuracy is that on validation.
    shown = [f"epoch {training['epoch']} of {training['epochs']}"]
    if (score := training.get("map", training.get("accuracy"))) is not None:
        shown.append(f"{'mAP' if 'map' in training else 'accuracy'} {score:.4f}")
    if (seconds := training["seconds_left"]) is not None:
        left = str(timedelta(seconds=round(seconds)))
        shown.append(f"{left.removeprefix('0:')} left")
    if (speed := training["examples_per_second"]) is not None:  # last: a narrow terminal cuts it off
        shown.append(f"{speed:,.0f} examples/s")
    steps = training["steps"]  # 0 with train.max_steps 0
    return round(100 * training["step"] / steps, 1) if steps else 100.0, ", ".join(shown)


def _changed(file: Path) -> int:
    """The modification time of a file in nanoseconds; 0 if it does not exist."""
    return file.stat().st_mtime_ns if file.exists() else 0
