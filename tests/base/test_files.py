"""Files and folders are written whole or not at all."""

import errno
import hashlib
import os
import pickle
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from perennial.base import documents, files
from perennial.base.errors import ConfigError, DataError

HEX = "0123456789abcdef"
# Writes into the folder `there`, says so, and waits to be killed.
WRITER = """
import sys, time
from pathlib import Path
from perennial.base import files
with files.{kind}(Path("there", "a")) as new:
    print("writing", flush=True)
    time.sleep(600)
"""
LOCKER = """
import sys
from pathlib import Path
from perennial.base import files
with files.locked(Path(sys.argv[1])):
    print("held")
"""


class Broken(Exception):
    """An error while a folder is filled."""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def fill(folder, content):
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text(content)


def fill_half(folder):
    with files.new_folder(folder) as new:
        fill(new, "half")
        raise Broken


def test_a_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path):
    for content in (b"long old content", b"\x00new"):
        files.write_bytes(tmp_path / "b" / "c" / "a", content)
        assert ((tmp_path / "b" / "c" / "a").read_bytes(), names(tmp_path / "b" / "c")) == (content, ["a"])


def test_no_temporary_is_left_when_a_file_cannot_be_put_in_place(tmp_path):
    (tmp_path / "a" / "full").mkdir(parents=True)
    with pytest.raises(OSError, match="a"):
        files.write_bytes(tmp_path / "a", b"new")
    assert names(tmp_path) == ["a"]


@contextmanager
def small_disk():
    """No file may grow beyond 1,000 bytes, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refused(write, *arguments):
    """The error of a full disk, also after pickling."""
    with pytest.raises(OSError, match="File too large") as error, small_disk():
        write(*arguments)
    return pickle.loads(pickle.dumps(error.value))


def write_parts(file):
    with files.naming(file), file.open("wb") as stream:
        for _ in range(20):
            stream.write(bytes(100))


def write_between(file):
    with files.naming(file.parent):
        write_parts(file)


@pytest.mark.parametrize(
    "write", [lambda file: files.write_bytes(file, bytes(2000)), write_parts, write_between]
)
def test_a_file_that_the_disk_does_not_take_is_named(tmp_path, write):
    assert refused(write, tmp_path / "a").filename == str(tmp_path / "a")


def test_a_file_that_the_disk_does_not_take_leaves_the_old_one_and_nothing_else(tmp_path):
    files.write_bytes(tmp_path / "a", b"old")
    refused(files.write_bytes, tmp_path / "a", bytes(2000))
    assert (names(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"old")


@pytest.mark.parametrize("digest", [files.sha256, files.md5])
def test_a_file_that_cannot_be_read_is_named(digest):
    with pytest.raises(OSError, match="/proc/self/mem"):
        digest(Path("/proc/self/mem"))


def test_a_file_system_without_locks_takes_files_and_folders(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    files.write_bytes(tmp_path / "a", b"new")
    with files.locked(tmp_path), files.new_folder(tmp_path / "folder") as new:
        fill(new, "new")
    assert names(tmp_path) == ["a", "folder"]


def test_a_file_is_as_readable_as_the_umask_lets_it_be(tmp_path):
    before = os.umask(0o026)
    try:
        files.write_bytes(tmp_path / "a", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_no_file_is_made_in_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError), files.new_file(tmp_path / "nowhere" / "a"):
        pass


def test_an_error_of_a_library_stays_as_it_is(tmp_path):
    with pytest.raises(OSError, match=r"^image file is truncated$"), files.naming(tmp_path):
        raise OSError("image file is truncated")


def test_json_has_sorted_keys_and_one_newline_at_its_end(tmp_path):
    value = {"b": [1.5, None], "a": "é"}
    files.write_json(tmp_path / "a.json", value)
    expected = b'{\n  "a": "\xc3\xa9",\n  "b": [\n    1.5,\n    null\n  ]\n}\n'
    assert ((tmp_path / "a.json").read_bytes(), documents.read_json(tmp_path / "a.json")) == (expected, value)
    assert files.json_bytes(dict(sorted(value.items()))) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_json_refuses_nan_and_infinity_and_the_old_file_stays(tmp_path, value):
    files.write_json(tmp_path / "a.json", {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "a.json", {"loss": value})
    assert documents.read_json(tmp_path / "a.json") == {"a": 1}


def test_a_new_folder_is_there_once_it_is_filled(tmp_path):
    with files.new_folder(tmp_path / "parent" / "folder") as new:
        fill(new, "new")
        assert not (tmp_path / "parent" / "folder").exists()
    assert (tmp_path / "parent" / "folder" / "file").read_text() == "new"


def test_the_old_folder_is_whole_until_the_new_one_replaces_it(tmp_path):
    fill(tmp_path / "folder", "old")
    fill(tmp_path / f".folder.{HEX}.tmp", "left by a killed process")
    (tmp_path / f".file.{HEX}.tmp").touch()
    with files.new_folder(tmp_path / "folder") as new:
        (new / "other").touch()
        fill(new / "inner", "new")
        assert (tmp_path / "folder" / "file").read_text() == "old"
    assert (names(tmp_path), names(tmp_path / "folder")) == (["folder"], ["inner", "other"])


def test_the_old_folder_stays_when_filling_the_new_one_fails(tmp_path):
    with pytest.raises(Broken):
        fill_half(tmp_path / "folder")
    assert names(tmp_path) == []
    fill(tmp_path / "folder", "old")
    with pytest.raises(Broken):
        fill_half(tmp_path / "folder")
    assert (names(tmp_path), (tmp_path / "folder" / "file").read_text()) == (["folder"], "old")


def test_the_old_folder_is_back_where_the_new_one_does_not_get_its_name(tmp_path, monkeypatch):
    fill(tmp_path / "folder", "old")
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda a, b: rename(a, "/gone/folder" if a.suffix == ".tmp" else b))
    with pytest.raises(OSError, match="folder"), files.new_folder(tmp_path / "folder") as new:
        fill(new, "new")
    assert (names(tmp_path), (tmp_path / "folder" / "file").read_text()) == (["folder"], "old")


@pytest.mark.parametrize("there", ["old", "new"])
def test_after_a_kill_an_old_folder_is_restored_unless_the_new_one_is_there(tmp_path, there):
    fill(tmp_path / f".folder.{HEX}.old", "old")
    if there == "new":
        fill(tmp_path / "folder", "new")
    with pytest.raises(Broken), files.new_folder(tmp_path / "folder"):
        raise Broken
    assert (names(tmp_path), (tmp_path / "folder" / "file").read_text()) == (["folder"], there)


@pytest.fixture(params=["new_file", "new_folder"])
def writer(request, tmp_path):
    """A process that writes a file or a folder `a` in a folder `there`."""
    (tmp_path / "there").mkdir()
    program = WRITER.format(kind=request.param)
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        yield process
        process.kill()


def write_another(there):
    """Write a file in a folder as a new process does, which looks for leftovers once."""
    command = "from pathlib import Path; from perennial.base import files; files.write_bytes(Path('c'), b'')"
    subprocess.run([sys.executable, "-c", command], cwd=there, check=True)
    return names(there)


def test_what_a_killed_process_left_is_removed_by_a_later_write(writer, tmp_path):
    writer.kill()
    writer.wait()
    assert len(names(tmp_path / "there")) == 1
    assert write_another(tmp_path / "there") == ["c"]


def test_what_another_process_writes_meanwhile_stays(writer, tmp_path):
    (temporary,) = names(tmp_path / "there")
    assert write_another(tmp_path / "there") == [temporary, "c"]


@pytest.mark.parametrize("name", [".b.tmp", ".b.old", ".b.0123.tmp", "b.tmp"])
def test_a_file_of_the_user_with_a_similar_name_stays(tmp_path, name):
    (tmp_path / name).write_text("of the user")
    fill(tmp_path / "b", "old")
    with files.new_folder(tmp_path / "b"):
        pass
    assert write_another(tmp_path) == sorted([name, "b", "c"])
    assert (tmp_path / name).read_text() == "of the user"


@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_a_link_in_the_way_of_a_temporary_name_is_not_followed(tmp_path, monkeypatch, target):
    (tmp_path / "victim").write_text("of the user")
    tokens = [HEX, HEX[::-1]]
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: tokens.pop(0))
    (tmp_path / f".a.{HEX}.tmp").symlink_to(target)
    with pytest.raises(FileExistsError):
        files.write_bytes(tmp_path / "a", b"new")
    assert names(tmp_path) == [f".a.{HEX}.tmp", "victim"]
    assert (tmp_path / "victim").read_text() == "of the user"


def test_a_name_as_long_as_the_file_system_allows_can_be_written(tmp_path):
    name = "ä" * 127
    files.write_bytes(tmp_path / name, b"content")
    assert names(tmp_path) == [name]


def test_two_processes_that_write_one_file_do_not_mix(tmp_path):
    with files.new_file(tmp_path / "a") as one, files.new_file(tmp_path / "a") as other:
        assert files.TEMPORARY.fullmatch(Path(one.name).name)
        one.write(b"first")
        other.write(b"second")
    assert (names(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"first")


def test_a_second_name_is_of_the_same_file_and_never_one_that_is_taken(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    assert files.linked(tmp_path / "a", tmp_path / "c")
    assert (tmp_path / "c").samefile(tmp_path / "a")
    assert not files.linked(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "b"


def test_a_pipe_is_written_as_it_is_also_by_the_name_of_a_descriptor(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_bytes(pipe, b"first ")
    writer = os.open(pipe, os.O_WRONLY)
    files.write_bytes(Path(f"/dev/fd/{writer}"), b"second")
    assert (os.read(reader, 20), pipe.is_fifo(), names(tmp_path)) == (b"first second", True, ["pipe"])
    for each in (reader, writer):
        os.close(each)
    assert files._is_stream(Path("/dev/stdout"))  # also where it leads to a file


def test_a_link_to_a_folder_stays_a_link_and_leads_to_the_new_content(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "records").symlink_to(tmp_path / "large")
    for content in ("first", "second"):
        with files.new_folder(tmp_path / "records") as folder:
            (folder / "a").write_text(content)
    assert ((tmp_path / "records").is_symlink(), (tmp_path / "large" / "a").read_text()) == (True, "second")


def test_a_user_without_a_home_folder_is_asked_to_name_one(monkeypatch, tmp_path):
    for name in ("HOME", "PERENNIAL_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "pwd", None)  # no entry either, as in some containers
    with pytest.raises(ConfigError, match="set PERENNIAL_HOME to a folder"):
        files.home()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.home() == tmp_path / ".perennial"
    monkeypatch.setenv("PERENNIAL_HOME", str(tmp_path))
    assert files.home() == tmp_path
    monkeypatch.setenv("PERENNIAL_HOME", "here")
    with pytest.raises(ConfigError, match="must be an absolute path"):
        files.home()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("named", [None, "LOGNAME", "USER", "LNAME", "USERNAME"])
def test_a_user_without_a_name_gets_one_and_git_no_variables_of_a_hook(monkeypatch, named, known):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    for name in (*files.GIT_VARIABLES[1:], *([named] if named else [])):
        monkeypatch.setenv(name, "other")
    monkeypatch.setattr(files.pwd, "getpwuid", {os.getuid() + (not known): "entry"}.__getitem__)
    files.prepare_environment()
    assert os.environ.keys().isdisjoint(files.GIT_VARIABLES)
    expected = {None: None if known else f"uid-{os.getuid()}", "USER": "other"}
    assert os.environ.get("USER") == expected.get(named)


def test_json_is_written_only_where_it_differs(tmp_path):
    file = tmp_path / "a.json"
    assert [files.update_json(file, value) for value in ({"a": 1}, {"a": 1}, {"a": 2})] == [True, False, True]
    assert documents.read_json(file) == {"a": 2}


def test_a_copy_replaces_the_old_file_and_makes_its_folder(tmp_path):
    (tmp_path / "source").write_bytes(bytes(files.CHUNK_BYTES + 1))
    files.copy(tmp_path / "source", tmp_path / "there" / "a")
    assert (tmp_path / "there" / "a").read_bytes() == (tmp_path / "source").read_bytes()
    assert names(tmp_path / "there") == ["a"]


def test_digests_are_those_of_all_files_below_a_folder_in_order(tmp_path):
    for name in ("b", "a/c", files.MARK, f"a/{files.MARK}"):
        files.write_bytes(tmp_path / name, name.encode())
    expected = {name: hashlib.sha256(name.encode()).hexdigest() for name in (f"a/{files.MARK}", "a/c", "b")}
    assert list(files.digests(tmp_path).items()) == list(expected.items())
    assert files.md5(tmp_path / "b") == hashlib.md5(b"b", usedforsecurity=False).hexdigest()


def test_a_link_is_moved_and_leaves_nothing_beside_it(tmp_path):
    for target in ("one", "other"):
        files.point(tmp_path / "link", target)
        assert (str((tmp_path / "link").readlink()), names(tmp_path)) == (target, ["link"])


def test_messages_of_native_code_go_to_a_file_only_in_the_block(tmp_path, capfd):
    os.write(2, b"before ")
    with files.stderr_into(tmp_path / "log"):
        os.write(2, b"in it")
    os.write(2, b"after")
    assert ((tmp_path / "log").read_text(), capfd.readouterr().err) == ("in it", "before after")


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    files.require_utf8(tmp_path / "\N{SNOWMAN}")
    with pytest.raises(DataError, match=r"/\\xfe: the file name b'\\xff' is not UTF-8"):
        files.require_utf8(tmp_path / os.fsdecode(b"\xfe") / os.fsdecode(b"\xff"))


def test_a_folder_with_the_signs_of_a_pattern_has_a_plain_name(tmp_path):
    fill(tmp_path / "a[b]*", "content")
    with files.plainly_named(tmp_path / "a[b]*") as plain:
        assert "[" not in str(plain)
        assert (plain / "file").read_text() == "content"
    assert not plain.exists()


def test_one_process_at_a_time_holds_a_folder_and_no_file_stays(tmp_path):
    with files.locked(tmp_path), (tmp_path / "log").open("w") as log:
        other = subprocess.Popen([sys.executable, "-c", LOCKER, str(tmp_path)], stdout=log)
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
    assert (other.wait(60), (tmp_path / "log").read_text(), names(tmp_path)) == (0, "held\n", ["log"])
