"""MLflow: a training is a run, found by a tag with the digest of its weights, so that it is sent once."""

import os
import time
from collections.abc import Iterator
from itertools import chain
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from perennial.base.errors import ConfigError, PerennialError
from perennial.reports.sinks.content import Content, Curve

ADDRESS, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
# Its own defaults try for four minutes.
BOUNDS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
WEIGHTS = "perennial.weights"
PARAMS_AT_ONCE, METRICS_AT_ONCE = 100, 1000  # what a server takes in one request
AWAY = "failed with exception"  # in the message about a request without an answer
MODEL = "model"  # folder of artifacts
Each = TypeVar("Each")


def send(content: Content) -> str:
    """Send what the server of MLFLOW_TRACKING_URI does not have yet; returns the address of the run."""
    if not os.environ.get(ADDRESS):
        raise ConfigError(f"{ADDRESS} is not set; set it to the address of your MLflow server")
    found = urlsplit(os.environ[ADDRESS])
    # MLflow prints addresses, and has variables for what is secret in them.
    given = {"MLFLOW_TRACKING_USERNAME": found.username, "MLFLOW_TRACKING_PASSWORD": found.password}
    for name, value in {**BOUNDS, **given}.items():
        if value is not None:
            os.environ.setdefault(name, unquote(value))
    if "@" in found.netloc:
        os.environ[ADDRESS] = found._replace(netloc=found.netloc.rpartition("@")[2]).geturl()
    client = MlflowClient()
    try:
        return _send(client, content)
    except MlflowException as error:
        if AWAY not in str(error):
            raise
        raise PerennialError(f"{client.tracking_uri} cannot be reached") from error


def _send(client: MlflowClient, content: Content) -> str:
    run = _run(client, content)
    name, has = run.info.run_id, run.data.params
    params = [
        Param(key, str(value)[:6000]) for key, value in content.params.items() if key not in has
    ]  # MLflow refuses another value of a parameter that it has
    for part in _parts(params, PARAMS_AT_ONCE):
        client.log_batch(name, params=part)
    for metrics in _parts([*_metrics(client, run, content)], METRICS_AT_ONCE):
        client.log_batch(name, metrics=metrics)
    client.log_batch(name, tags=[RunTag(key, value[:5000]) for key, value in _tags(content).items()])
    for file in content.files:
        client.log_artifact(name, str(file))
    if content.export is not None:
        client.log_artifacts(name, str(content.export), MODEL)
    if run.info.status != "FINISHED":  # else its duration would grow
        client.set_terminated(name)
    address = str(client.tracking_uri)
    shown = address.startswith("http")
    return f"{address}/#/experiments/{run.info.experiment_id}/runs/{name}" if shown else f"run {name}"


def _run(client: MlflowClient, content: Content) -> Run:
    experiment = _experiment(client, os.environ.get(EXPERIMENT) or content.project)
    mine = f"tags.`{WEIGHTS}` = '{content.weights}'"
    if found := client.search_runs([experiment], mine, max_results=1):
        return found[0]
    return client.create_run(experiment, run_name=content.name, tags=_tags(content))


def _experiment(client: MlflowClient, name: str) -> str:
    if (found := client.get_experiment_by_name(name)) is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException:  # another training has just created it
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _metrics(client: MlflowClient, run: Run, content: Content) -> Iterator[Metric]:
    now = int(time.time() * 1000)
    for curve in content.curves:
        for step, values in _new(client, run, curve):
            yield from (Metric(key, value, now, step) for key, value in values.items())
    last = max((step for step, _ in chain(*content.curves)), default=0)
    has: dict[str, float] = run.data.metrics
    yield from (Metric(key, value, now, last) for key, value in content.scores.items() if has.get(key) != value)


def _new(client: MlflowClient, run: Run, curve: Curve) -> Curve:
    """The points after the last one that the server has."""
    key = next((name for _, values in curve for name in values), None)
    sent = client.get_metric_history(run.info.run_id, key) if key in run.data.metrics else []
    last = max((each.step for each in sent), default=-1)
    return [(step, values) for step, values in curve if step > last]


def _parts(values: list[Each], size: int) -> Iterator[list[Each]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _tags(content: Content) -> dict[str, str]:
    tags = {
        WEIGHTS: content.weights, "mlflow.source.type": "JOB", "mlflow.source.name": content.project,
        "mlflow.note.content": f"{content.tags['decision']}: {content.tags['reasons']}",
    }  # fmt: skip
    if revision := content.tags.get("git.revision"):
        tags["mlflow.source.git.commit"] = revision
    return tags | dict(content.tags)
