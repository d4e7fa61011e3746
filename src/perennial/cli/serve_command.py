"""The command `serve`: serve a model over HTTP."""

import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import typer

from perennial.base import config
from perennial.base.choices import is_bucket
from perennial.base.config.fields import shown
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.processes.tensorflow import import_with_tensorflow
from perennial.cli.command import command
from perennial.cli.option_types import PARAMS, ParamsOption, location, typed

app = typer.Typer(rich_markup_mode=None)
NAME = "classifier"  # of a model without parameters
SECONDS: dict[str, Any] = {"min": 0.01, "max": 86400}
POLL_S, POLL_BUCKET_S = 1.0, 10.0


@command(app, "serve", json=False)
def _serve(  # noqa: PLR0913 - each option is one
    model: str | None = location(
        "Export, or publish folder or URL. [default: publish.url, else the export of the parameters]"
    ),
    *,
    name: str | None = typed("Name of the model in URLs. [default: record.artifact, else classifier]"),
    host: str = typed("Address to listen on; 0.0.0.0: all of them.", default="127.0.0.1"),
    port: int = typed("Port; 0: any free one.", default=8501, min=0, max=65535),
    every: float | None = typed("Seconds between looks for a version. [default: 1, bucket: 10]", **SECONDS),
    max_request_mb: int = typed("Limit of a request's body.", default=32, min=1, max=1024),
    max_megapixels: int = typed("Limit of an image.", default=50, min=1, max=80),
    max_instances: int = typed("Limit of images per request.", default=128, min=1, max=10_000),
    queue: int = typed("Limit of waiting images; more get 503.", default=1024, min=1, max=100_000),
    max_batch: int = typed("Limit of images per model call.", default=32, min=1, max=1024),
    max_wait_ms: float = typed("Milliseconds to wait for a full batch.", default=0, min=0, max=1000),
    keep: str | None = location("Folder or bucket for images to label later. [default: keep none]", "PLACE"),
    keep_what: Literal["image", "statistics"] = typed("Statistics have no pixels.", default="image"),
    keep_share: float = typed("Share of the images that is kept.", default=0.01, min=0, max=1),
    keep_per_day: int = typed("Limit of kept images a day.", default=1000, min=1),
    keep_mb: int = typed("Limit of the place's size.", default=1024, min=1),
    keep_days: int = typed("Days after which kept images are removed.", default=30, min=1),
    shadow: str | None = location("Candidate, compared on a share of the traffic. [default: none]"),
    shadow_share: float = typed("Share of the images that the candidate gets.", default=0.1, min=0, max=1),
    shadow_max_ms: float | None = typed("Stop a candidate that is slower. [default: no limit]", min=0),
    allow_origin: list[str] | None = typed("Site whose pages may send images; repeatable.", metavar="ORIGIN"),
    params: ParamsOption = PARAMS,
) -> None:
    chosen, own = _model(params) if model is None else (model, NAME)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name or own):
        raise ConfigError(f"--name takes letters, digits, dots, - and _, got {shown(name or own)}")
    with tempfile.TemporaryDirectory() as work:
        server = import_with_tensorflow("perennial.live.serving.server", Path(work))
    from perennial.live.serving import requests

    limits = requests.ServingLimits(
        request_bytes=max_request_mb << 20, held_bytes=8 * max_request_mb << 20,
        pixels=max_megapixels * 10**6, instances=max_instances, queue=max(queue, max_instances),
        batch=max_batch, wait_s=max_wait_ms / 1000, origins=_origins(allow_origin or ()),
    )  # fmt: skip
    kept = {"what": keep_what, "share": keep_share, "per_day": keep_per_day, "days": keep_days}
    poll_s = every or (POLL_BUCKET_S if is_bucket(chosen) else POLL_S)
    traffic = {
        "keep": keep and _capture(params, keep, bytes=keep_mb << 20, **kept),
        "shadow": shadow and _candidate(shadow, shadow_share, shadow_max_ms),
    }
    listener, decision = server.listen(host, port), _decision(params, chosen)
    served = (name or own, chosen, limits, poll_s, listener)
    server.serve(server.ModelServer(*served, decision=decision, **traffic))


def _origins(given: Sequence[str]) -> frozenset[str]:
    """The origins that are allowed, as browsers name them."""
    for each in given:
        if not re.fullmatch(r"https?://[^/\s?#@]+", each):
            raise ConfigError(f"--allow-origin takes a site such as https://shop.example, got {shown(each)}")
    return frozenset(map(str.lower, given))


def _capture(params: Path, url: str, **limits: Any) -> tuple[Any, Any]:
    """The place of kept images, which `forget` then searches in this project, and its limits."""
    from perennial.live.capture import keeper, place

    store = place.open_place(url)
    with suppress(PerennialError):  # a model is served without valid parameters, too
        place.note_place(config.load(params).paths.work, url)
    return store, keeper.CaptureLimits(**limits)


def _candidate(model: str, share: float, max_ms: float | None) -> Any:
    """The candidate for the shadow."""
    if not is_bucket(model) and not Path(model).exists():
        raise ConfigError(f"--shadow: {model} does not exist; name an export, a publish folder or a URL")
    from perennial.live.serving import shadow

    return shadow.Candidate(model=model, share=share, max_ms=max_ms)


def _model(params: Path) -> tuple[str, str]:
    """The model that the parameters name, and its name in the addresses."""
    if not params.exists():
        raise ConfigError(f"{params} does not exist, so it names no model; name one with --model")
    checked = config.load(params)
    return checked.publish.url or str(checked.paths.export), checked.record.artifact


def _decision(params: Path, chosen: str) -> Path | None:
    """The gate's decision, if the model is the export of the parameters."""
    with suppress(PerennialError):  # another model is served without valid parameters, too
        paths = config.load(params).paths
        if Path(chosen).resolve() == paths.export.resolve():
            return paths.decision
    return None
