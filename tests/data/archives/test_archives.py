"""Archives: what is in them is found, and one that is wrong anywhere is refused whole."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import stat
import struct
import subprocess
import tarfile
import unicodedata
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from support.raw import write_files

from perennial.base import files
from perennial.base.errors import DataError
from perennial.data import archives
from perennial.data.archives import ArchiveLimits
from perennial.data.archives.read import decompressed

END = bytes(1024)
LONG = "a/" + "long" * 60 + ".jpg"
FEW = ArchiveLimits(members=20, bytes=200_000, ratio=50, ratio_from_bytes=100_000, depth=4)
COMPRESSED = {"plain": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def entry(name, content=b"x", kind=tarfile.REGTYPE, form=tarfile.USTAR_FORMAT, **fields):
    """A member as bytes; the name may be bytes that are no text."""
    info = tarfile.TarInfo(name.decode("latin-1") if isinstance(name, bytes) else name)
    info.type, info.size = kind, len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    encoding = "latin-1" if isinstance(name, bytes) else "utf-8"
    return info.tobuf(form, encoding, "surrogateescape") + content + bytes(-len(content) % 512)


def pax(*records, kind=tarfile.XHDTYPE):
    """A header of pax with records of key and value."""
    body = b""
    for key, value in records:
        rest = b" " + key + b"=" + value + b"\n"
        size = len(rest) + 1
        while size != len(rest) + len(str(size)):
            size = len(rest) + len(str(size))
        body += str(size).encode() + rest
    return entry("pax", body, kind)


def patched(block, at, value):
    """A header with other bytes at an offset and the checksum that goes with them."""
    head = bytearray(block[:512])
    head[at : at + len(value)] = value
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + block[512:]


PHOTO = entry("a/1.jpg", b"photo")
NAMES = [
    "../x.jpg", "a/../../x.jpg", "./../x.jpg", "..", "/etc/x.jpg", "//etc/x.jpg", "C:/x.jpg", "c:x.jpg",
    "a\\x.jpg", "..\\x.jpg", "a//x.jpg", "a/./x.jpg", "a/x.", "a.../x.jpg", "a/x ", "a /x.jpg", "a/x\n.jpg",
    "a/\x1b[31mx.jpg", "a/x\x7f.jpg", "a/\u202egpj.exe", "a/x\u2028.jpg", "a/b/c/d/x.jpg",
]  # fmt: skip
KINDS = {
    "symbolic link": (tarfile.SYMTYPE, "a symbolic link"),
    "hard link": (tarfile.LNKTYPE, "a hard link"),
    "character device": (tarfile.CHRTYPE, "a device"),
    "block device": (tarfile.BLKTYPE, "a device"),
    "fifo": (tarfile.FIFOTYPE, "a fifo"),
    "sparse": (tarfile.GNUTYPE_SPARSE, "a sparse file"),
    "contiguous": (tarfile.CONTTYPE, "of the unknown type b'7'"),
    "unknown": (b"Z", "of the unknown type b'Z'"),
    "long link": (tarfile.GNUTYPE_LONGLINK, "of the unknown type b'K'"),
}
NFD = unicodedata.normalize("NFD", "a/é.jpg")
CLASHES = {
    "same name": ("a/1.jpg", "a/1.jpg"),
    "same name after dot": ("a/1.jpg", "./a/1.jpg"),
    "other case": ("a/1.jpg", "a/1.JPG"),
    "other form": (unicodedata.normalize("NFC", NFD), NFD),
    "folded": ("a/strasse.jpg", "a/straße.jpg"),
    "folders of other case": ("Rose/1.jpg", "rose/2.jpg"),
    "file and folder": ("a/b", "a/b/1.jpg"),
    "folder and file": ("a/b/1.jpg", "a/b"),
    "folder and file of other case": ("a/b/1.jpg", "a/B"),
}
BROKEN = {
    "no end": (PHOTO, "no end is marked after 1 members"),
    "half an end": (PHOTO + bytes(512), "within its end mark, after 1 members"),
    "no whole blocks": (PHOTO + END + bytes(100), "within its end mark"),
    "junk after the end": (PHOTO + END + b"junk" * 128, "something follows the end"),
    "an archive after the end": (2 * (PHOTO + END), "something follows the end that is marked after 1 members"),
    "zeros between": (PHOTO + bytes(512) + entry("a/2.jpg") + END, "something follows the end"),
    "cut content": (entry("a/1.jpg", bytes(2000))[:1024], "member 1, 'a/1.jpg', needs 2000 bytes"),
    "cut header": (PHOTO + PHOTO[:300], "no end is marked after 1 members"),
    "checksum": (
        PHOTO + PHOTO[:200] + b"!" + PHOTO[201:] + END, "header at byte 1024, after 1 members: bad checksum"
    ),
    "size that is no number": (patched(PHOTO, 124, b"zzzzzzzzzzz\0") + END, "header at byte 0"),
    "negative size": (patched(PHOTO, 124, b"\xff" * 12) + END, "needs -1 bytes"),
    "huge size": (patched(PHOTO, 124, b"\x80" + b"\x7f" * 11) + END, "is incomplete"),
    "folder with content": (entry("a", b"x", tarfile.DIRTYPE) + END, "a folder with content"),
    "nothing": (END, "holds no files"),
    "no bytes": (b"", "is empty"),
    "HTML": (b"<html>404</html>", "is not a tar, tar.gz, .* it starts with b'<html>404</html>'"),
    "too many members": (b"".join(entry(f"a/{n}") for n in range(21)) + END, "more than 20 members"),
    "not UTF-8": (entry(b"a/\xff.jpg") + END, r"member b'a/\\xff.jpg' is refused: its name is not UTF-8"),
    "parent by pax": (pax((b"path", b"../x.jpg")) + PHOTO + END, r"'../x.jpg' is refused"),
    "parent by GNU": (entry("L", b"a/../../x.jpg\0", tarfile.GNUTYPE_LONGNAME) + PHOTO + END, "leads out"),
    "not UTF-8 by pax": (pax((b"path", b"a/\xff.jpg")) + PHOTO + END, "not UTF-8"),
    "size by pax": (pax((b"size", b"999999")) + PHOTO + END, "member 1, 'a/1.jpg', needs 999999 bytes"),
    "size by pax that is none": (pax((b"size", b"-1")) + PHOTO + END, "the header before member 1 is damaged"),
    "sparse by pax": (pax((b"GNU.sparse.major", b"1")) + PHOTO + END, "a sparse file"),
    "one name for all": (
        pax((b"path", b"x"), kind=tarfile.XGLTYPE) + PHOTO + END, "gives all members one path"
    ),
    "two names": (pax((b"path", b"x"), (b"path", b"y")) + PHOTO + END, "gives it two names"),
    "damaged pax": (entry("pax", b"99 path=x\n", tarfile.XHDTYPE) + PHOTO + END, "before member 1 is damaged"),
    "text for pax": (entry("pax", b"path=x\n", tarfile.XHDTYPE) + PHOTO + END, "before member 1 is damaged"),
    "pax at the end": (PHOTO + pax((b"path", b"x")) + END, "ends before member 2"),
}  # fmt: skip
HOSTILE = {
    **{f"name: {name!r}": (entry(name, form=tarfile.GNU_FORMAT) + END, "is refused") for name in NAMES},
    **{f"kind: {why}": (entry("a/x", b"", kind) + END, message) for why, (kind, message) in KINDS.items()},
    **{f"clash: {why}": (b"".join(map(entry, names)) + END, "is refused") for why, names in CLASHES.items()},
    **BROKEN,
}
EVERY = [  # plain, and compressed in one of the ways in turn
    pytest.param(COMPRESSED[form](content), message, id=f"{why}, {form}")
    for number, (why, (content, message)) in enumerate(HOSTILE.items())
    for form in ("plain", ("gz", "bz2", "xz")[number % 3])
    if form == "plain" or (content and why != "HTML")
]


def digest(folder):
    """One digest of all that is in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path} {path.lstat().st_mode} {path.read_bytes() if path.is_file() else b''}".encode())
    return found.hexdigest()


def expanded(tmp_path, content, limits=archives.LIMITS, name="archive"):
    """The plain tar file that comes of an archive."""
    (tmp_path / name).write_bytes(content)
    archives.expand(tmp_path / name, tmp_path / "plain.tar", limits)
    return tmp_path / "plain.tar"


def refused(tmp_path, content):
    with suppress(DataError):
        expanded(tmp_path, content)
        return False
    return True


def read(tar):
    """The files in a plain tar file by name."""
    content = tar.read_bytes()
    return {
        found.name: content[found.offset : found.offset + found.size]
        for found in archives.contents(tar)
        if not found.folder
    }


def zipped(*members):
    """A zip archive of names (or ZipInfo) and contents."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members:
            opened.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize(("content", "message"), EVERY)
def test_an_archive_with_one_wrong_member_is_refused_whole(tmp_path, content, message):
    (tmp_path / "archive").write_bytes(content)
    (tmp_path / "canary").write_bytes(b"alive")
    before = digest(tmp_path)
    with pytest.raises(DataError, match=f"archive.*{message}") as caught:
        archives.expand(tmp_path / "archive", tmp_path / "plain.tar", FEW)
    assert (digest(tmp_path), str(caught.value).isprintable()) == (before, True)


@pytest.mark.parametrize("compress", COMPRESSED.values(), ids=COMPRESSED)
def test_what_an_archive_holds_is_found_in_the_order_of_names(tmp_path, compress):
    content = entry("b/2.jpg", b"2") + entry("a", b"", tarfile.DIRTYPE) + entry("a/1.jpg", b"11" * 999) + END
    found = read(expanded(tmp_path, compress(content)))
    assert list(found.items()) == [("a/1.jpg", b"11" * 999), ("b/2.jpg", b"2")]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_of_every_format_are_found(tmp_path, form):
    names = [f"{'deep/' * 3}{'x' * 90}.jpg", "ä/日本.jpg", *([LONG] if form != tarfile.USTAR_FORMAT else [])]
    content = b"".join(entry(name, form=form) for name in names) + END
    assert sorted(read(expanded(tmp_path, content))) == sorted(names)


def test_what_gnu_tar_writes_is_found(tmp_path):
    written = {f"a/{name}": name.encode() for name in ("1.jpg", "long" * 40 + ".jpg", "ü.jpg")}
    folder = write_files(tmp_path / "in", written)
    subprocess.run(["tar", "-czf", tmp_path / "x.tgz", "-C", folder, "."], check=True)
    assert read(expanded(tmp_path, (tmp_path / "x.tgz").read_bytes())) == written


def test_a_tar_file_from_before_ustar_is_found(tmp_path):
    old = patched(patched(PHOTO, 156, b"\0"), 257, bytes(8))
    assert read(expanded(tmp_path, old + END)) == {"a/1.jpg": b"photo"}


def test_a_gzip_file_of_several_parts_is_joined(tmp_path):
    content = PHOTO + END
    parts = gzip.compress(content[:700]) + gzip.compress(b"") + gzip.compress(content[700:]) + bytes(20)
    assert read(expanded(tmp_path, parts)) == {"a/1.jpg": b"photo"}


def test_the_target_is_the_decompressed_stream_itself(tmp_path):
    content = PHOTO + END + bytes(512 * 17)
    assert expanded(tmp_path, gzip.compress(content)).read_bytes() == content


def test_a_tar_file_that_was_replaced_since_its_check_is_read_anew(tmp_path):
    target = expanded(tmp_path, gzip.compress(PHOTO + END))
    target.write_bytes(entry("b/2.jpg", b"later") + END)
    assert read(target) == {"b/2.jpg": b"later"}


def test_a_plain_tar_file_is_not_copied(tmp_path):
    target = expanded(tmp_path, PHOTO + END)
    assert target.samefile(tmp_path / "archive")


@pytest.mark.parametrize("compress", COMPRESSED.values(), ids=COMPRESSED)
def test_every_cut_is_refused(tmp_path, compress):
    noise = hashlib.shake_256(b"noise").digest(3000)
    content = compress(b"".join(entry(f"a/{n}", noise[n:]) for n in range(3)) + END)
    cuts = {*range(0, len(content), 64), *range(len(content) - 40, len(content))}
    assert [size for size in sorted(cuts) if not refused(tmp_path, content[:size])] == []


def test_every_flip_in_a_header_is_refused_or_changes_nothing(tmp_path):
    content, changed = bytearray(PHOTO + END), []
    for at in range(512):
        content[at] ^= 1
        if not refused(tmp_path, bytes(content)) and read(tmp_path / "plain.tar") != {"a/1.jpg": b"photo"}:
            changed.append(at)
        content[at] ^= 1
    assert changed == []


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_every_flip_in_a_compressed_archive_is_refused_or_changes_nothing(tmp_path, compress):
    plain = PHOTO + END
    content, changed = bytearray(compress(plain)), []
    for at in range(len(content)):
        content[at] ^= 16
        if not refused(tmp_path, bytes(content)) and (tmp_path / "plain.tar").read_bytes() != plain:
            changed.append(at)
        content[at] ^= 16
    assert changed == []


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_something_after_the_end_of_the_compressed_stream_is_refused(tmp_path, compress):
    assert refused(tmp_path, compress(PHOTO + END) + b"junk")


def test_more_bytes_than_allowed_are_refused(tmp_path):
    content = entry("a/1.jpg", bytes(300_000)) + END
    with pytest.raises(DataError, match="holds more than 200000 bytes"):
        expanded(tmp_path, content, FEW)
    with pytest.raises(DataError, match="expands to more than 100000 bytes; at most 50 times its size"):
        expanded(tmp_path, gzip.compress(content), FEW)


def test_a_bomb_is_refused_in_little_memory(tmp_path):
    bomb = gzip.compress(bytes(100_000_000))
    assert refused(tmp_path, bomb)
    assert max(map(len, decompressed(tmp_path / "archive", "gzip"))) <= files.CHUNK_BYTES
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_a_zip_archive_is_packed_again(tmp_path):
    content = zipped(("b/", b""), ("b/2.jpg", bytes(5000)), ("a/ü.jpg", b"1"))
    assert read(expanded(tmp_path, content)) == {"a/ü.jpg": b"1", "b/2.jpg": bytes(5000)}


def test_equal_zip_archives_of_other_times_give_equal_tar_files(tmp_path):
    dates = [zipfile.ZipInfo("a/1.jpg", (year, 1, 1, 0, 0, 0)) for year in (1999, 2020)]
    first, second = (expanded(tmp_path, zipped((date, b"1"))).read_bytes() for date in dates)
    assert first == second


def mode(name, kind):
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o644) << 16
    return info


def locked(content):
    """The archive with the flag of encryption at its one member."""
    at = content.index(b"PK\x01\x02")
    return content[:6] + b"\1" + content[7 : at + 8] + b"\1" + content[at + 9 :]


def lying(content, size):
    """The archive with another size of its one member."""
    at = content.index(b"PK\x01\x02")
    message = struct.pack("<I", size)
    return content[:22] + message + content[26 : at + 24] + message + content[at + 28 :]


def doubled(content):
    """The archive with its one member listed twice under two names, as in bombs of overlapping members."""
    at = content.index(b"PK\x01\x02")
    entry_size = content.index(b"PK\x05\x06") - at
    listed = content[at : at + entry_size]
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 2, 2, 2 * entry_size, at, 0)
    return content[:at] + listed + listed.replace(b"a/1.jpg", b"a/2.jpg") + end


def test_backslashes_of_windows_are_folders(tmp_path):
    info = zipfile.ZipInfo("a\\1.jpg")
    info.create_system = 0
    assert list(read(expanded(tmp_path, zipped((info, PHOTO[:10]))))) == ["a/1.jpg"]


def test_a_name_in_another_encoding_is_refused_with_a_way_out(tmp_path):
    content = zipped(("a/??.jpg", b"x")).replace(b"??", "ネ".encode("cp932"))
    with pytest.raises(DataError, match="not UTF-8; unpack it with a program that knows its encoding"):
        expanded(tmp_path, content)


def test_a_wrong_zip_archive_is_refused_whole(tmp_path):
    plain = zipped(("a/1.jpg", b"photo" * 100))
    flipped = bytearray(plain)
    flipped[45] ^= 1
    wrong = {
        "parent": zipped(("../x.jpg", b"")), "absolute": zipped(("/x.jpg", b"")),
        "backslash": zipped(("a\\x.jpg", b"")), "clash": zipped(("a/1.jpg", b""), ("a/1.JPG", b"")),
        "link": zipped((mode("a/x", stat.S_IFLNK), b"/etc/passwd")),
        "fifo": zipped((mode("a/x", stat.S_IFIFO), b"")), "bomb": zipped(("a/1.jpg", bytes(300_000))),
        "many": zipped(*((f"a/{number}", b"") for number in range(21))), "encrypted": locked(plain),
        "junk before": b"junk" + plain, "junk after": plain + b"junk", "overlap": doubled(plain),
        "larger": lying(plain, 501), "smaller": lying(plain, 499), "content": bytes(flipped),
        "nothing": zipped(), "folder with content": zipped(("a/", b"x")),
        "control": zipped(("a/\x1b.jpg", b"")), "not UTF-8": plain.replace(b"a/1.jpg", b"a/\xff.jpg"),
    }  # fmt: skip
    for why, content in wrong.items():
        folder = tmp_path / why
        folder.mkdir()
        (folder / "archive").write_bytes(content)
        before = digest(folder)
        with pytest.raises(DataError, match="archive"):
            archives.expand(folder / "archive", folder / "plain.tar", FEW)
        assert digest(folder) == before


def test_every_cut_of_a_zip_archive_is_refused(tmp_path):
    content = zipped(("a/1.jpg", b"photo" * 100), ("a/2.jpg", b"other"))
    assert [size for size in range(len(content)) if not refused(tmp_path, content[:size])] == []


@pytest.fixture
def photos(tmp_path):
    """A folder of two classes with what desktops leave in it."""
    names = ("b/2.jpg", "a/1.jpg", "a/ü.jpg", ".DS_Store", "a/Thumbs.db", "__MACOSX/a/1.jpg")
    folder = write_files(tmp_path / "photos", {name: name for name in names})
    (folder / "empty").mkdir()
    return folder


def packed(folder, target):
    archives.pack(folder, target)
    return target


def test_equal_folders_are_packed_to_equal_bytes(tmp_path, photos):
    first = packed(photos, tmp_path / "1.tar").read_bytes()
    for path in photos.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert packed(photos, tmp_path / "2.tar").read_bytes() == first


def test_gnu_tar_lists_what_is_packed(tmp_path, photos):
    command = ["tar", "-tf", packed(photos, tmp_path / "x.tar"), "--quoting-style=literal"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert listed.split() == ["a/", "a/1.jpg", "a/ü.jpg", "b/", "b/2.jpg", "empty/"]


def test_names_that_only_linux_tells_apart_are_packed_and_read_from_a_folder(tmp_path, photos):
    names = (
        "a/1.JPG", "A/1.jpg", "a/x\n.jpg", "red /1.jpg", "Quercus sp./1.jpg", "C:\\1.jpg", "a/-%.jpg",
        "a/e\u0301", "a/é",
    )  # fmt: skip
    found = read(packed(write_files(photos, {name: name for name in names}), tmp_path / "x.tar"))
    assert {name: found[name] for name in names} == {name: name.encode() for name in names}


@pytest.mark.parametrize("name", ["/x.jpg", "../x.jpg", "a//x.jpg", "a/../../x.jpg"])
def test_the_mark_of_a_local_folder_lets_no_name_point_outside(tmp_path, photos, name):
    (photos / "a" / "1.JPG").write_bytes(b"")
    marked = packed(photos, tmp_path / "x.tar").read_bytes()[: 3 * 512]
    with tarfile.open(tmp_path / "y.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    (tmp_path / "z.tar").write_bytes(marked[: 2 * 512] + (tmp_path / "y.tar").read_bytes())
    with pytest.raises(DataError, match=r"z\.tar: member .* is refused"):
        archives.contents(tmp_path / "z.tar")


def test_links_to_images_are_followed(tmp_path, photos):
    (photos / "a" / "3.jpg").symlink_to(photos / "b" / "2.jpg")
    assert "a/3.jpg" in read(packed(photos, tmp_path / "x.tar"))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "a" / "up").symlink_to(folder), "a/up is a link to a folder, in which DVC"),
        (lambda folder: (folder / "a" / "x").symlink_to("nothing"), "a/x is not a file"),
        (lambda folder: os.mkfifo(folder / "a" / "x"), "a/x is not a file"),
        (lambda folder: Path(os.fsdecode(bytes(folder) + b"/a/\xff")).write_text(""), "not UTF-8"),
    ],
    ids=["loop", "dangling link", "fifo", "not UTF-8"],
)
def test_what_cannot_be_packed_is_named_and_nothing_is_written(tmp_path, photos, spoil, message):
    spoil(photos)
    with pytest.raises(DataError, match=message):
        archives.pack(photos, tmp_path / "x.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_named(tmp_path, photos):
    (photos / "a" / "1.jpg").chmod(0)
    with pytest.raises(DataError, match=r"a/1\.jpg cannot be read"):
        archives.pack(photos, tmp_path / "x.tar")


def test_a_folder_without_files_is_not_packed(tmp_path):
    (tmp_path / "photos" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match="photos holds no files"):
        archives.pack(tmp_path / "photos", tmp_path / "x.tar")


def test_a_member_of_a_tar_file_that_was_cut_since_is_a_data_error(tmp_path, photos):
    tar = packed(photos, tmp_path / "x.tar")
    member = next(each for each in archives.contents(tar) if each.size)
    tar.write_bytes(tar.read_bytes()[: member.offset + member.size - 1])
    with pytest.raises(DataError, match=f"changed during the read: '{member.name}' is incomplete"):
        archives.content(tar, member)
