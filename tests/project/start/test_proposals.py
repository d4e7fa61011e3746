"""The readings that `perennial start` proposes for tables, and what it asks for instead of choosing."""

import json
import shlex
from pathlib import Path

import pytest
from support import raw
from typer.testing import CliRunner

from perennial.base import config, files
from perennial.cli import app
from perennial.stages.convert import convert
from perennial.stages.download import download

PARAMS, OWN = Path("params.yaml"), Path("own")
NUMBERS = range(1, 19)


def kind(number: int) -> str:
    return "cd"[number % 2]


def make(*lines: str, name: str = "l.csv", folder: str = "") -> None:
    """Write images 1.png to 18.png, and a table with a header and rows in which {n} and {k} are filled in."""
    head, row = lines
    for number in NUMBERS:
        files.write_bytes(OWN / folder / f"{number}.png", raw.encoded(raw.picture(number)))
    rows = [row.format(n=number, k=kind(number), i=int(number % 2), r=19 - number) for number in NUMBERS]
    files.write_bytes(OWN / name, "\n".join([head, *rows] if head else rows).encode())


@pytest.fixture
def start(project: Path):
    def call(*options: str, answer: str | None = None):
        arguments = ["start", str(OWN), "--force", "--set", "model.weights=null", *options]
        return CliRunner().invoke(app, arguments, input=answer)

    return call


PROPOSED = {
    "other names": (("Image ID,dx", "{n},{k}"), {"file": "Image ID", "label": "dx"}),
    "no header": (("", "{n}.png,{k}"), {"file": 1, "label": 2}),
    "an url and a species": (
        ("url,species,age", "http://x/{n}.png,{k},4{i}"), {"file": "url", "label": "species"},
    ),
    "ids beside names": (
        ("file_name,class,class_id", "{n}.png,{k},{i}"), {"file": "file_name", "label": "class"},
    ),
    "two names of one file": (("image,path,label", "{n},own/{n}.png,{k}"), {"file": "image", "label": "label"}),
}  # fmt: skip


@pytest.mark.parametrize("case", PROPOSED)
def test_the_only_reading_that_fits_all_rows_is_written_and_done(start, case) -> None:
    lines, columns = PROPOSED[case]
    make(*lines)
    done = start()
    assert done.exit_code == 0, done.output
    written = config.load(PARAMS)
    assert written.dataset.table is not None
    assert written.dataset.table.block == {"path": "l.csv", "split": None, **columns}
    assert "the only reading that fits all rows" in done.stdout
    download(written)
    convert(written)
    assert (written.paths.records / "labels.txt").read_text() == "0:c\n1:d\n"


def test_columns_of_0_and_1_are_classes(start) -> None:
    make("id,even,odd", "{n},{i},{i}")
    text = (OWN / "l.csv").read_text().splitlines()
    rows = [f"{row.split(',')[0]},{1 - int(row[-1])},{row[-1]}" for row in text[1:]]
    (OWN / "l.csv").write_text("\n".join([text[0], *rows]))
    assert start().exit_code == 0
    table = config.load(PARAMS).dataset.table
    assert table is not None
    assert table.label == ["even", "odd"]


@pytest.mark.parametrize(
    "header", ["dataset", "phase", "Usage", "ml_use", "data_split", "purpose", "split", "x"]
)
@pytest.mark.parametrize("file", ["file", "image"])
def test_a_column_of_splits_is_used_under_any_name(start, header, file) -> None:
    make(f"{file},label,{header}", "{n}.png,{k},{i}")
    text = (OWN / "l.csv").read_text().splitlines()
    words = ["train", "test", "val"]
    rows = [f"{row.rpartition(',')[0]},{words[number // 2 % 3]}" for number, row in enumerate(text[1:])]
    (OWN / "l.csv").write_text("\n".join([text[0], *rows]))
    done = start()
    assert done.exit_code == 0, done.output
    assert "splits: train 6, validation 6, test 6" in done.stdout
    table = config.load(PARAMS).dataset.table
    assert header == "split" if table is None else table.split == header


@pytest.mark.parametrize("header", ["is_validation_set", "is_valid", "isTest", "is_train"])
def test_yes_and_no_mean_splits_by_the_name_of_the_column_and_are_written_out(start, header) -> None:
    make(f"file,label,{header}", "{n}.png,{k},0")
    text = (OWN / "l.csv").read_text().splitlines()
    rows = [f"{row[:-1]}{int(number % 6 < 4)}" for number, row in enumerate(text[1:])]
    (OWN / "l.csv").write_text("\n".join([text[0], *rows]))
    assert start().exit_code == 0
    table = config.load(PARAMS).dataset.table
    assert table is not None
    assert isinstance(table.split, dict)
    assert set(table.split[header]) == {"0", "1"}


ASKED = {
    "two columns that name other images": (
        ("id,url,label", "{n},http://x/{r}.png,{k}"),
        ["--file-column id --label-column label", "--file-column url --label-column label"],
    ),
    "a part of the rows": (("image,label", "{n}x.png,{k}"), ["no column names most of the images"]),
    "codes of splits": (("image,label,phase", "{n}.png,{k},{i}"), ["'phase' is not a split", '"0": "?"']),
    "codes that are names of images": (("file,label,Usage", "{n}.png,{k},{i}"), ["'Usage' is not a split"]),
    "valid may be said of the row": (("image,label,valid", "{n}.png,{k},{i}"), ["'valid' is not a split"]),
    "lists": (("image;labels", "{n}.png;['c', 'd']"), ["several labels"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_what_is_not_clear_is_refused_with_the_options(start, case) -> None:
    lines, messages = ASKED[case]
    before = PARAMS.read_bytes()
    make(*lines)
    done = start()
    assert done.exit_code == 3
    assert [each for each in messages if each not in done.output] == []
    assert "nothing was written" in done.output.lower()
    assert PARAMS.read_bytes() == before


@pytest.mark.parametrize("values", ["apprentissage test", "Trainingsdaten Testdaten", "holdout dev"])
def test_a_column_that_may_say_splits_in_other_words_is_not_passed_over(start, values) -> None:
    first, second = values.split()
    make("file,label", "{n}.png,{k}")
    rows = [f"{n}.png,{kind(n)},{first if n % 4 < 2 else second}" for n in NUMBERS]
    (OWN / "l.csv").write_text("\n".join(["file,label,jeu", *rows]))
    refused = start()
    assert (refused.exit_code, "rows whose value in 'jeu' is not a split" in refused.output) == (3, True)
    stated = {"jeu": {first: "train", second: "test"}}
    table = {"path": "l.csv", "file": "file", "label": "label", "split": stated}
    assert "splits: train 9, test 9" in start("--set", f"dataset.table={json.dumps(table)}").stdout
    table["split"] = {"jeu": {first: "train", second: "?"}}
    wrong = start("--set", f"dataset.table={json.dumps(table)}")
    assert "split: must give train, validation or test for each value, got '?'" in wrong.output
    assert start("--split-column", "").exit_code == 0


def test_a_class_may_be_called_train(start) -> None:
    make("file,label", "{n}.png,{k}")
    (OWN / "l.csv").write_text((OWN / "l.csv").read_text().replace(",c", ",train"))
    assert "classes: d 9, train 9" in start().stdout


@pytest.mark.parametrize("folders", [True, False])
def test_the_option_of_a_refusal_works_when_it_is_pasted(start, folders) -> None:
    text = "\n".join(["the file,set", *(f"{n}.png,{['train', 'test'][n % 5 == 0]}" for n in NUMBERS)])
    name = "an owner's table.csv"
    if folders:
        for number in NUMBERS:
            files.write_bytes(OWN / kind(number) / f"{number}.png", raw.encoded(raw.picture(number)))
        files.write_bytes(OWN / name, text.encode())
    else:
        make("file,label", "{n}.png,{k}", name=name)
        (OWN / name).write_text((OWN / name).read_text().replace(",c", ",none"))
    refused = start()
    (line,) = (each for each in refused.output.splitlines() if each.startswith("  --set"))
    pasted = start(*shlex.split(line))
    assert (refused.exit_code, pasted.exit_code) == (3, 0)
    assert ("splits: train 15, test 3" if folders else "classes: d 9, none 9") in pasted.stdout


def test_two_columns_of_labels_are_a_question_that_an_option_answers(start) -> None:
    make("file,species,target", "{n}.png,{k},x")
    text = (OWN / "l.csv").read_text().splitlines()
    rows = [f"{row[:-1]}{'pq'[number // 3 % 2]}" for number, row in enumerate(text[1:])]
    (OWN / "l.csv").write_text("\n".join([text[0], *rows]))
    refused = start()
    assert refused.exit_code == 3
    assert "2 readings of the tables; choose one by its options" in refused.output
    for place in ("own/l.csv", "./l.csv", str(Path("own/l.csv").resolve())):
        assert start("--table", place, "--label-column", "target").exit_code == 0
    table = config.load(PARAMS).dataset.table
    assert table is not None
    assert table.label == "target"


def test_the_options_write_exactly_what_they_say(start) -> None:
    make("image,species,phase", "{n}.png,{k},train")
    options = "--table l.csv --file-column image --label-column species --split-column phase"
    done = start("--json", *options.split())
    assert done.exit_code == 0, done.output
    block = {"path": "l.csv", "file": "image", "label": "species", "split": "phase"}
    assert (
        'table: {"path": "l.csv", "file": "image", "label": "species", "split": "phase"}' in PARAMS.read_text()
    )
    found = json.loads(done.stdout)["images"]
    assert (found["block"], found["chosen"]) == (block, False)
    assert (found["per_class"], found["per_split"]) == ({"c": 9, "d": 9}, {"train": 18})
    assert found["examples"][0] == {"file": "1.png", "class": "d", "split": "train"}
    assert len(found["examples"]) == 5
    assert start(*options.split()[:-1], "").exit_code == 0  # no column is one of splits
    table = config.load(PARAMS).dataset.table
    assert table is not None
    assert table.split is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--table", "x.csv"], "names no table of images in own; tables there: 'l.csv'"),
        (["--file-column", "photo"], "--file-column photo: l.csv has no such column"),
    ],
)
def test_an_option_that_names_nothing_is_refused_with_what_is_there(start, options, message) -> None:
    make("image,label", "{n}.png,{k}")
    done = start(*options)
    assert (done.exit_code, message in done.output) == (2, True)


def test_class_folders_are_used_and_a_table_only_by_name(start) -> None:
    make("file,license", "{n}.png,CC{i}", folder="c")
    for number in NUMBERS[:9]:
        (OWN / "d").mkdir(exist_ok=True)
        (OWN / f"c/{number}.png").rename(OWN / f"d/{number}.png")
    done = start()
    assert (done.exit_code, config.load(PARAMS).dataset.table) == (0, None)
    assert "not used: 'l.csv'; the class folders give the labels" in done.stdout
    assert start("--table", "l.csv").exit_code == 0
    assert "classes: CC0 9, CC1 9" in start("--table", "l.csv").stdout


def test_a_table_for_each_split_is_proposed_with_both(start) -> None:
    make("image,label", "{n}.png,{k}")
    head, *rows = (OWN / "l.csv").read_text().splitlines()
    (OWN / "l.csv").unlink()
    (OWN / "train.csv").write_text("\n".join([head, *rows[:12]]))
    (OWN / "val_labels.csv").write_text("\n".join([head, *rows[12:]]))
    assert start().exit_code == 0
    table = config.load(PARAMS).dataset.table
    assert table is not None
    assert table.path == {"train": "train.csv", "validation": "val_labels.csv"}


def test_lists_of_classes_that_differ_are_refused_and_one_is_written(start) -> None:
    make("image,label", "{n}.png,{i}")
    (OWN / "classes.txt").write_text("even\nodd\n")
    (OWN / "labels.txt").write_text("odd\neven\n")
    refused = start()
    assert (refused.exit_code, "labels.txt lists other classes than classes.txt" in refused.output) == (3, True)
    (OWN / "labels.txt").unlink()
    assert "classes: even 9, odd 9" in start().stdout
    table = config.load(PARAMS).dataset.table
    assert table is not None
    assert table.classes == "classes.txt"


def test_a_person_in_a_terminal_is_asked_when_something_was_chosen(start, monkeypatch) -> None:
    monkeypatch.setattr("perennial.cli.project_commands._in_terminal", lambda: True)
    make("image,species", "{n}.png,{k}")
    before = PARAMS.read_bytes()
    refused = start(answer="n\n")
    assert (refused.exit_code, PARAMS.read_bytes()) == (2, before)
    assert "name the table and its columns with --table" in refused.output
    assert start(answer="y\n").exit_code == 0
    assert start("--yes").exit_code == 0
    assert start("--table", "l.csv", "--file-column", "image", "--label-column", "species").exit_code == 0


def test_tables_in_the_folders_of_splits_are_proposed_with_both(start) -> None:
    for split in ("train", "test"):
        make("file_name,label", "{n}.png,{k}", name=f"{split}/metadata.csv", folder=split)
    done = start("--set", "validate.severity.duplicate_across_splits=warn")
    assert "splits: train 18, test 18" in done.stdout
    table = config.load(PARAMS).dataset.table
    assert table is not None
    assert table.path == {"train": "train/metadata.csv", "test": "test/metadata.csv"}


def test_a_table_deep_below_the_folder_is_found_by_its_name(start) -> None:
    (OWN / "meta/v1").mkdir(parents=True)
    make("image,label", "{n}.png,{k}", name="meta/v1/l.csv", folder="images")
    assert start().exit_code == 3
    assert start("--table", "meta/v1/l.csv").exit_code == 0


def test_a_word_that_most_images_have_may_be_a_class(start) -> None:
    make("file,label", "{n}.png,none")
    text = (OWN / "l.csv").read_text().splitlines()
    (OWN / "l.csv").write_text(
        "\n".join([*text[:14], *(row.replace("none", "cd"[len(row) % 2]) for row in text[14:])])
    )
    refused = start()
    assert (
        refused.exit_code,
        "13 of 18 images are 'none', a class or the word for none" in refused.output,
    ) == (3, True)
    kept = start("--set", 'dataset.table={"path": "l.csv", "file": "file", "label": "label", "unlabelled": []}')
    assert "none 13" in kept.stdout


def test_a_table_with_other_labels_beside_class_folders_is_a_question_in_a_terminal(start, monkeypatch) -> None:
    monkeypatch.setattr("perennial.cli.project_commands._in_terminal", lambda: True)
    make("image,species", "{n}.png,{k}", folder="site a")
    (OWN / "site b").mkdir()
    for number in NUMBERS[:9]:
        (OWN / f"site a/{number}.png").rename(OWN / f"site b/{number}.png")
    assert start(answer="n\n").exit_code == 2
    assert start("--table", "l.csv", "--file-column", "image", "--label-column", "species").exit_code == 0


def test_a_value_that_is_set_is_checked_and_written_with_text_as_keys(start) -> None:
    make("image,label,held", "{n}.png,{k},0")
    text = (OWN / "l.csv").read_text().splitlines()
    (OWN / "l.csv").write_text("\n".join([*text[:13], *(f"{row[:-1]}1" for row in text[13:])]))
    value = "{path: l.csv, file: image, label: label, split: {held: {1: test, 0: train}}}"
    assert "splits: train 12, test 6" in start("--set", f"dataset.table={value}").stdout
    wrong = start("--set", "dataset.table={path: l.csv}")
    assert (wrong.exit_code, "dataset.table needs the column of files" in wrong.output) == (2, True)
