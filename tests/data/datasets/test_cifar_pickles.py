"""Pickles are read without unpickling: what Python 2 wrote of CIFAR-10 is understood, and nothing else."""

import os
import pickle
import pickletools
import struct

import numpy as np
import pytest
from support.pickles import array, batch, dictionary, text

from perennial.base.errors import DataError
from perennial.data.datasets.readers import cifar

PIXELS = np.arange(6 * 3072, dtype=np.uint32).astype(np.uint8).reshape(6, 3072)


WHOLE = batch(PIXELS, [3, 1, 4, 1, 5, 9])


def read(content):
    return cifar.read_pickle(content, "data_batch_1")


def test_the_batches_here_are_what_pickle_reads():
    found = pickle.loads(WHOLE, encoding="bytes")
    assert np.array_equal(found[b"data"], PIXELS)


def test_a_batch_holds_labels_and_the_place_of_its_pixels():
    found = read(WHOLE)
    place = found["data"].offset
    assert found["labels"] == [3, 1, 4, 1, 5, 9]
    assert (found["data"].shape, WHOLE[place : place + PIXELS.size]) == ((6, 3072), PIXELS.tobytes())


@pytest.mark.parametrize(("order", "fortran"), [("C", False), ("F", True)])
def test_the_order_of_an_array_is_told(order, fortran):
    assert read(batch(PIXELS, [0] * 6, order))["data"].fortran is fortran


def test_strings_and_numbers_of_every_size_are_read():
    content = dictionary(
        a=text(b"\xff" * 300), b=b"J" + struct.pack("<i", -70000), c=b"M\x10\x27", d=b"N", e=b"(K\1K\2t"
    )
    found = read(content)
    assert (found.pop("a").content, found) == ("\xff" * 300, {"b": -70000, "c": 10000, "d": None, "e": (1, 2)})


def test_what_was_noted_is_found_again():
    assert read(b"\x80\2}(" + text(b"a") + b"]q\5" + text(b"b") + b"h\5u.") == {"a": [], "b": []}


class Harmful:
    def __reduce__(self):
        return os.system, ("touch harmed",)


HOSTILE = {
    "call": b"\x80\2cos\nsystem\n" + text(b"touch harmed") + b"\x85R.",
    "call of Python 3": pickle.dumps({"data": Harmful()}, protocol=2),
    "newer protocol": pickle.dumps({"data": Harmful()}, protocol=4),
    "old protocol": pickle.dumps({"data": Harmful()}, protocol=0),
    "instance": b"\x80\2(cos\nsystem\n" + text(b"touch harmed") + b"o.",
    "instance by name": b"(S'touch harmed'\nios\nsystem\n.",
    "new object": b"\x80\2cos\nsystem\n" + text(b"touch harmed") + b"\x85\x81.",
    "eval": b"\x80\2c__builtin__\neval\n" + text(b"__import__('os').system('touch harmed')") + b"\x85R.",
    "name as text": b"\x80\2" + text(b"os") + text(b"system") + b"\x93.",
    "extension": b"\x80\2\x82\1.",
    "persistent": b"\x80\2" + text(b"x") + b"Q.",
    "state of a class": b"\x80\2cnumpy\nndarray\n}b.",
    "call of a class": b"\x80\2cnumpy\nndarray\nK\0\x85R.",
    "call of text": b"\x80\2" + text(b"os.system") + text(b"touch harmed") + b"\x85R.",
    "another type": WHOLE.replace(text(b"u1"), text(b"O8")),
}
DAMAGED = {
    "nothing": b"",
    "text": b"<html>404</html>",
    "a list": b"\x80\2].",
    "a mark left": b"\x80\2}(}.",
    "two values": b"\x80\2}}.",
    "no value": b"\x80\2.",
    "no mark": b"\x80\2}u.",
    "an odd number of items": b"\x80\2}(" + text(b"a") + b"u.",
    "a key that is no text": b"\x80\2}(K\1K\2u.",
    "items for a list": b"\x80\2](" + text(b"a") + b"K\1u.",
    "values for a dictionary": b"\x80\2}(K\1e.",
    "nothing noted": b"\x80\2h\5.",
    "nothing to note": b"\x80\2q\1.",
    "nothing to call": b"\x80\2R.",
    "too few for a tuple": b"\x80\2K\1\x86.",
    "an array of too few bytes": WHOLE.replace(b"M\6\0M\0\x0c", b"M\7\0M\0\x0c"),
    "an array without a shape": b"\x80\2}("
    + text(b"a")
    + array(PIXELS).replace(b"M\6\0M\0\x0c\x86", b"N")
    + b"u.",
    "an array of a negative shape": WHOLE.replace(b"M\6\0M\0\x0c", b"J\xff\xff\xff\xffM\0\x0c"),
    "a state that is short": b"\x80\2cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
    + text(b"b")
    + b"\x87R(K\1tb.",
}


@pytest.mark.parametrize("content", (HOSTILE | DAMAGED).values(), ids=HOSTILE | DAMAGED)
def test_anything_else_is_a_data_error(content):
    with pytest.raises(DataError, match=r"^data_batch_1 is not a pickle of a dictionary of arrays: ."):
        read(content)


def test_nothing_of_a_hostile_pickle_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content in HOSTILE.values():
        with pytest.raises(DataError):
            read(content)
    assert list(tmp_path.iterdir()) == []


def test_every_cut_is_a_data_error():
    small = batch(PIXELS[:1], [7])
    read_anyway = []
    for size in range(len(small)):
        try:
            read(small[:size])
        except DataError:
            continue
        read_anyway.append(size)
    assert read_anyway == []


def test_every_opcode_alone_is_read_or_a_data_error():
    refused = 0
    for opcode in pickletools.opcodes:
        try:
            read(b"\x80\2}" + opcode.code.encode("latin-1") + b"\0\0\0\0\0\0\0\0\n\n.")
        except DataError:
            refused += 1
    assert refused > 50
