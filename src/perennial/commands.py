"""The commands beside the stages: what a person asks of their results, and does with them."""

import importlib
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer

from perennial import config, outputs, process, tensorflow_process
from perennial.errors import ConfigError
from perennial.running import PARAMS, DebugOption, JsonOption, ParamsOption, guarded, print_json, run_stage

app = typer.Typer()
SplitName = Literal["train", "validation", "test"]


@app.command("config", help="Check the parameters and print them.")
def _config(params: ParamsOption = PARAMS, *, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    def show() -> None:
        checked = config.load(params)
        outputs.require_outputs(checked.paths)
        values = checked.model_dump(mode="json", by_alias=True)
        print_json(values) if as_json else typer.echo(params.read_text(encoding="utf-8"), nl=False)

    guarded("config", show, debug=debug)


@app.command("models", help="List the architectures with their parameter counts.")
def _models(*, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    def show() -> None:
        with tempfile.TemporaryDirectory() as work:
            module = tensorflow_process.import_module("perennial.models.listing", Path(work))
        listed = module.listing()
        if as_json:
            print_json(listed)
            return
        for model in listed:
            size = "{image_size}x{image_size}x{channels}".format(**model)
            weights = f"{model['name']:<24}{model['parameters']:>12,} parameters"
            typer.echo(f"{weights} at {size:<10} {model['preprocessing']}")

    guarded("models", show, debug=debug)


@app.command("report", help="Write a page about the last run, and tell its outcome.")
def _report(params: ParamsOption = PARAMS, *, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    def show() -> None:
        checked = config.load(params)
        stage = importlib.import_module("perennial.stages.report")
        stage.report(checked)
        facts = stage.summary(checked)
        if as_json:
            print_json({**facts, **stage.details(checked)})
        else:
            typer.echo("\n".join(f"{name:<20} {value}" for name, value in facts.items()))

    guarded("report", show, debug=debug)


@app.command("publish", help="Publish the promoted export as a version, or go back to one.")
def _publish(
    version: Annotated[
        int | None, typer.Argument(metavar="VERSION", min=1, help="With --rollback: the one to make current.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder of versions. [default: publish.url]")
    ] = None,
    *,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Move `current` to the version before, or to VERSION.")
    ] = False,
    params: ParamsOption = PARAMS,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    def publish() -> None:
        if rollback:  # cannot wait for a stage that works in this checkout, and touches nothing of it
            stage = importlib.import_module("perennial.stages.publish")
            with process.interruptible():
                done = stage.publish(config.load(params), to=to, rollback=True, version=version)
        else:
            done = run_stage("publish", params, to=to, version=version)
        if as_json:
            print_json({"version": done.version, "path": str(done.path), "moved": done.moved})
        else:
            told = "" if done.moved else " was current already; nothing was done"
            typer.echo(f"version {done.version}: {done.path}{told}")

    guarded("publish", publish, debug=debug)


@app.command("predict", help="Tell the classes of images, each with its probability.")
def _predict(
    images: Annotated[list[str], typer.Argument(metavar="IMAGE|FOLDER|-...", help="-: one image from stdin.")],
    model: Annotated[
        Path | None, typer.Option(help="Export or publish folder. [default: the export of the parameters]")
    ] = None,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Tell the K likeliest classes.")] = 1,
    on_bad_image: Annotated[
        Literal["fail", "skip"], typer.Option(help="fail: go on, and end with code 3.")
    ] = "fail",
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a row for each class.")] = False,
    debug: DebugOption = False,
) -> None:
    def predict() -> None:
        if as_json and as_csv:
            raise ConfigError("--json and --csv both say how to print; leave one out")
        form = "json" if as_json else "csv" if as_csv else "lines"
        asked = {"model": model, "params": params, "form": form, "top": top, "on_bad_image": on_bad_image}
        importlib.import_module("perennial.prediction.command").predict(images, **asked)

    guarded("predict", predict, debug=debug)


@app.command("show", help="Print record N, counted from 0, and draw or save its image.")
def _show(
    number: Annotated[int, typer.Argument(metavar="N", min=0, help="Number of the record.")],
    split: Annotated[
        SplitName | None,
        typer.Option(help="Count within train, validation or test."),
    ] = None,
    shard: Annotated[
        Path | None, typer.Option(help="Count within this TFRecord file, without parameters and index.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="File to write the encoded image to.")] = None,
    params: ParamsOption = PARAMS,
    *,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    def show() -> None:
        if shard and split:
            raise ConfigError("--shard and --split both say where to count; leave one out")
        module = importlib.import_module("perennial.show")
        if shard:
            module.show_in_file(shard, number, save=save, as_json=as_json)
        else:
            module.show(config.load(params), number, split=split, save=save, as_json=as_json)

    guarded("show", show, debug=debug)
