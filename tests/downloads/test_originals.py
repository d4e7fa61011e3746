"""All files of a data set: which are taken, what is said when some are missing."""

import pytest
from downloads.conftest import SMALL
from downloads.fault_server import CONTENT, OTHER, honest, sha256, status

from perennial.downloads.fetch import fetch_all
from perennial.downloads.spec import FileSpec
from perennial.errors import DataError, PerennialError

CONTENTS = {"a.bin": CONTENT, "b.bin": OTHER, "c.bin": b"instead", "d.bin": b"of it"}
A, B, C, D = (
    FileSpec(name=name, bytes=len(content), sha256=sha256(content)) for name, content in CONTENTS.items()
)


def by_name(handler):
    """Has the files that the server was given."""
    content = handler.server.content.get(handler.path.lstrip("/"))
    status(404 if content is None else 200, content or b"")(handler)


@pytest.fixture
def fetched(server, tmp_path):
    server.content, server.plan = dict(CONTENTS), [by_name]

    def fetch(specs=(A, B), alternatives=(), mirrors=(server.url,), on_file=lambda _: None):
        return [file.name for file in fetch_all(specs, alternatives, mirrors, tmp_path, SMALL, on_file)]

    return fetch


def refusal(fetched, **changes):
    with pytest.raises(PerennialError) as refused:
        fetched(**changes)
    return refused.value


def test_all_files_come_in_their_order(fetched):
    assert fetched() == ["a.bin", "b.bin"]


def test_each_file_is_told_as_soon_as_it_is_there(fetched, server):
    arrived = []
    del server.content["b.bin"]
    refusal(fetched, on_file=lambda file: arrived.append(file.name))
    assert arrived == ["a.bin"]


def test_the_files_instead_come_when_one_of_the_wanted_ones_cannot_be_had(fetched, server):
    del server.content["b.bin"]
    assert fetched(alternatives=(C, D)) == ["c.bin", "d.bin"]


def test_the_files_instead_are_not_asked_for_otherwise(fetched, server):
    fetched(alternatives=(C, D))
    assert server.asked == ["/a.bin", "/b.bin"]


def test_files_instead_that_were_placed_by_hand_come_before_the_network(fetched, server, tmp_path):
    (tmp_path / "c.bin").write_bytes(CONTENTS["c.bin"])
    assert (fetched(alternatives=(C,)), server.asked) == (["c.bin"], [])


def test_wanted_files_that_were_placed_by_hand_come_before_those_instead(fetched, server, tmp_path):
    for name in ("a.bin", "b.bin", "c.bin"):
        (tmp_path / name).write_bytes(CONTENTS[name])
    assert (fetched(alternatives=(C,)), server.asked) == (["a.bin", "b.bin"], [])


def test_the_error_lists_every_missing_file_and_where_it_goes(fetched, server, tmp_path):
    del server.content["a.bin"]
    error = str(refusal(fetched))
    assert error.endswith(
        f"Nothing was put in its place. Without a network, put into {tmp_path}\n"
        f"  a.bin (300,000 bytes, sha256 {sha256(CONTENT)})\n"
        f"  b.bin (300,000 bytes, sha256 {sha256(OTHER)})\n"
        f"(from {server.url}) and run this again."
    )


def test_the_error_does_not_list_a_file_that_is_there(fetched, server):
    del server.content["b.bin"]
    error = str(refusal(fetched))
    assert ("\n  a.bin (" in error, "\n  b.bin (" in error) == (False, True)


def test_the_error_lists_the_files_instead_too(fetched, server):
    server.content.clear()
    error = str(refusal(fetched, alternatives=(C, D)))
    assert f"\nor instead\n  c.bin (7 bytes, sha256 {sha256(b'instead')})\n  d.bin" in error


def test_the_error_names_every_mirror_without_its_password(fetched, server):
    server.content.clear()
    mirrors = (server.url.replace("//", "//user:hush@"), "http://127.0.0.1:1/")
    error = str(refusal(fetched, mirrors=mirrors))
    assert (f"(from {server.url}, http://127.0.0.1:1/)" in error, "hush" in error) == (True, False)


def test_what_a_person_does_as_the_error_says_helps(fetched, server, tmp_path):
    server.plan = [status(503)]
    refusal(fetched)
    for name in ("a.bin", "b.bin"):
        (tmp_path / name).write_bytes(CONTENTS[name])
    assert fetched() == ["a.bin", "b.bin"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(404, DataError), (503, PerennialError)],
    ids=["for good", "may pass"],
)
def test_the_kind_of_the_error_says_whether_to_try_again(fetched, server, code, kind):
    server.plan = [status(code)]
    assert type(refusal(fetched)) is kind


def test_one_mirror_that_may_come_back_is_reason_to_try_again(fetched, server, start):
    busy = start()
    busy.plan = [status(503)]
    server.content.clear()
    assert type(refusal(fetched, mirrors=(server.url, busy.url))) is PerennialError


def test_a_file_of_which_nothing_is_known_cannot_be_placed_by_hand(fetched, server):
    server.plan = [status(503)]
    assert "put into" not in str(refusal(fetched, specs=(FileSpec(name="a.bin"),)))


def test_a_file_of_which_nothing_is_known_is_fetched_although_one_is_there(fetched, server, tmp_path):
    server.plan, server.content = [honest], CONTENT
    (tmp_path / "a.bin").write_bytes(b"of another origin")
    fetched(specs=(FileSpec(name="a.bin"),))
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
