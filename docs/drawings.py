"""Draw the pictures of docs/explanation/how-it-works.md from the code: `python docs/drawings.py`."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "src"))
STAGES = importlib.import_module("perennial.base.project.stage_table").STAGES
WIDTH, MARGIN, GAP = 960, 12, 8
STYLE = """<style>
    text { font: 13px system-ui, sans-serif; fill: #555; }
    .name { font-size: 16px; font-weight: 600; fill: #111; }
    .code { font-family: ui-monospace, monospace; font-size: 12px; fill: #00695c; }
    rect { fill: #fff; stroke: #00897b; stroke-width: 1.5; }
    .strong { fill: #e0f2f1; }
    .band { fill: none; stroke: #999; stroke-dasharray: 4 3; }
    path { fill: none; stroke: #777; stroke-width: 1.8; }
    @media (prefers-color-scheme: dark) {
      text { fill: #b8bcc6; } .name { fill: #fff; } .code { fill: #4db6ac; }
      rect { fill: #23252f; stroke: #4db6ac; } .strong { fill: #1d3b3a; } path { stroke: #aaa; }
    }
  </style>"""


def picture(title: str, height: int, parts: Iterator[str]) -> str:
    """An SVG of the width of a page; `height` in pixels."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-labelledby="title">'
    )
    return "\n  ".join([head, f'<title id="title">{escape(title)}</title>', STYLE, *parts]) + "\n</svg>\n"


def box(x: float, y: float, width: float, height: float, kind: str = "") -> str:
    """A rectangle with round corners."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" class="{kind}"/>'


def text(x: float, y: float, content: str, kind: str = "") -> str:
    """A line of text that starts at x."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(content)}</text>'


def layer_stack() -> str:
    """The layers of src/perennial, each on those that it may import, with their packages."""
    layers, row = _order(), 62
    title = "The layers of src/perennial; each imports only those below it"
    return picture(title, len(layers) * row + 2 * MARGIN, _layers(layers, row))


def _order() -> tuple[str, ...]:
    """The layers from the bottom up, as the test of the architecture has them."""
    for node in ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return tuple(ast.literal_eval(node.value))
    raise LookupError("tests/test_architecture.py has no LAYERS")


def _layers(layers: tuple[str, ...], row: int) -> Iterator[str]:
    for number, layer in enumerate(reversed(layers)):
        folder, y = ROOT / "src" / "perennial" / layer, MARGIN + number * row
        about = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
        packages = sorted(path.parent.name for path in folder.glob("*/__init__.py"))
        modules = sorted(path.stem for path in folder.glob("[!_]*.py"))
        yield box(MARGIN, y, WIDTH - 2 * MARGIN, row - GAP, "strong" if layer == "stages" else "")
        yield text(MARGIN + 14, y + 23, layer, "name")
        yield text(MARGIN + 150, y + 22, about)
        yield text(MARGIN + 150, y + 43, ", ".join(packages or modules) if layer != "cli" else "", "code")


def way() -> str:
    """The steps of a run in their order: time limit, what each does, and the outputs of the stages."""
    steps, row = list(_steps()), 38
    return picture(
        "The way of a run, from its pins to a published version",
        len(steps) * row + 2 * MARGIN,
        _rows(steps, row),
    )


def _rows(steps: list[str], row: int) -> Iterator[str]:
    tasks = _functions("tasks/stages.py") | _functions("src/perennial/orchestration/steps/recording.py")
    tasks |= _functions("src/perennial/orchestration/steps/artifacts.py")
    limits = _limits()
    for number, name in enumerate(steps):
        y, stage = MARGIN + number * row, STAGES.get(name)
        about = stage.about if stage else (ast.get_docstring(tasks[name]) or "").splitlines()[0]
        yield box(MARGIN + 22, y, WIDTH - 2 * MARGIN - 22, row - GAP, "strong" if stage else "")
        yield text(MARGIN + 34, y + 20, name.replace("_", " "), "name" if stage else "")
        yield text(MARGIN + 180, y + 20, limits[name])
        yield text(MARGIN + 250, y + 20, shorten(about, 58 if stage else 105, placeholder=" ..."))
        written = [output.replace("_", " ") for output in stage.outputs] if stage else []
        yield text(MARGIN + 640, y + 20, shorten(", ".join(written), 40, placeholder=" ..."), "code")
    first, last = (MARGIN + steps.index(name) * row + (row - GAP) / 2 for name in ("pin_champion", "record"))
    yield f'<path d="M {MARGIN + 22} {last:g} H {MARGIN + 4} V {first:g} H {MARGIN + 20}"/>'


def _steps() -> Iterator[str]:
    """The tasks that the flow `retrain` calls, in their order, without those that only look."""
    functions = _functions("flows/retrain.py")

    def called(function: ast.FunctionDef) -> Iterator[str]:
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            module, _, name = ast.unparse(call.func).rpartition(".")
            if name in functions:
                yield from called(functions[name])
            elif module in {"stages", "steps"} and name not in {"publishing", "start_record", "find_unchanged"}:
                yield name

    return called(functions["retrain"])


def _functions(file: str) -> dict[str, ast.FunctionDef]:
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def _limits() -> dict[str, str]:
    """The time limit of each task, such as 6 h."""
    found = {name: task.decorator_list for name, task in _functions("tasks/stages.py").items()}
    for node in ast.parse((ROOT / "tasks" / "steps.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = [node.value]
    texts = {name: " ".join(map(ast.unparse, nodes)) for name, nodes in found.items()}
    limits = {name: re.search(r"(?:(\d+) \* )?(HOUR|MINUTE)_S", text) for name, text in texts.items()}
    return {
        name: f"{limit[1] or 1} {'h' if limit[2] == 'HOUR' else 'min'}"
        for name, limit in limits.items()
        if limit
    }


DRAWINGS = {"layers.svg": layer_stack, "run.svg": way}

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (IMAGES / name).write_text(draw(), encoding="utf-8")
