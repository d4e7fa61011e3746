"""What becomes of each file of a project."""

import pytest

from perennial.project.upgrade.merge import merged

OLD, NEW = b"1\n2\n3\n4\n5\n", b"1\n2\n3\n4\nfive\n"
OURS = b"one\n2\n3\n4\n5\n"


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "what", "content"),
    [
        (OLD, OLD, NEW, "updated", NEW),
        (OLD, OURS, NEW, "merged", b"one\n2\n3\n4\nfive\n"),
        (OLD, OURS, OLD, None, None),
        (OLD, NEW, NEW, None, None),
        (None, None, NEW, "added", NEW),
        (None, NEW, NEW, None, None),
        (OLD, None, OLD, "kept", None),
        (OLD, None, NEW, "added", NEW),
        (OLD, OLD, None, "removed", None),
        (OLD, OURS, None, "kept", None),
        (OLD, None, None, None, None),
        (OLD, OLD.replace(b"5", b"V"), NEW, "conflict", ...),
        (None, OURS, NEW, "conflict", ...),
        (b"\0\1", b"\0\2", b"\0\3", "conflict", b"\0\2"),
    ],
)
def test_a_file_is_merged_with_the_changes_of_its_owner(base, ours, theirs, what, content) -> None:
    sides = [{"a": each} if each is not None else {} for each in (base, ours, theirs)]
    found = merged(*sides, "0.2.0")
    assert [each.what for each in found] == ([what] if what else [])
    if content is not ...:
        assert [each.content for each in found] == ([content] if what else [])


def test_a_conflict_has_the_lines_of_all_sides() -> None:
    (found,) = merged({"a": OLD}, {"a": OLD.replace(b"5", b"V")}, {"a": NEW}, "0.2.0")
    assert found.content == (
        b"1\n2\n3\n4\n<<<<<<< this project\nV\n||||||| the version before\n5\n=======\nfive\n"
        b">>>>>>> perennial 0.2.0\n"
    )
    assert "1 place that this project and 0.2.0 changed" in str(found)
