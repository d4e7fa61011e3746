"""A program without what changes nothing when it runs: comments, docstrings, layout and line numbers.

Python 3.11, 3.12 and 3.13 give equal results, which `ast.dump` does not: a newer one has more fields, leaves
out empty ones, and cuts the text of an f-string into other pieces.
"""

import ast
from collections.abc import Callable, Iterable, Iterator

IGNORED = {"kind", "type_comment", "ctx"}  # of a constant: `u`; a comment; follows from where a name stands


def normalised(program: ast.Module) -> str:
    """What a Python program does, as text; empty if it has only comments and docstrings."""
    parts: list[str] = []
    for statement in _statements(program.body):
        _write(statement, parts.append)
    return "".join(parts)


def _write(value: object, to: Callable[[str], None]) -> None:
    if isinstance(value, ast.Constant):
        to(f"{type(value.value).__name__} {_constant(value.value)}")
    elif isinstance(value, ast.AST):
        to(f"{type(value).__name__}(")
        for name, field in _fields(value):
            to(f"{name}=")
            _write(field, to)
            to(",")
        to(")")
    elif isinstance(value, list):
        to("[")
        for each in value:
            _write(each, to)
            to(",")
        to("]")
    else:  # a name, a number of dots, a singleton of a pattern
        to(_constant(value))


def _fields(node: ast.AST) -> Iterator[tuple[str, object]]:
    """The fields of a node that say something, in an order that does not depend on Python's version."""
    for name in sorted(node._fields):
        value = getattr(node, name, None)
        if name in {"body", "orelse", "finalbody"} and isinstance(value, list):
            value = list(_statements(value))
        elif name == "values" and isinstance(node, ast.JoinedStr):
            value = list(_merged(value or []))
        elif name == "format_spec" and isinstance(value, ast.JoinedStr) and not list(_merged(value.values)):
            value = None
        if value is not None and value != [] and name not in IGNORED:
            yield name, value


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements but texts that stand alone: docstrings."""
    for each in body:
        text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
        if not (text and isinstance(each.value.value, str)):  # type: ignore[attr-defined]
            yield each


def _merged(values: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """The pieces of an f-string, neighbouring texts as one and empty ones left out."""
    text = ""
    for each in values:
        if isinstance(each, ast.Constant):
            text += str(each.value)
            continue
        if text:
            yield ast.Constant(text)
        text = ""
        yield each
    if text:
        yield ast.Constant(text)


def _constant(value: object) -> str:
    # `repr` of a text depends on Python's version of Unicode, and it refuses integers of thousands of digits.
    return hex(value) if type(value) is int else ascii(value)
