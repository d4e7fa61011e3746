"""Whose a deployment is: addresses that lead to one repository, and those that do not."""

import subprocess
from pathlib import Path

import pytest

from perennial.base.errors import ConfigError
from perennial.orchestration.client.owner import (
    FOLDER,
    PIPELINE,
    REPOSITORY,
    Owner,
    normal,
    owner,
    owner_of_checkout,
)

SAME = [
    "https://host.example/team/project", "https://host.example/team/project.git",
    "https://ann@HOST.example:443/team/project.git/", "git@host.example:team/project.git",
    "host.example:/team/project", "ssh://git@host.example/team/project",
    "ssh://git@host.example:22/team/project.git", "git://host.example/team/project",
]  # fmt: skip
OTHERS = [
    "https://host.example/team/Project", "https://host.example/team/project2",
    "https://host.example:8443/team/project", "https://other.example/team/project", "/team/project",
]  # fmt: skip


@pytest.mark.parametrize("address", SAME)
def test_protocols_users_and_spellings_of_one_repository_are_the_same(address: str) -> None:
    assert normal(address) == "host.example/team/project"


@pytest.mark.parametrize("address", OTHERS)
def test_another_repository_is_another(address: str) -> None:
    assert normal(address) != normal(SAME[0])


def test_spellings_of_a_folder_are_the_same(tmp_path: Path) -> None:
    bare, link = tmp_path / "project.git", tmp_path / "link"
    (bare / ".git").mkdir(parents=True)
    link.symlink_to(bare)
    spelled = (bare, f"{bare}/", f"{bare}/.git", f"file://{bare}", tmp_path / "project", link)
    assert {normal(str(each)) for each in spelled} == {str(bare)}


def test_a_checkout_is_known_by_its_path_and_its_remotes_unless_a_repository_is_named(tmp_path: Path) -> None:
    top = tmp_path / "clone"
    (top / "inside").mkdir(parents=True)
    for arguments in (["init", "-q"], ["remote", "add", "origin", "../up"], ["remote", "add", "o", SAME[3]]):
        subprocess.run(["git", "-C", str(top), *arguments], check=True)
    found = owner_of_checkout(top / "inside", "classifier", {})
    assert (found.repository, found.folder) == (str(top), "inside")
    assert found.places == {str(top), str(tmp_path / "up"), "host.example/team/project"}
    named = owner_of_checkout(top, "classifier", {REPOSITORY: "https://other.example/project"})
    assert named.places == {str(top), "other.example/project"}


def test_a_project_owns_what_has_its_repository_folder_and_pipeline(tmp_path: Path) -> None:
    mine = owner_of_checkout(tmp_path, "classifier", {REPOSITORY: SAME[0]})
    variables = {"env": {REPOSITORY: SAME[3], PIPELINE: "classifier"}}
    assert mine.owns(owner(variables, {}))
    assert mine.owns(owner(None, None))
    assert not mine.owns(owner(variables, {"pipeline": "flowers"}))
    assert not mine.owns(owner({"env": {**variables["env"], FOLDER: "two"}}, {}))
    assert not mine.owns(Owner(OTHERS[0]))


def test_a_pipeline_is_known_by_its_folder_also_where_that_of_the_project_is_named(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "shop" / "pipelines" / "birds"
    (tmp_path / "shop" / "flows").mkdir(parents=True)
    folder.mkdir(parents=True)
    for name in ("params.yaml", "dvc.yaml"):
        (folder / name).touch()
    named = {REPOSITORY: SAME[0]}
    for variables in ({}, named, {**named, FOLDER: "shop"}, {**named, FOLDER: "shop/pipelines/birds"}):
        assert owner_of_checkout(folder, "classifier", variables).folder == "shop/pipelines/birds"


@pytest.mark.parametrize(
    "address",
    [
        "https://me:gh_secret@host/x",
        "https://gh_secret@host/x",
        "https://host/x?t=1",
        "ssh://git:gh_secret@host/x",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_shown(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{REPOSITORY} holds credentials") as refused:
        owner_of_checkout(tmp_path, None, {REPOSITORY: address})
    assert "gh_secret" not in str(refused.value)
