"""Pickles as Python 2 and its numpy wrote those of CIFAR-10: protocol 2, byte for byte."""

import struct


def text(content):
    if len(content) < 256:
        return b"U" + bytes([len(content)]) + content
    return b"T" + struct.pack("<i", len(content)) + content


def numbers(values):
    return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"


def array(values, order="C"):
    """An array as numpy pickled it under Python 2, with protocol 2."""
    rows, columns = values.shape
    shape = b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86"
    dtype = (
        b"cnumpy\ndtype\nq\x07" + text(b"u1") + b"K\0K\1\x87R"
        b"(K\3" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    )
    start = b"cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\nndarray\nK\0\x85" + text(b"b") + b"\x87R"
    flag = b"\x88" if order == "F" else b"\x89"
    return start + b"(K\1" + shape + dtype + flag + text(values.tobytes(order)) + b"tb"


def dictionary(**items):
    body = b"".join(text(key.encode()) + value for key, value in items.items())
    return b"\x80\2}q\1(" + body + b"u."


def batch(pixels, labels, order="C"):
    """A batch of CIFAR-10 for Python."""
    names = b"](" + b"".join(text(b"%d.png" % number) for number in range(len(labels))) + b"e"
    return dictionary(
        batch_label=text(b"training batch 1 of 5"),
        labels=numbers(labels),
        data=array(pixels, order),
        filenames=names,
    )
