"""What differs between two revisions, its effect on the score, and what cannot be had of it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.git import IDENTITY
from support.histories import BAD, GOOD, Hand, hand
from typer.main import get_command

from perennial.base import config
from perennial.base.errors import ConfigError, DataError
from perennial.cli import app
from perennial.reproduce.rebuild.workspace import Workspace
from perennial.reproduce.why import chain, differences
from perennial.reproduce.why.differences import Revisions
from perennial.reproduce.why.mixtures import Mixtures
from perennial.reproduce.why.why import document, why

__all__ = ["hand"]


def compare(a: str, b: str) -> dict[str, Any]:
    return document(why(config.load(Path("params.yaml")), a, b))


def code(hand: Hand) -> None:
    hand.write("src/model/a.py", "1\n2\n")


def package(hand: Hand) -> None:
    hand.write("requirements/train.yaml", "packages: {numpy: '3'}\n")


def relabelled(hand: Hand) -> None:
    hand.write("photos/list", "2\n")
    hand.labels[0] = 1


def added(hand: Hand) -> None:
    hand.write("photos/list", "2\n")
    hand.labels.append(0)


def pipeline(hand: Hand) -> None:
    hand.write(
        "dvc.yaml", (hand.folder / "dvc.yaml").read_text().replace("cmd: t,", "cmd: t, always_changed: true,")
    )


CHANGES: dict[str, tuple[Callable[[Hand], None], list[tuple[str, str]]]] = {
    "code": (code, [("code", "src/model")]),
    "a parameter": (
        lambda hand: hand.params({"train.learning_rate": 3.0}),
        [("parameters", "train.learning_rate")],
    ),
    "data": (added, [("data", "data/raw"), ("data", "photos")]),
    "dvc.yaml": (pipeline, [("code", "dvc.yaml")]),
    "the gate": (lambda hand: hand.params({"gate.min_gain": 0.5}), []),
}


@pytest.mark.fast_rows("code", "a parameter", "data")
@pytest.mark.parametrize("name", CHANGES)
def test_a_difference_has_its_kind_and_its_values(hand: Hand, name: str) -> None:
    change, expected = CHANGES[name]
    hand.run(GOOD)
    change(hand)
    hand.run(BAD)
    opened = Revisions(config.load(Path("params.yaml")), hand.git)
    found = differences.between(opened.open("HEAD~1"), opened.open("HEAD"), opened.history)
    assert [(each.kind, each.what) for each in found if each.decides] == expected
    assert found
    assert all(each.a != each.b for each in found)
    if name == "code":
        assert found[0].changes == "src/model/a.py +1 -0"


def test_labels_that_no_run_has_pinned_yet_are_a_difference(hand: Hand) -> None:
    hand.run(GOOD)
    (hand.folder / "labels").mkdir()
    hand.write("labels/labels.csv", "image,label\na.jpg,dog\n")
    hand.commit()
    (found,) = compare("HEAD~1", "HEAD")["differences"]
    assert (found["kind"], found["what"], found["decides"]) == ("data", "labels/labels.csv", True)
    assert found["changes"] == "labels/labels.csv +2 -0"


def test_the_effect_names_examples_classes_and_images(hand: Hand) -> None:
    hand.run(GOOD)
    relabelled(hand)
    hand.run(BAD)
    found = compare("HEAD~1", "HEAD")
    assert [(each["kind"], each["what"]) for each in found["differences"]] == [
        ("labels", "data/raw"),
        ("labels", "photos"),
    ]
    assert found["a"]["accuracy"] == 1.0
    assert found["b"]["accuracy"] == 0.625
    assert found["cause"] is None
    effect, examples = found["effect"], found["effect"]["examples"]
    assert {"compared": 8, "only_a": 3, "only_b": 0}.items() <= examples.items()
    assert examples["changed"][0] == {"record": 5, "label": "dog", "a": "dog", "b": "cat"}
    assert effect["classes"] == [{"class": "dog", "a": 1.0, "b": 0.5}, {"class": "cat", "a": 1.0, "b": 0.75}]
    images = effect["images"]
    assert [images[kind] for kind in ("added", "removed", "relabelled", "moved")] == [0, 0, 1, 0]


def test_models_are_compared_on_the_test_images_that_both_have(hand: Hand) -> None:
    hand.run(GOOD)
    added(hand)  # the first test image is in train now, and the last one is new
    hand.run(BAD)
    effect = compare("HEAD~1", "HEAD")["effect"]
    assert effect["examples"]["compared"] == 7
    assert [effect["images"][kind] for kind in ("added", "removed", "relabelled", "moved")] == [1, 0, 0, 1]
    assert effect["images"]["examples"] == {"train": [20, 21], "validation": [0, 0], "test": [8, 8]}


def test_a_commit_that_was_not_reproduced_has_no_score(hand: Hand) -> None:
    hand.run(GOOD)
    hand.params({"train.learning_rate": 3.0})
    hand.commit()
    found = compare("HEAD~1", "HEAD")
    assert [each["what"] for each in found["differences"]] == ["train.learning_rate"]
    assert found["b"]["accuracy"] is None
    assert found["cause"] is None
    assert "was not reproduced" in found["notes"][0]


def test_what_is_lost_is_named_and_the_rest_is_compared(hand: Hand) -> None:
    hand.run(GOOD)
    hand.params({"train.learning_rate": 3.0})
    hand.run(BAD)
    hand.cached("metrics/predictions.npz").write_bytes(b"damaged")
    done = CliRunner().invoke(get_command(app), ["why", "HEAD~1", "HEAD", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == DataError.exit_code
    assert found["cause"]["what"] == "train.learning_rate"
    assert found["effect"]["examples"] is None
    assert len(found["lost"]) == 1
    assert "metrics/predictions.npz of HEAD is lost" in done.stderr


def test_an_unknown_revision_and_one_without_scores_are_refused(hand: Hand) -> None:
    hand.commit()
    with pytest.raises(ConfigError, match=r"no dvc\.lock with a score"):
        compare("HEAD", "HEAD")
    with pytest.raises(ConfigError):
        compare("HEAD", "--upload-pack=x")


def test_the_text_names_the_cause(hand: Hand) -> None:
    hand.run(GOOD)
    code(hand)
    hand.params({"gate.min_gain": 0.5})
    hand.run(BAD)
    done = CliRunner().invoke(get_command(app), ["why", "HEAD~1", "HEAD"])
    assert done.exit_code == 0
    assert (
        done.stdout.splitlines()[-1]
        == "cause: code: src/model; it changes the accuracy by -0.3750, 100% of the whole change"
    )
    changed = [line.split()[:2] for line in done.stdout.splitlines()]
    assert (["code", "src/model"] in changed, ["(parameters)", "gate.min_gain"] in changed) == (True, True)


def test_one_revision_is_compared_with_the_champion(hand: Hand) -> None:
    hand.run(GOOD)
    done = CliRunner().invoke(get_command(app), ["why", "HEAD"])
    assert (done.exit_code, "no champion to compare with" in done.stderr) == (2, True)
    for tag in ("classifier@v0.0.1", "classifier#champion#1"):
        hand.git.run(*IDENTITY, "tag", "--annotate", "--message", "promoted", tag)
    code(hand)
    hand.run(BAD)
    one, two = (
        CliRunner().invoke(get_command(app), ["why", *revisions, "--json"])
        for revisions in (["HEAD"], ["HEAD~1", "HEAD"])
    )
    assert json.loads(one.stdout)["differences"] == json.loads(two.stdout)["differences"] != []


def chained(hand: Hand, a: str, b: str) -> tuple[list[chain.State], list[chain.Step]]:
    revisions = Revisions(config.load(Path("params.yaml")), hand.git)
    return chain.chain(revisions, revisions.open(a), revisions.open(b))


def test_the_steps_are_the_commits_that_change_an_input_in_their_order(hand: Hand) -> None:
    hand.run(GOOD)
    code(hand)
    hand.commit()
    hand.write("README.md", "more")
    hand.commit()
    relabelled(hand)
    hand.commit()
    hand.params({"train.learning_rate": 3.0, "train.seed": 5})
    hand.run(BAD)
    states, steps = chained(hand, "HEAD~4", "HEAD")
    assert [(each.kind, each.what) for each in steps] == [
        ("code", "src/model"), ("data", "photos"),
        ("parameters", "train.learning_rate"), ("seed", "train.seed"),
    ]  # fmt: skip
    assert [each.recorded is not None for each in states] == [True, False, False, False, True]
    backwards = chained(hand, "HEAD", "HEAD~4")[1]
    assert [each.kind for each in backwards] == ["parameters", "seed", "data", "code"]


def test_revisions_that_are_no_ancestors_differ_in_groups(hand: Hand) -> None:
    hand.run(GOOD)
    hand.git.run("checkout", "-q", "-b", "other")
    code(hand)
    package(hand)
    hand.params({"train.learning_rate": 3.0, "evaluate.batch_size": 7, "gate.min_gain": 0.5})
    hand.run(BAD)
    hand.git.run("checkout", "-q", "main")
    hand.write("src/convert.py", "2\n")
    hand.run(GOOD)
    states, steps = chained(hand, "main", "other")
    assert [each.what for each in steps] == [
        "src/convert.py, src/model", "packages.numpy in requirements/train.yaml", "evaluate.batch_size",
        "train.learning_rate",
    ]  # fmt: skip
    assert [step.what for step in states[2].unmade] == ["evaluate.batch_size", "train.learning_rate"]


def test_a_key_that_one_revision_lacks_comes_with_the_code(hand: Hand) -> None:
    hand.run(GOOD)
    text = (hand.folder / "params.yaml").read_text()
    hand.write("params.yaml", text.replace("  learning_rate: 0.001", "  #", 1))
    hand.commit()
    hand.write("params.yaml", text)  # for this test; the commits count
    _, steps = chained(hand, "HEAD~1", "HEAD")
    assert [(each.kind, chain.parameters(each)) for each in steps] == [("code", [])]


def test_a_version_that_is_recorded_wrongly_is_named_and_has_no_score(hand: Hand) -> None:
    a = hand.run(GOOD, {"train.learning_rate": 0.001})
    hand.params({"train.learning_rate": 0.002})
    b = hand.run(BAD, {"train.learning_rate": 0.001})
    done = why(config.load(Path("params.yaml")), a, b)
    (note,) = done.notes
    assert note.startswith(
        f"{b[:10]} is recorded wrongly: train.learning_rate is 0.002 in dvc.lock, and the training used 0.001"
    )
    assert [each and each.score for each in done.outcomes] == [1.0, None]
    assert done.cause is None


def test_code_of_a_project_without_source_has_the_versions_of_perennial(hand: Hand) -> None:
    hand.without_source("0.1.0", train="1", convert="3", gate="5")
    hand.run(GOOD)
    hand.without_source("0.2.0", train="2", convert="3", gate="6")
    hand.run(BAD)
    found = compare("HEAD~1", "HEAD")
    (train,) = (each for each in found["differences"] if each["decides"])
    assert (train["kind"], train["what"]) == ("code", "code of train")
    assert (train["a"], train["b"]) == ("perennial 0.1.0 (1111111111)", "perennial 0.2.0 (2222222222)")
    assert [each["what"] for each in found["differences"]] == ["code of train", "code of gate"]
    assert found["cause"]["what"] == "code of train"
    done = CliRunner().invoke(get_command(app), ["why", "HEAD~1", "HEAD"])
    row = next(line.split() for line in done.output.splitlines() if line.startswith("code"))
    assert [*row[:6], row[7]] == ["code", "code", "of", "train", "perennial", "0.1.0", "perennial"]


@pytest.mark.slow
def test_a_code_yaml_that_was_edited_after_the_run_makes_its_score_unknown(hand: Hand) -> None:
    hand.without_source("0.1.0", train="1")
    hand.run(GOOD)
    hand.run(BAD)
    hand.write("code.yaml", (hand.folder / "code.yaml").read_text().replace("1" * 64, "2" * 64))
    hand.commit()
    (note,) = compare("HEAD~1", "HEAD")["notes"]
    assert "its dvc.lock is of other inputs (code of train)" in note


def test_a_mixture_takes_packages_back_and_leaves_perennial_itself(hand: Hand) -> None:
    def versions(perennial: str, numpy: str) -> None:
        hand.without_source(perennial, train=perennial[-1])
        (hand.folder / "requirements").mkdir(exist_ok=True)
        hand.write("requirements/base.txt", f"numpy=={numpy}\n")
        hand.write("requirements/perennial.txt", f"perennial-ml=={perennial}\n")
        hand.write("requirements/train.yaml", f"packages: {{numpy: '{numpy}'}}\n")

    versions("0.0.1", "2")
    hand.run(GOOD)
    versions("0.0.2", "3")
    hand.run(BAD)
    opened = Revisions(config.load(Path("params.yaml")), hand.git)
    states, steps = chain.chain(opened, opened.open("HEAD~1"), opened.open("HEAD"))
    assert [step.kind for step in steps] == ["code", "packages"]
    mixed = Mixtures(opened, Workspace(hand.folder, Path(sys.executable), {}))
    mixed._lay_out(states[1])
    found = {
        name: (hand.folder / name).read_text() for name in ("requirements/base.txt", "requirements/train.yaml")
    }
    assert found == {
        "requirements/base.txt": "numpy==2\n",
        "requirements/train.yaml": "packages: {numpy: '2'}\n",
    }
    assert (hand.folder / "requirements/perennial.txt").read_text() == "perennial-ml==0.0.2\n"
    assert 'perennial: "0.0.2"' in (hand.folder / "code.yaml").read_text()
