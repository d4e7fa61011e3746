"""The console blocks of the documentation: each is run as printed, or marked `<!-- not run: reason -->`."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.checkout import BIN, Checkout

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?P<mark><!-- not run: [^\n]+ -->\n)?[ ]*```console\n(?P<text>.*?)\n[ ]*```", re.DOTALL)
STORY = ROOT / "docs" / "tutorial-loop.md"  # test_loop.py runs its blocks, which need each other
PAGES = sorted(
    {ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")} - {STORY}
)
RUN = [
    pytest.param(match["text"], id=f"{page.stem}-{number}")
    for page in PAGES
    for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8")))
    if not match["mark"]
]


def write_network(folder: Path) -> None:
    """Write the network of the page about components."""
    text = (ROOT / "docs" / "how-to" / "components.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block
    (folder / "components" / "nets.py").write_text(block[1], encoding="utf-8")


# What a block needs that its page describes in words, by its first command.
PREPARED: dict[str, Callable[[Checkout], None]] = {
    "perennial config --set model.name=components.nets:tiny": lambda checkout: write_network(checkout.folder),
    "perennial train": lambda checkout: checkout.set("train", stop_threshold=76.0),
}
REFUSED = {"perennial train": 2}  # blocks that show an error


@pytest.fixture(scope="module")
def checkout(reproduced: Checkout) -> Iterator[Checkout]:
    """A checkout in which every stage has run, with its packages in .venv; put back at the end."""
    (reproduced.folder / ".venv").symlink_to(BIN.parent)
    yield reproduced
    (reproduced.folder / ".venv").unlink()
    reproduced.restore()


@pytest.mark.fast_rows("README-1", "CONTRIBUTING-0", "tutorial-3")
@pytest.mark.parametrize("text", RUN)
def test_a_block_runs_as_printed(checkout: Checkout, text: str) -> None:
    lines = [line.strip() for line in text.split("\n")]
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    assert commands, "a block starts its commands with `$ `"
    PREPARED.get(commands[0], lambda _: None)(checkout)
    done = checkout.run("bash", "-euo", "pipefail", "-c", "\n".join(commands))
    checkout.must("git", "checkout", "-q", ".")
    checkout.must("git", "clean", "-dfq", "components")
    assert done.returncode == REFUSED.get(commands[0], 0), done.stdout
    if commands[0] in REFUSED:
        assert lines[-1] in done.stdout
