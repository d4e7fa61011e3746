"""The command `serve`: serve a model over HTTP."""

import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from perennial.base import config
from perennial.base.choices import is_bucket
from perennial.base.config.fields import shown
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.processes.tensorflow import import_with_tensorflow
from perennial.cli.command import PARAMS, ParamsOption, PathOrUrl, command

app = typer.Typer()
NAME = "classifier"  # of a model without parameters
POLL_S, POLL_BUCKET_S = 1.0, 10.0
Model = Annotated[
    str | None,
    typer.Option(
        parser=PathOrUrl,
        metavar="PATH|URL",
        help="Export, or publish folder or URL. [default: publish.url, else the export of the parameters]",
    ),
]
Name = Annotated[
    str | None, typer.Option(help="Name of the model in URLs. [default: record.artifact, else classifier]")
]
Every = Annotated[
    float | None,
    typer.Option(
        min=0.01, max=86400, help="Seconds between checks for a new version. [default: 1, bucket: 10]"
    ),
]
Queue = Annotated[int, typer.Option(min=1, max=100_000, help="Limit of waiting images; more get 503.")]
MaxWait = Annotated[
    float, typer.Option(min=0, max=1000, help="Time to wait for a batch to fill, in milliseconds.")
]
Keep = Annotated[
    str | None,
    typer.Option(
        parser=PathOrUrl,
        metavar="PLACE",
        help="Folder or bucket for images to label later. [default: keep none]",
    ),
]
KeepWhat = Annotated[
    Literal["image", "statistics"], typer.Option(help="What is kept of them; statistics have no pixels.")
]
KeepShare = Annotated[float, typer.Option(min=0, max=1, help="Share of the images that is kept.")]
KeepPerDay = Annotated[int, typer.Option(min=1, help="Limit of kept images a day.")]
KeepMb = Annotated[int, typer.Option(min=1, help="Limit of the place's size.")]
KeepDays = Annotated[int, typer.Option(min=1, help="Days after which kept images are removed.")]


Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ORIGIN", help="Let pages of this site send images (https://shop.example); repeatable."
    ),
]


ShadowModel = Annotated[
    str | None,
    typer.Option(
        parser=PathOrUrl,
        metavar="PATH|URL",
        help="Candidate that is compared on a share of the traffic. [default: none]",
    ),
]
ShadowShare = Annotated[float, typer.Option(min=0, max=1, help="Share of the images that the candidate gets.")]
ShadowMs = Annotated[
    float | None, typer.Option(min=0, help="Stop a candidate whose images take longer. [default: no limit]")
]


@command(app, "serve", "Serve a model over HTTP, with a page and metrics.")
def _serve(  # noqa: PLR0913 - each option is one
    model: Model = None,
    *,
    name: Name = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: all of them.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8501,
    every: Every = None,
    max_request_mb: Annotated[int, typer.Option(min=1, max=1024, help="Limit of a request's body.")] = 32,
    max_megapixels: Annotated[int, typer.Option(min=1, max=80, help="Limit of an image.")] = 50,
    max_instances: Annotated[int, typer.Option(min=1, max=10_000, help="Limit of images per request.")] = 128,
    queue: Queue = 1024,
    max_batch: Annotated[int, typer.Option(min=1, max=1024, help="Limit of images per model call.")] = 32,
    max_wait_ms: MaxWait = 0,
    keep: Keep = None,
    keep_what: KeepWhat = "image",
    keep_share: KeepShare = 0.01,
    keep_per_day: KeepPerDay = 1000,
    keep_mb: KeepMb = 1024,
    keep_days: KeepDays = 30,
    shadow: ShadowModel = None,
    shadow_share: ShadowShare = 0.1,
    shadow_max_ms: ShadowMs = None,
    allow_origin: Allow = None,
    params: ParamsOption = PARAMS,
) -> None:
    chosen, own = _model(params) if model is None else (model, NAME)
    _require_plain(name or own)
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
    traffic = server.Traffic(
        keep=keep and _capture(params, keep, bytes=keep_mb << 20, **kept),
        shadow=shadow and _candidate(shadow, shadow_share, shadow_max_ms),
    )
    decision = _decision(params, chosen)
    server.serve(
        name or own, chosen, limits, host=host, port=port, poll_s=poll_s, decision=decision, traffic=traffic
    )


def _require_plain(name: str) -> None:
    """Raise a ConfigError if a name cannot be part of a URL."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise ConfigError(f"--name takes letters, digits, dots, - and _, got {shown(name)}")


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
        place.remember(config.load(params).paths.work, url)
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
