"""Commands that are not stages, with their options."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from perennial.base import config, documents
from perennial.base.errors import ConfigError, PerennialError
from perennial.base.layout import Project
from perennial.base.project import own_components
from perennial.base.stage_state import outputs
from perennial.cli.command import command, exclusive, key_and_value, option_object, output, wants_json
from perennial.cli.option_types import PARAMS, ParamsOption, SplitName, argument, location, switch, typed
from perennial.cli.stage_commands import run_stage
from perennial.release.registry import run_records

if TYPE_CHECKING:
    from perennial.base.params.edit_params import Change

app = typer.Typer(rich_markup_mode=None)


@command(app, "config")
def _config(
    params: ParamsOption = PARAMS,
    *,
    upgrade: bool = switch("--upgrade", "Add missing keys with their defaults; keep all else."),
    preset: str | None = typed(
        "Apply a preset, or your own YAML file; keep your other values.", metavar="NAME"
    ),
    assign: list[str] | None = typed(
        "--set", "Set a key, such as train.epochs=2; repeatable.", metavar="KEY=VALUE"
    ),
    defaults: bool = switch("--defaults", "Print the params.yaml with all defaults."),
    options: bool = switch("--options", "Print the reference of all options."),
) -> None:
    from perennial.base.params import advice, edit_params
    from perennial.base.params import options as reference

    for name, given in {"upgrade": upgrade, "preset": preset, "set": assign}.items():
        exclusive(defaults=defaults, options=options, **{name: given})
    if defaults or options:
        every = [dataclasses.asdict(each) for each in reference.options()]
        document = reference.values(()) if defaults else every
        text = reference.defaults() if defaults else reference.markdown()
        output(document, text.removesuffix("\n"))
    elif upgrade or preset is not None or assign:
        values = dict(map(key_and_value, assign or ()))
        own_components.require(documents.nested(values), Project.find().root)
        change = edit_params.change_file(params, add_missing=upgrade, preset=preset, values=values)
        _show_change(params, change)
    else:
        checked = config.load(params)
        outputs.require_outputs(checked.paths)
        values = checked.model_dump(mode="json", by_alias=True)
        own_components.require(values, Project.find().root)
        output(values, params.read_text(encoding="utf-8").removesuffix("\n"))
        for each in advice.of_data(checked):
            typer.echo(f"{params}: advice: {each}", err=True)


def _show_change(params: Path, change: "Change") -> None:
    problems = change.problems()
    parts = {"removed": change.removed, "added": change.added, "set": change.set}
    lines = [f"{done} {key}" for done, keys in parts.items() for key in keys] or ["nothing to change"]
    document = {"file": str(params), **parts, "problems": problems}
    output(document, (f"{params}: {line}" for line in lines))
    if problems:
        raise ConfigError("\n".join(f"{params}: {problem}" for problem in problems))


@command(app, "report")
def _report(
    params: ParamsOption = PARAMS,
    *,
    page: bool = typed("--page/--no-page", "Write the page, or keep the last one.", default=True),
    send: bool = switch("--send", "Only send the results to logging.sinks, such as MLflow."),
    run: str | None = typed("--end", "Run that is complete.", hidden=True),
    results: str = typed("What DVC did with its stages.", default="{}", hidden=True),
) -> None:
    if send:
        _send(params)
        return
    from perennial.reports.report import summary

    checked = config.load(params)
    if page or not checked.paths.report.exists():
        from perennial.reports.report import report_page

        report_page.write(checked)
    facts = summary.summary(checked)
    if run:
        run_records.end(checked, run, run_records.COMPLETED, None, option_object("--results", results))
    lines = [*facts.items(), *(("advice", each) for each in summary.advised(checked))]
    document = {**facts, **summary.details(checked)}
    output(document, (f"{name:<20} {value}" for name, value in lines))


def _send(params: Path) -> None:
    if not config.load(params).logging.sinks:
        raise ConfigError(f"{params}: logging.sinks is empty; name a program there, such as [mlflow]")
    from perennial.reports.sinks import sender

    sent = sender.send(params)
    lines = (f"{each.sink:<20} {each.place}" for each in sent if each.place)
    output(list(map(dataclasses.asdict, sent)), lines)
    if problems := list(sender.problems(sent)):
        raise PerennialError("\n".join(problems))


@command(app, "publish")
def _publish(
    version: int | None = argument(
        "With --rollback: version to make current.", default=None, metavar="VERSION", min=1
    ),
    to: str | None = location("Place of the versions. [default: publish.url]", "FOLDER|URL"),
    *,
    rollback: bool = switch("--rollback", "Move `current` to the previous version, or to VERSION."),
    params: ParamsOption = PARAMS,
) -> None:
    if rollback:  # does not wait for a running stage, since it does not change the checkout
        from perennial.release.publishing import publish

        done = publish.publish(config.load(params), to=to, rollback=True, version=version)
    else:
        done = run_stage(
            "publish", params, module="perennial.release.publishing.publish", to=to, version=version
        )
    unchanged = "" if done.moved else " was current already; nothing was done"
    output(dataclasses.asdict(done), f"version {done.version}: {done.path}{unchanged}")


@command(app, "fetch")
def _fetch(
    url: str = location("Publish folder, URL in a bucket, or a version.", "URL", argument),
    to: Path | None = typed("Folder to write. [default: NAME-VERSION]", metavar="FOLDER"),
) -> None:
    from perennial.release.publishing import fetch_version

    done = fetch_version.fetch(url, to)
    unchanged = "" if done.moved else " was there already; nothing was done"
    output(dataclasses.asdict(done), f"version {done.version}: {done.path}{unchanged}")


@command(app, "predict")
def _predict(
    images: list[str] = location("-: one image from stdin.", "IMAGE|FOLDER|-...", argument),
    model: str | None = location("Export, or publish folder or URL. [default: the export of the parameters]"),
    top: int = typed("Print the K most probable classes of each image.", default=1, min=1, metavar="K"),
    on_bad_image: Literal["fail", "skip"] = typed(
        "fail: predict the others, then exit with code 3.", default="fail"
    ),
    params: ParamsOption = PARAMS,
    *,
    as_csv: bool = switch("--csv", "Print CSV, with one row per class."),
) -> None:
    exclusive(json=wants_json(), csv=as_csv)
    from perennial.cli import predict_images

    form: Literal["json", "csv", "lines"] = "json" if wants_json() else "csv" if as_csv else "lines"
    predict_images.predict(images, model=model, params=params, output=form, top=top, on_bad_image=on_bad_image)


@command(app, "show")
def _show(
    number: int = argument("Number of the record.", metavar="N", min=0),
    split: SplitName | None = typed("Count within train, validation or test."),
    shard: Path | None = typed("Count within this TFRecord file, without parameters and index."),
    save: Path | None = typed("File to write the encoded image to."),
    params: ParamsOption = PARAMS,
) -> None:
    exclusive(shard=shard, split=split)
    from perennial.cli import show_record

    if shard:
        show_record.show_in_file(shard, number, save=save)
    else:
        show_record.show(config.load(params), number, split=split, save=save)
