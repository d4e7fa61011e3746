"""MLflow: a training is a run, found by its tag, so that a resumed training continues its run."""

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from perennial.base.config import Config
from perennial.base.errors import ConfigError, PerennialError
from perennial.reports.sinks import mlflow_model
from perennial.reports.sinks.content import Content, Point

ADDRESS, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
# Its own defaults try for four minutes.
BOUNDS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
TRAINING, WEIGHTS = "perennial.training", "perennial.weights"
PARAMS_AT_ONCE, METRICS_AT_ONCE = 100, 1000  # what a server takes in one request
AWAY = "failed with exception"  # in the message about a request without an answer
MODEL = "model"  # folder of artifacts
Each = TypeVar("Each")


def _credentials(address: str) -> dict[str, str]:
    """User and password of an address, in the variables that MLflow has for them: it prints addresses."""
    found = urlsplit(address)
    given = {"MLFLOW_TRACKING_USERNAME": found.username, "MLFLOW_TRACKING_PASSWORD": found.password}
    return {name: unquote(value) for name, value in given.items() if value is not None}


def _without_credentials(address: str) -> str:
    found = urlsplit(address)
    return found._replace(netloc=found.netloc.rpartition("@")[2]).geturl() if "@" in found.netloc else address


def opened(_: Config) -> "MlflowSink":
    """The server of MLFLOW_TRACKING_URI."""
    return MlflowSink()


class MlflowSink:
    """Sends to the server of MLFLOW_TRACKING_URI."""

    def __init__(self) -> None:
        """Take the address from the environment."""
        if not os.environ.get(ADDRESS):
            raise ConfigError(f"{ADDRESS} is not set; set it to the address of your MLflow server")
        for name, value in (*_credentials(os.environ[ADDRESS]).items(), *BOUNDS.items()):
            os.environ.setdefault(name, value)
        os.environ[ADDRESS] = _without_credentials(os.environ[ADDRESS])
        self._client = MlflowClient()

    def send(self, content: Content, status: str) -> str:
        """Send what the server does not have yet; `status` is MLflow's. Returns the address of the run."""
        try:
            return self._send(content, status)
        except MlflowException as error:
            if AWAY not in str(error):
                raise
            raise PerennialError(f"{self._client.tracking_uri} cannot be reached") from error

    def _send(self, content: Content, status: str) -> str:
        run = self._run(content)
        name, has = run.info.run_id, run.data.params
        params = [
            Param(key, str(value)[:6000]) for key, value in content.params.items() if key not in has
        ]  # MLflow refuses another value of a parameter that it has
        for part in _parts(params, PARAMS_AT_ONCE):
            self._client.log_batch(name, params=part)
        for metrics in _parts([*self._metrics(run, content)], METRICS_AT_ONCE):
            self._client.log_batch(name, metrics=metrics)
        self._client.log_batch(name, tags=[RunTag(key, value[:5000]) for key, value in _tags(content).items()])
        for file in content.files:
            self._client.log_artifact(name, str(file))
        if content.export is not None:
            with tempfile.TemporaryDirectory() as folder:
                mlflow_model.write(content.export, Path(folder), run=name)
                self._client.log_artifacts(name, folder, MODEL)
            self._client.log_artifacts(name, str(content.export), f"{MODEL}/{mlflow_model.EXPORT}")
        if run.info.status != status:
            # A run that has ended gets the time, for its duration.
            change = self._client.update_run if status == "RUNNING" else self._client.set_terminated
            change(name, status=status)
        address = str(self._client.tracking_uri)
        shown = address.startswith("http")
        return f"{address}/#/experiments/{run.info.experiment_id}/runs/{name}" if shown else f"run {name}"

    def close(self) -> None:
        """Nothing is left to send."""

    def _run(self, content: Content) -> Run:
        experiment = self._experiment(os.environ.get(EXPERIMENT) or content.project)
        for tag, value in ((TRAINING, content.training), (WEIGHTS, content.weights)):
            if value and (
                found := self._client.search_runs([experiment], f"tags.`{tag}` = '{value}'", max_results=1)
            ):
                return found[0]
        return self._client.create_run(experiment, run_name=content.name, tags=_tags(content))

    def _experiment(self, name: str) -> str:
        if (found := self._client.get_experiment_by_name(name)) is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another training has just created it
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _metrics(self, run: Run, content: Content) -> Iterator[Metric]:
        now = int(time.time() * 1000)
        for points in content.curves.values():
            for point in self._new(run, points):
                yield from (Metric(key, value, now, point.step) for key, value in point.metrics.items())
        last = max((point.step for point in chain(*content.curves.values())), default=0)
        has: dict[str, float] = run.data.metrics
        yield from (
            Metric(key, value, now, last) for key, value in content.scores.items() if has.get(key) != value
        )

    def _new(self, run: Run, points: Iterable[Point]) -> Iterator[Point]:
        """The points after the last one that the server has."""
        found = list(points)
        key = next((name for point in found for name in point.metrics), None)
        sent = self._client.get_metric_history(run.info.run_id, key) if key in run.data.metrics else []
        last = max((each.step for each in sent), default=-1)
        return (point for point in found if point.step > last)


def _parts(values: list[Each], size: int) -> Iterator[list[Each]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _tags(content: Content) -> dict[str, str]:
    tags = {TRAINING: content.training, "mlflow.source.type": "JOB", "mlflow.source.name": content.project}
    if content.weights:
        tags[WEIGHTS] = content.weights
    if revision := content.tags.get("git.revision"):
        tags["mlflow.source.git.commit"] = revision
    if decision := content.tags.get("decision"):
        tags["mlflow.note.content"] = f"{decision}: {content.tags['reasons']}"
    return tags | dict(content.tags)
