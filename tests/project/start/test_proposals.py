"""The readings that `perennial start` proposes for tables, and what it asks for instead of choosing."""

import json
import shlex
from functools import cache
from pathlib import Path

import pytest
from support import raw
from typer.testing import CliRunner

from perennial.base import config, files
from perennial.base.errors import ConfigError, DataError
from perennial.cli import app
from perennial.project.start.candidates import Named
from perennial.project.start.survey import Survey, look
from perennial.stages.convert import convert
from perennial.stages.download import download

PARAMS, OWN = Path("params.yaml"), Path("own")
NUMBERS = range(1, 19)
LABEL, COLUMNS = ["--label-column", "species"], ["--table", "./l.csv", "--file-column", "image"]


def kind(number: int) -> str:
    return "cd"[number % 2]


@cache
def image(number: int) -> bytes:
    return raw.encoded(raw.picture(number))


def make(head: str, row: str, name: str = "l.csv", folder: str = "", **values: str) -> None:
    """Write images 1.png to 18.png, and a table with a header and rows in which {n}, {k} ... are filled in.

    values: by name in the row, a mark or word for each of as many rows, in turn.
    """
    for number in NUMBERS:
        files.write_bytes(OWN / folder.format(k=kind(number)) / f"{number}.png", image(number))
    rows = [head] if head else []
    for number in NUMBERS:
        turns = {key: each.split() if " " in each else each for key, each in values.items()}
        filled = {key: each[(number - 1) % len(each)] for key, each in turns.items()}
        rows.append(row.format(n=number, k=kind(number), i=number % 2, r=19 - number, **filled))
    files.write_bytes(OWN / name, "\n".join(rows).encode())


def found(**named: object) -> Survey:
    """What `start` finds, without what it writes then."""
    return look(OWN, Path("scratch"), Named(**named))


def block(**named: object) -> dict[str, object]:
    """The value of dataset.table that `start` writes."""
    return dict(found(**named).block)


def refusal(**named: object) -> str:
    with pytest.raises(DataError) as refused:
        found(**named)
    return str(refused.value)


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


@pytest.mark.parametrize(("lines", "columns"), PROPOSED.values(), ids=PROPOSED)
def test_the_only_reading_that_fits_all_rows_is_proposed(workspace, lines, columns) -> None:
    make(*lines)
    assert block() == {"path": "l.csv", "split": None, **columns}


def test_a_proposal_is_written_and_done_by_the_stages(start) -> None:
    make("Image ID,dx", "{n},{k}")
    done = start()
    assert (done.exit_code, "the only reading that fits all rows" in done.stdout) == (0, True)
    written = config.load(PARAMS)
    download(written)
    convert(written)
    assert (written.paths.records / "labels.txt").read_text() == "0:c\n1:d\n"


def test_columns_of_0_and_1_are_classes(workspace) -> None:
    make("id,even,odd", "{n},{e},{i}", e="01")
    assert block()["label"] == ["even", "odd"]


@pytest.mark.parametrize(
    "header", ["dataset", "phase", "Usage", "ml_use", "data_split", "purpose", "split", "x"]
)
@pytest.mark.parametrize("file", ["file", "image"])
def test_a_column_of_splits_is_used_under_any_name(workspace, header, file) -> None:
    make(f"{file},label,{header}", "{n}.png,{k},{s}", s="train train test test val val")
    survey = found()
    assert survey.per_split == {"train": 6, "validation": 6, "test": 6}
    assert header == "split" if survey.block is None else survey.block["split"] == header


@pytest.mark.parametrize("header", ["is_validation_set", "is_valid", "isTest", "used_for_testing"])
@pytest.mark.parametrize("marks", ["10", "YN", "tf"])
def test_yes_and_no_mean_splits_by_the_name_of_the_column_and_are_written_out(workspace, header, marks) -> None:
    make(f"file,label,{header}", "{n}.png,{k},{s}", s=4 * marks[0] + 2 * marks[1])
    split = block()["split"]
    assert isinstance(split, dict)
    assert set(split[header]) == set(marks)


ASKED = {
    "two columns that name other images": (
        ("id,url,label", "{n},http://x/{r}.png,{k}"),
        ["--file-column id --label-column label", "--file-column url --label-column label"],
    ),
    "a part of the rows": (("image,label", "{n}x.png,{k}"), ["no column names most of the images"]),
    "codes of splits": (("image,label,phase", "{n}.png,{k},{i}"), ["'phase' is not a split", '"0": "?"']),
    "codes that are names of images": (("file,label,Usage", "{n}.png,{k},{i}"), ["'Usage' is not a split"]),
    "valid may be said of the row": (("image,label,valid", "{n}.png,{k},{i}"), ["'valid' is not a split"]),
    "rows to leave out": (("image,label,exclude", "{n}.png,{k},{i}"), ["'exclude' of 'l.csv' (9 '0', 9 '1')"]),
    "rows to use": (("file,label,is_used", "{n}.png,{k},{i}"), ["'is_used'"]),
    "a set by number": (("file,label,set", "{n}.png,{k},{i}"), ["'set' is not a split", '"0": "?"']),
    "lists": (("image;labels", "{n}.png;['c', 'd']"), ["several labels"]),
    "numbers of rows, and names that are no files": (
        ("id,image,label", "{n},/up/0f3c-{r}.png,{k}"), ["'image' has names such as", "add --file-column id"],
    ),
    "a title above the header": (
        ("Export of May,,\nfile,label,size", "{n}.png,{k},3"), ["'Export of May' is no header"],
    ),
    "measures": (("file,cat,dog", "{n}.png,0.{n}5,0.{r}7"), ["no column looks like labels", "--label-column"]),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "messages"), ASKED.values(), ids=ASKED)
def test_what_is_not_clear_is_refused_with_the_options(workspace, lines, messages) -> None:
    make(*lines)
    refused = refusal()
    assert [each for each in messages if each not in refused] == []
    assert "nothing was written" in refused.lower()


def test_all_rows_are_used_if_the_table_is_named_with_its_columns(workspace) -> None:
    make("file,label,exclude", "{n}.png,{k},{i}")
    stated = "--table l.csv --file-column file --label-column label --split-column ''"
    assert f"to use all rows, add\n  {stated}" in refusal()
    assert found(table="l.csv", file="file", label=["label"], split="").per_split == {"train": 18}
    make("file,label,exclude", "{n}.png,{k},0")
    assert found().per_split == {"train": 18}


def test_a_table_beside_class_folders_may_not_say_which_images_to_leave_out(workspace) -> None:
    make("file,keep", "{n}.png,{y}", folder="{k}", y="yes no")
    assert "move these images away, and the table" in refusal()


@pytest.mark.parametrize(
    "values", ["apprentissage test", "Trainingsdaten Testdaten", "design holdout", "stage1_train my-test"]
)
def test_a_column_that_may_say_splits_in_other_words_is_not_passed_over(workspace, values) -> None:
    first, second = values.split()
    make("file,label,jeu", "{n}.png,{k},{s}", s=f"{first} {first} {second} {second}")
    assert "rows whose value in 'jeu' is not a split" in refusal()
    table = {"path": "l.csv", "file": "file", "label": "label"}
    stated = table | {"split": {"jeu": {first: "train", second: "test"}}}
    assert found(whole=stated).per_split == {"train": 10, "test": 8}
    with pytest.raises(ConfigError, match=r"must give train, validation or test for each value, got '\?'"):
        found(whole=table | {"split": {"jeu": {first: "train", second: "?"}}})
    assert found(split="").per_split == {"train": 18}


def test_a_class_may_be_called_train(workspace) -> None:
    make("file,label", "{n}.png,{c}", c="train d")
    assert found().per_class == {"d": 9, "train": 9}


@pytest.mark.parametrize("folders", [True, False])
def test_the_option_of_a_refusal_works_when_it_is_pasted(start, folders) -> None:
    name = "an owner's table.csv"
    if folders:
        make("the file,set", "{n}.png,{s}", name, folder="{k}", s="train train train train test")
    else:
        make("file,label", "{n}.png,{c}", name, c="none d")
    refused = start()
    (line,) = (each for each in refused.output.splitlines() if each.startswith("  --set"))
    pasted = start(*shlex.split(line))
    assert (refused.exit_code, pasted.exit_code) == (3, 0)
    assert ("splits: train 15, test 3" if folders else "classes: d 9, none 9") in pasted.stdout


def test_two_columns_of_labels_are_a_question_that_an_option_answers(workspace) -> None:
    make("file,species,target", "{n}.png,{k},{t}", t="ppqqpq")
    assert "2 readings of the tables; choose one by its options" in refusal()
    assert block(table="l.csv", label=["target"])["label"] == "target"


def test_another_column_is_not_chosen_because_the_one_of_labels_is_refused(workspace) -> None:
    make("file,gt,blurry", "{n}.png,{t},{i}", t=["Cat", "dog", "cat"])
    assert "--label-column blurry" in (refused := refusal())
    assert "'Cat'" in refused


def test_the_options_write_exactly_what_they_say(start) -> None:
    make("image,species,phase", "{n}.png,{k},train")
    done = start("--json", *COLUMNS, *LABEL, "--split-column", "phase")
    assert done.exit_code == 0, done.output
    block = {"path": "l.csv", "file": "image", "label": "species", "split": "phase"}
    assert "table: {path: l.csv, file: image, label: species, split: phase}" in PARAMS.read_text()
    found = json.loads(done.stdout)["images"]
    assert (found["block"], found["chosen"]) == (block, False)
    assert (found["per_class"], found["per_split"]) == ({"c": 9, "d": 9}, {"train": 18})
    assert found["examples"][0] == {"file": "1.png", "class": "d", "split": "train"}
    assert len(found["examples"]) == 5
    assert start("--table", "own/l.csv", *LABEL, "--split-column", "").exit_code == 0  # no splits
    table = config.load(PARAMS).dataset.table
    assert (table.path, table.split) == ("l.csv", None)


def test_an_option_that_names_nothing_is_refused_with_what_is_there(workspace) -> None:
    make("image,label", "{n}.png,{k}")
    with pytest.raises(ConfigError, match=r"names no table of images in own; tables there: 'l.csv'"):
        found(table="x.csv")
    with pytest.raises(ConfigError, match=r"--file-column photo: l.csv has no such column"):
        found(file="photo")
    (OWN / "l.csv").write_bytes(b"file\xe9,label")
    with pytest.raises(ConfigError, match=r"tables there: none; l.csv is not UTF-8"):
        found(table="l.csv")


def test_class_folders_are_used_and_a_table_only_by_name(workspace) -> None:
    make("file,license", "{n}.png,CC{i}", folder="{k}")
    rows = [f"{n}.png,{'animal' if n > 9 else 'other'},{n % 2},c,0.{n:02}" for n in NUMBERS]
    (OWN / "more.csv").write_text("\n".join(["image,coarse,sharp,class,probability", *rows]))
    unnamed = found()
    assert (unnamed.block, unnamed.per_class) == (None, {"c": 9, "d": 9})
    assert any("not used: 'l.csv', 'more.csv'; the class folders give" in line for line in unnamed.understood)
    assert found(table="l.csv").per_class == {"CC0": 9, "CC1": 9}


def test_a_table_for_each_split_is_proposed_with_both(workspace) -> None:
    make("image,label", "{n}.png,{k}")
    head, *rows = (OWN / "l.csv").read_text().splitlines()
    (OWN / "l.csv").unlink()
    (OWN / "train.csv").write_text("\n".join([head, *rows[:12]]))
    (OWN / "val_labels.csv").write_text("\n".join([head, *rows[12:]]))
    assert block()["path"] == {"train": "train.csv", "validation": "val_labels.csv"}


def test_lists_of_classes_that_differ_are_refused_and_one_is_written(workspace) -> None:
    make("image,label", "{n}.png,{i}")
    (OWN / "classes.txt").write_text("even\nodd\n")
    (OWN / "labels.txt").write_text("odd\neven\n")
    assert "labels.txt lists other classes than classes.txt" in refusal()
    (OWN / "labels.txt").unlink()
    assert found().per_class == {"even": 9, "odd": 9}
    assert block()["classes"] == "classes.txt"


def test_a_person_in_a_terminal_is_asked_when_something_was_chosen(start, monkeypatch) -> None:
    monkeypatch.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    make("image,species", "{n}.png,{k}")
    before = PARAMS.read_bytes()
    refused = start(answer="n\n")
    assert (refused.exit_code, PARAMS.read_bytes()) == (2, before)
    assert "name the table and its columns with --table" in refused.output
    assert [start(answer="y\n").exit_code, start("--yes").exit_code] == [0, 0]
    assert not found(table="l.csv", file="image", label=["species"]).chosen


def test_tables_in_the_folders_of_splits_are_proposed_with_both(workspace) -> None:
    for split in ("train", "test"):
        make("file_name,label", "{n}.png,{k}", name=f"{split}/metadata.csv", folder=split)
    assert found().per_split == {"train": 18, "test": 18}
    assert block()["path"] == {"train": "train/metadata.csv", "test": "test/metadata.csv"}


def test_a_table_deep_below_the_folder_is_found_by_its_name(workspace) -> None:
    (OWN / "meta/v1").mkdir(parents=True)
    make("image,label", "{n}.png,{k}", name="meta/v1/l.csv", folder="images")
    assert refusal()
    assert block(table="meta/v1/l.csv")["path"] == "meta/v1/l.csv"


def test_a_word_that_most_images_have_may_be_a_class(workspace) -> None:
    make("file,label", "{n}.png,{c}", c="none none c none none d")
    assert "12 of 18 images are 'none', a class or the word for none" in refusal()
    kept = found(whole={"path": "l.csv", "file": "file", "label": "label", "unlabelled": []})
    assert kept.per_class == {"c": 3, "d": 3, "none": 12}


def test_a_table_with_other_labels_beside_class_folders_is_a_question(workspace) -> None:
    make("image,species", "{n}.png,{s}", folder="site {k}", s="a a b b")
    assert found().chosen
    assert not found(table="l.csv", file="image", label=["species"]).chosen


def test_a_value_that_is_set_is_checked_and_written_with_text_as_keys(start) -> None:
    make("image,label,held", "{n}.png,{k},{h}", h="000011")
    value = "{path: l.csv, file: image, label: label, split: {held: {1: test, 0: train}}}"
    assert "splits: train 12, test 6" in start("--set", f"dataset.table={value}").stdout
    wrong = start("--set", "dataset.table={path: l.csv}")
    assert (wrong.exit_code, "dataset.table needs the column of files" in wrong.output) == (2, True)


TAGS = {"name": "l.csv", "t": "cat|dog cat dog|sky", "s": "n s"}


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("head", "row", "labels", "separator"),
    [
        ("image,tags", "{n}.png,{t}", "tags", "|"),
        ("image,tags,site", "{n}.png,{t},{s}", "tags", "|"),
        ("image,cat,dog,sky", "{n}.png,{h}", ["cat", "dog", "sky"], None),
    ],
)
def test_several_labels_are_proposed_where_one_reading_fits(head, row, labels, separator) -> None:
    make(head, row, **TAGS, h="1,1,0 1,0,0 0,0,0 0,1,1")
    survey = found(label=["tags"]) if "site" in head else found()
    assert (survey.task, survey.block["label"], survey.chosen) == ("multilabel", labels, True)
    assert (survey.block.get("separator"), survey.images) == (separator, 18)


def test_what_is_wrong_with_several_labels_is_said_of_their_reading_too(workspace) -> None:
    make("file,tags,flag", "{n}.png,{t},{x}", t="a|b b c c|a a;b b a|b c a c a b b|c a b c c a|c a b", x="012")
    refused = refusal(label=["tags"])
    assert "--separator '|' --task multilabel\n" in refused
    assert "1 labels that hold several ones: l.csv line 6: 'a;b'" in refused
    assert "other values than 0 and 1" in refusal(task="multilabel", label=["tags", "flag"])


@pytest.mark.usefixtures("project")
def test_a_column_of_one_label_beside_one_of_several_is_asked_about() -> None:
    make("image,tags,site", "{n}.png,{t},{s}", **TAGS)
    with pytest.raises(DataError, match=r"choose one by its options(?s:.*)--separator '\|' --task multilabel"):
        found()
    assert found(label=["site"]).task == "multiclass"


@pytest.mark.usefixtures("project")
def test_the_written_parameters_read_several_labels() -> None:
    make("image,tags", "{n}.png,{t}", **TAGS)
    options = ["--table", "l.csv", "--file-column", "image", "--label-column", "tags", "--separator", "|"]
    done = CliRunner().invoke(app, ["start", str(OWN), *options, "--set", "model.weights=null"])
    assert done.exit_code == 0, done.output
    assert "labels an image: 1.67 on average, at most 2; 0 images have none" in done.output
    chosen = config.load(PARAMS)
    assert (chosen.dataset.task, chosen.train.stop_metric, chosen.gate.min_map) == ("multilabel", "loss", None)
    download(chosen)
    convert(chosen)
