"""Listings: refused names, the digest, and memory that does not grow with the number of objects."""

import os
import random
import subprocess
import sys

import pytest

from perennial.base.errors import DataError
from perennial.base.storage import Entry
from perennial.data.sources.listing import Listing

OBJECTS = int(os.environ.get("LISTED", "5000"))


def entry(name, size=10, etag="one"):
    return Entry(key=name, size=size, etag=etag)


def listed(*entries):
    listing = Listing("s3://bucket/photos")
    for each in entries:
        listing.add(entry(each) if isinstance(each, str) else each)
    return listing


def names(listing):
    return [each.name for page in listing.pages() for each in page]


@pytest.mark.parametrize(
    "name",
    ["../up.png", "cat/../../up.png", "/etc/passwd", "cat//a.png", "./a.png", "cat/.", "cat\\a.png", "C:a.png",
     "a\nb.png", "a\0b.png", "cat/\x1b[2Ja.png", "cat/a\u202e.png", "cat/a.png ", "cat/a.", "cat/.hidden",
     f"cat/{'a' * 256}.png", "/".join("a" * 17)],
)  # fmt: skip
def test_a_hostile_name_is_refused_and_shown(name):
    with pytest.raises(DataError) as caught:
        listed("cat/a.png", name)
    assert (caught.value.exit_code, str(caught.value).isprintable()) == (3, True)
    assert f"s3://bucket/photos: the object {name!r} is refused" in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [("cat/a.png", "cat/A.png"), ("cat/a.png", "Cat/b.png"), ("é.png", "e\u0301.png"),
     ("straße/a", "strasse/b"), ("cat", "cat/a.png"), ("cat/a.png", "cat"),
     ("cat/a/b/c.png", "cat/a/B/d.png")],
)  # fmt: skip
def test_names_that_some_file_systems_do_not_tell_apart_are_refused(first, second):
    with pytest.raises(DataError, match=r"the same name up to case|both a file and a folder"):
        listed(first, second)


def test_leftovers_and_marks_of_folders_are_ignored():
    found = listed("cat/.DS_Store", "__MACOSX/cat/a.png", entry("cat/", size=0), "cat/a.png", "cat/Thumbs.db")
    assert (names(found), found.objects, found.bytes) == (["cat/a.png"], 1, 10)


def test_the_files_of_a_folder_come_one_after_the_other():
    found = listed("a.b/1", "a/2", "a/b/3", "a-b/4", "a/b.c/5", "a/b-c", "a/1")
    assert names(found) == ["a/1", "a/2", "a/b/3", "a/b-c", "a/b.c/5", "a-b/4", "a.b/1"]


def test_the_digest_does_not_depend_on_the_order_of_the_listing():
    several = [f"{folder}/{number}.png" for folder in "abc" for number in range(30)]
    expected = listed(*several).sha256()
    for seed in range(5):
        random.Random(seed).shuffle(several)
        assert listed(*several).sha256() == expected


@pytest.mark.parametrize(
    "other",
    [entry("cat/b.png"), entry("cat/a.png", size=11), entry("cat/a.png", etag="two")],
    ids=["name", "size", "ETag"],
)
def test_the_digest_holds_names_sizes_and_etags(other):
    assert listed(other).sha256() != listed("cat/a.png").sha256()


def test_pages_hold_every_object_once():
    several = [f"class {number % 7}/{number:06}.png" for number in range(OBJECTS)]
    found = listed(*several)
    assert sorted(names(found)) == sorted(several)
    assert found.objects == OBJECTS


LIST = """
import resource, sys
from perennial.data.sources.listing import Listing
from perennial.base.storage import Entry
found = Listing("s3://bucket/photos")
for number in range(int(sys.argv[1])):
    found.add(Entry(key=f"class-{number % 1000:03}/{number:040}.jpeg", size=number, etag=f"{number:032x}"))
found.sha256()
print(sum(len(page) for page in found.pages()), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def kilobytes(objects):
    """The most memory that a process needs to list so many objects."""
    program = [sys.executable, "-c", LIST, str(objects)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    count, most = map(int, done.stdout.split())
    assert count == objects
    return most


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_objects():
    few, many = kilobytes(1000), kilobytes(10 * OBJECTS)
    assert many - few < 10_000
