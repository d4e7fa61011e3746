"""What a program does, and the code that a process has loaded."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perennial.base.project import source_code

PROGRAM = """
import ast, hashlib, json, pathlib, runpy, sys
normalised = runpy.run_path(sys.argv[1])["normalised"]
def digest(file):
    return hashlib.sha256(normalised(ast.parse(file.read_bytes())).encode()).hexdigest()
found = {name: digest(pathlib.Path(name)) for name in json.load(sys.stdin)}
print(json.dumps([list(sys.version_info[:2]), found]))
"""


def of(text: str) -> str:
    return source_code.normalised(ast.parse(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1\n", "# Why.\nx  =  (1) # one\n\n"),
        ('"""Doc."""\nx = "a"\n', "x = 'a'\n"),
        ("def f():\n    'Doc.'\n    return 1\n", "def f():\n    return 1\n"),
        ("class A:\n    a: int\n    'Of a.'\n", "class A:\n    a: int\n"),
        ("x = u'a'\n", "x = 'a'\n"),
        ("x = f'a{b}c' f'd{e}'\n", "x = (f'a{b}c'\n     'd' f'{e}')\n"),
        ("x = f'{a:}'\n", "x = f'{a}'\n"),
        ("x = 0x10\n", "x = 16\n"),
        ("x = f(a,)\n", "x = f(\n    a\n)\n"),
    ],
)
def test_what_changes_nothing_is_left_out(one: str, other: str) -> None:
    assert of(one) == of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1\n", "x = True\n"),
        ("x = 1\n", "x = 1.0\n"),
        ("x = '1'\n", "x = b'1'\n"),
        ("x = None\n", "x = 'None'\n"),
        ("def f(): return None\n", "def f(): return\n"),
        ("x = {**a}\n", "x = {None: a}\n"),
        ("x = a[:b]\n", "x = a[b:]\n"),
        ("def f(*, a, b=1): pass\n", "def f(*, a=1, b): pass\n"),
        ("x = f'{a}b'\n", "x = f'{a}' + 'b'\n"),
        ("x = f'{a!r}'\n", "x = f'{a}'\n"),
        ("from a import b\n", "from .a import b\n"),
        ("x = ['a,b']\n", "x = ['a', 'b']\n"),
        ("if a:\n    b\nelse:\n    c\n", "if a:\n    b\n    c\n"),
        ("x = 'a'\ny = 1\n", "y = 1\nx = 'a'\n"),
    ],
)
def test_what_changes_something_is_kept(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_pieces_of_f_strings_and_fields_of_newer_pythons_make_no_difference() -> None:
    """Where only one Python is installed: trees as the others make them."""
    text = "def f(a: int = 1) -> str:\n    return f'{a:>3}b'\n"
    tree = ast.parse(text)
    function = tree.body[0]
    function.type_params = []  # type: ignore[attr-defined] # since 3.12
    function._fields = (*function._fields, "type_params")  # type: ignore[misc]
    (joined,) = (
        node for node in ast.walk(function) if isinstance(node, ast.JoinedStr) and len(node.values) == 2
    )
    joined.values[1:] = [ast.Constant(""), ast.Constant("b", kind="u"), ast.Constant("")]  # as before 3.12
    del function.decorator_list  # type: ignore[attr-defined] # a field may be missing since 3.13
    assert source_code.normalised(tree) == of(text)


def test_large_numbers_and_any_character_can_be_written() -> None:
    assert of(f"x = 0x{'f' * 5000}\n") != of(f"x = 0x{'f' * 5001}\n")
    assert of("x = '\U0001fae8\\ud800'\n").isascii()  # a character of Unicode 15, which Python 3.12 knows


@pytest.mark.slow
def test_every_installed_python_gives_the_same() -> None:
    pythons = {(".".join(map(str, sys.version_info[:2]))): sys.executable}
    for file in Path.home().glob(".pyenv/versions/*/bin/python3.1[123]"):
        pythons.setdefault(file.name.removeprefix("python"), str(file))
    if len(pythons) < 2:
        pytest.skip("no other Python is installed")
    files = [*source_code.PACKAGE.rglob("*.py"), *Path(ast.__file__).parent.glob("*.py")]
    found, variables = [], {"PATH": os.environ["PATH"], "PYTHONPATH": str(source_code.PACKAGE.parent)}
    for python in pythons.values():
        done = subprocess.run(
            [python, "-W", "ignore", "-c", PROGRAM, source_code.__file__],
            input=json.dumps([str(file) for file in files]),
            capture_output=True, text=True, check=True, env=variables,
        )  # fmt: skip
        found.append(json.loads(done.stdout)[1])
    assert all(each == found[0] for each in found)


def test_a_program_without_a_file_can_be_checked() -> None:
    program = """
from perennial.base.project import source_code
source_code.note_start()
source_code.require_unchanged()
print(len(source_code.AT_START) > 100)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
