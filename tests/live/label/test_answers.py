"""Labels on their way: answers on the disk, other programs, and the branch."""

import hashlib
import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from support import checkout, kept
from support.git import git

from perennial.base.errors import ConfigError, DataError, PerennialError
from perennial.base.project.git import Repository
from perennial.base.storage.local import LocalStore
from perennial.data.datasets.readers import labelled
from perennial.live.capture import place
from perennial.live.label import branch, label_page, studio
from perennial.live.label.answers import Answers, Taken
from perennial.live.label.queue import Choice
from perennial.model.export import reference

CLASSES = ("cat", "dog")
IMAGES = [kept.image(number) for number in range(6)]


@pytest.fixture
def project(load, tmp_path, monkeypatch):
    """Parameters of a pipeline in a git repository."""
    config = load()
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".gitignore").write_text("*\n!.gitignore\n")
    git("init", "-q", "-b", "main")
    git("add", ".gitignore")
    git("commit", "-qm", "Begin")
    kept.keep(LocalStore(tmp_path / "kept"), IMAGES, [kept.record(each) for each in IMAGES])
    return config


@pytest.fixture
def answers(project, tmp_path):
    return Answers(tmp_path / "work")


@pytest.fixture
def queue(answers):
    return answers.draw("kept", Choice(count=4, bits=2))


def test_a_place_with_statistics_alone_has_nothing_to_label(answers, tmp_path):
    store = LocalStore(tmp_path / "statistics")
    known = replace(
        kept.record(IMAGES[0]), features=reference.packed(np.zeros(256, np.float32)), brightness=1.0
    )
    place.put_records(store, "2026-11-27", "020000-ab-n1", [known])
    with pytest.raises(ConfigError, match="statistics holds statistics and no images, so there is nothing"):
        answers.draw("statistics", Choice(count=4, bits=2))


def test_a_record_that_names_another_file_is_never_shown(answers, tmp_path, caplog):
    (tmp_path / "secret.png").write_bytes(b"secret")
    record = {
        "sha256": "../../../secret", "time": "2026-11-27T02:00:00.000+00:00", "model": "m", "version": "1",
        "top": [["cat", 0.5]], "reason": "random", "probability": 1,
    }  # fmt: skip
    LocalStore(tmp_path / "kept").put("2026-11-27/records/000000-x.jsonl", json.dumps(record).encode())
    queue = answers.draw("kept", Choice(count=100, bits=2))
    assert {each.sha256 for each in queue.images} <= {hashlib.sha256(each).hexdigest() for each in IMAGES}
    assert "1 damaged records are left out" in caplog.text


def test_a_queue_goes_on_until_all_its_images_have_a_label(answers, queue):
    for each in queue.images[1:]:
        answers.add(each, "cat", "Ada")
    assert (answers.unfinished("kept"), answers.unfinished("elsewhere")) == (queue, None)
    answers.add(queue.images[0], "", "Ada")
    assert answers.unfinished("kept") is None


def test_two_pages_that_answer_at_once_lose_nothing(answers, queue):
    def label(each):
        Answers(answers.folder).add(each, "cat", "Ada")

    threads = [threading.Thread(target=label, args=(each,)) for each in queue.images]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.labels().keys() == {each.sha256 for each in queue.images}


def test_an_answer_is_not_replaced_and_only_the_last_one_undone(answers, queue):
    label = answers.add(queue.images[0], "cat", "Ada")
    with pytest.raises(Taken, match="Ada labelled this image as cat"):
        answers.add(queue.images[0], "dog", "Eve")
    with pytest.raises(Taken):
        answers.undo(label.sha256, "another time")
    answers.undo(label.sha256, label.time)
    assert answers.labels() == {}


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\\nb", ' "a", b '])
def test_an_answer_of_any_text_leaves_the_others_readable(answers, queue, text):
    first, second = queue.images[:2]
    mine = answers.add(first, text, text)
    other = answers.add(second, "cat", "Ada")
    assert Answers(answers.folder).labels() == {first.sha256: mine, second.sha256: other}
    assert (mine.class_, mine.who) == (text, text)


def exported(form, queue):
    """Labels of the first two images as Label Studio exports them."""
    first, second = (each.sha256 for each in queue.images[:2])
    result = [{"from_name": "class", "to_name": "image", "type": "choices", "value": {"choices": ["dog"]}}]
    if form == "json":
        tasks = studio.tasks([(each, f"{each.sha256}.png") for each in queue.images], {})
        cancelled = {"result": result, "was_cancelled": True}
        tasks[0]["annotations"] = [cancelled, {"result": result, "completed_by": 3}]
        none = [{**result[0], "value": {"choices": [studio.NONE]}}]
        tasks[1]["annotations"] = [{"result": none, "completed_by": {"email": "ada@b.c"}}]
        return json.dumps(tasks)
    if form == "json-min":
        return json.dumps([
            {"image": f"/data/local-files/?d={first}.png", "class": "dog", "annotator": 3},
            {"image": "x", "sha256": second, "choice": {"choices": [studio.NONE]}, "annotator": "ada@b.c"},
            {"image": "x", "sha256": queue.images[2].sha256},
        ])  # fmt: skip
    if form == "csv":
        rows = (f"{studio.LOCAL}{first}.png,3,dog,{first}", f"x,ada@b.c,{studio.NONE},{second}")
        return "\n".join(("image,annotator,class,sha256", *rows, ""))
    return f"sha256,class,who\n{first},dog,3\n{second},{studio.NONE},ada@b.c\n"


@pytest.mark.parametrize("form", ["json", "json-min", "csv", "plain"])
def test_labels_of_label_studio_are_taken(answers, queue, form):
    answers.take(studio.read(exported(form, queue), "export", queue.images))
    rows = [answers.labels()[each.sha256] for each in queue.images[:2]]
    assert [(each.class_, each.who, each.reason) for each in rows] == [
        ("dog", "3", queue.images[0].reason), ("", "ada@b.c", queue.images[1].reason),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "no export of Label Studio"),
        ("[" * 200_000, "nested too deeply; nothing was taken"),
        ("a,b\n1,2\n", "its columns are a and b|its columns are"),
        (f"sha256,class\n{'a' * 64},cat\n", "1 images that are not in the queue"),
        ("sha256,class\nFIRST,cat\nFIRST,dog\n", "several labels of 1 images"),
    ],
)
def test_a_file_of_another_form_is_refused_as_a_whole(queue, text, message):
    with pytest.raises(DataError, match=message):
        studio.read(text.replace("FIRST", queue.images[0].sha256), "export", queue.images)


@pytest.fixture
def client(queue, answers):
    return TestClient(
        label_page.build(label_page.Labelling(queue, answers, CLASSES, "Ada")), base_url="http://127.0.0.1:1"
    )


def test_the_page_gets_no_prediction(client, queue):
    state = client.get("/queue").json()
    assert (state["classes"], state["left"]) == (list(CLASSES), [each.sha256 for each in queue.images])
    assert sorted(state) == ["classes", "left", "next", "several", "total", "who"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8502", "origin": "http://evil.example:8502"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:2"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
    ],
)
def test_other_sites_can_neither_read_nor_write(client, queue, answers, headers):
    body = {"sha256": queue.images[0].sha256, "class": "cat"}
    assert (client.post("/answers", json=body, headers=headers).status_code, answers.labels()) == (403, {})


@pytest.mark.parametrize("body", ["[]", "{", '{"sha256": "x", "class": "cat"}', "1" * 70_000])
def test_a_request_that_makes_no_sense_is_refused(client, body):
    assert client.post("/answers", content=body).status_code == 400


def test_only_classes_of_the_page_are_taken(client, queue):
    body = {"sha256": queue.images[0].sha256, "class": "cow"}
    assert "no class 'cow'" in client.post("/answers", json=body).json()["error"]


def test_only_images_of_the_queue_are_shown(client, queue):
    assert client.get(f"/images/{queue.images[0].sha256}").content in IMAGES
    assert client.get(f"/images/{'a' * 64}").status_code == 404


def test_labels_and_images_return_on_a_branch_and_the_checkout_stays(project, answers, queue):
    for each, name in zip(queue.images, ("cat", "dog", "cow", ""), strict=True):
        answers.add(each, name, "Ada")
    made = branch.make(project, answers, "labels-1", push=False)
    git = Repository(answers.folder.parent)
    files = git.run("ls-tree", "-r", "--name-only", "labels-1", "labels").splitlines()
    assert (made.added, made.images, len(files), git.run("status", "--porcelain")) == (4, 3, 4, "")
    name = next(each for each in files if each.endswith("png"))
    assert git.blob(f"labels-1:{name}") in IMAGES
    assert labelled.parse(git.run("show", "labels-1:labels/labels.csv")) == answers.labels()


def test_a_branch_is_continued_by_what_is_new(project, answers, queue):
    answers.add(queue.images[0], "cat", "Ada")
    first = branch.make(project, answers, "labels-1", push=False)
    with pytest.raises(ConfigError, match="no label is new on labels-1"):
        branch.make(project, answers, "labels-1", push=False)
    answers.add(queue.images[1], "dog", "Ada")
    second = branch.make(project, answers, "labels-1", push=False)
    git = Repository(answers.folder.parent)
    assert (second.added, git.run("rev-parse", f"{second.commit}^")) == (1, first.commit)
    assert len(git.run("ls-tree", "--name-only", "labels-1:labels/images").splitlines()) == 2


@pytest.mark.parametrize("traffic", [(None, "decides"), ("decides", "protects")])
def test_branches_of_two_people_are_merged_without_a_conflict(load, project, answers, queue, tmp_path, traffic):
    (tmp_path / ".git" / "info" / "attributes").write_bytes((checkout.ROOT / ".gitattributes").read_bytes())
    git = Repository(tmp_path)
    parts = (("labels-1", queue.images[:2]), ("labels-2", queue.images[1:]))
    for (name, images), mode in zip(parts, traffic, strict=True):
        of_one = Answers(tmp_path / "work" / name)
        for each in images:
            of_one.add(each, "cat", f"{name}\r\nof two lines")
            shutil.copy(answers.image(each.sha256), of_one.images)
        branch.make(load(**{"gate.traffic": mode}), of_one, name, push=False)
    for name in ("labels-1", "labels-2"):
        git.run("-c", "user.name=A", "-c", "user.email=a@b", "merge", "-q", "--no-edit", name)
    found = labelled.parse((tmp_path / labelled.TABLE).read_text())
    assert {name: each.class_ for name, each in found.items()} == dict.fromkeys(
        (each.sha256 for each in queue.images), "cat"
    )
    assert {each.who.partition("\r\n")[2] for each in found.values()} == {"of two lines"}


def test_with_traffic_in_the_gate_random_labels_go_to_test_first_and_stay_there(load, project, answers, queue):
    answers.add(queue.images[0], "cat", "Ada")
    git, config = Repository(answers.folder.parent), load(**{"gate.traffic": "protects"})
    branch.make(project, answers, "labels-1", push=False)  # as before
    for each in queue.images[1:]:
        answers.add(each, "cat", "Ada")
    branch.make(config, answers, "labels-1", push=False)
    found = labelled.parse(git.run("show", "labels-1:labels/labels.csv"))
    drawn = {each.sha256 for each in queue.images[1:] if each.reason == "random"}
    assert drawn
    assert {name for name, each in found.items() if each.split == "test"} == drawn
    with pytest.raises(ConfigError, match="no label is new on labels-1"):
        branch.make(config, answers, "labels-1", push=False)
    answers.take([replace(found[name], class_="dog", split="") for name in drawn])
    branch.make(project, answers, "labels-1", push=False)
    found = labelled.parse(git.run("show", "labels-1:labels/labels.csv"))
    assert {each.class_ for each in found.values() if each.split == "test"} == {"dog"}


def test_a_queue_draws_what_the_test_split_lacks(answers):
    found = answers.draw("kept", Choice(count=2, bits=2), first=True)
    assert [each.reason for each in found.images] == ["random", "random"]
    reasons = {each.reason for each in answers.draw("kept", Choice(count=2, bits=2)).images}
    assert reasons == {"random", "margin"}


def test_a_branch_is_pushed_and_continued_by_another_clone(project, answers, queue, tmp_path):
    git = Repository(tmp_path)
    git.run("init", "-q", "--bare", "remote")
    git.run("remote", "add", "origin", str(tmp_path / "remote"))
    answers.add(queue.images[0], "cat", "Ada")
    made = branch.make(project, answers, "labels-1", push=True)
    assert (made.pushed, git.run("ls-remote", "origin", "labels-1").split()[0]) == (True, made.commit)
    git.run("branch", "-D", "labels-1")  # as in the clone of a colleague
    answers.add(queue.images[1], "dog", "Ada")
    assert branch.make(project, answers, "labels-1", push=True).added == 1
    (tmp_path / "remote").rename(tmp_path / "away")
    answers.add(queue.images[2], "dog", "Ada")
    with pytest.raises(PerennialError, match="it is kept here; `git push origin labels-1` pushes it"):
        branch.make(project, answers, "labels-1", push=True)


@pytest.mark.parametrize(("name", "message"), [("main", "is checked out"), ("a..b", "no valid name")])
def test_a_branch_that_cannot_be_made_is_refused(project, answers, queue, name, message):
    answers.add(queue.images[0], "cat", "Ada")
    with pytest.raises(ConfigError, match=message):
        branch.make(project, answers, name, push=False)
