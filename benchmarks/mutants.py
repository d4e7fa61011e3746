"""Change a module in small ways, and list the changes that its tests do not notice: `make mutants MODULE=FILE`.

mutmut works in a copy of the tracked files, in .work/mutants: it writes its changes into the tree.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREE = ROOT / ".work" / "mutants"
SENTENCE = re.compile(r"""f?(["'])(?=[^"']* )[^"']*\1""")  # a text with a blank: tests leave its words free
NO_MESSAGE = re.compile(r"(Error|log\.\w+)\(")
CONFIGURATION = """\
[mutmut]
source_paths=src/perennial
only_mutate={module}
also_copy=
    {copied}
pytest_add_cli_args_test_selection=
    {tests}
"""


def main(module: str, *tests: str) -> None:
    """Try a module; `tests`: files or folders of tests, by default those that mirror the module."""
    copy_tree()
    (TREE / "setup.cfg").write_text(
        CONFIGURATION.format(
            module=module,
            copied="\n    ".join(beside()),
            tests="\n    ".join(tests or [mirrored(Path(module))]),
        )
    )
    started = time.monotonic()
    mutmut("run", "--max-children", str(os.cpu_count()))
    seconds = time.monotonic() - started
    states = dict(re.findall(r"^\s+(\S+): (.+)$", mutmut("results", "--all", "true"), re.MULTILINE))
    survivors = {name: changed_lines(name) for name, state in states.items() if state == "survived"}
    shown = {name: lines for name, lines in survivors.items() if not is_of_words(lines)}
    for name, lines in shown.items():
        print(name, *lines, sep="\n")
    count = Counter(states.values())
    noticed = count["killed"] + count["timeout"]
    words = len(survivors) - len(shown)
    print(
        f"{module}: {noticed} of {noticed + len(shown)} changes noticed; besides, {words} of messages alone, "
        f"{count['no tests']} that no test runs; {seconds:.0f} s"
    )


def mirrored(module: Path) -> str:
    """The tests of a module: tests/data/records/test_manifest.py of src/perennial/data/records/manifest.py."""
    return str(Path("tests", *module.parts[2:-1], f"test_{module.name}"))


def beside() -> list[str]:
    """The names of what tests read besides the source and the tests."""
    copied_anyway = {"src", "tests", "pyproject.toml"}
    return sorted(path.name for path in TREE.iterdir() if path.name not in {*copied_anyway, ".git"})


def copy_tree() -> None:
    """Copy the tracked files as they are now, as a repository of their own."""
    shutil.rmtree(TREE, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if (ROOT / name).is_file():
            (TREE / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, TREE / name)
    subprocess.run(["git", "init", "-q"], cwd=TREE, check=True)


def mutmut(*arguments: str) -> str:
    """Run mutmut in the copy, and return what it prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    environment = {**os.environ, "PYTHONPATH": "src"}
    done = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = "\n".join(re.split(r"[\r\n]+", done.stdout)[-40:])
        sys.exit(f"mutmut {arguments[0]} failed:\n{last}\n{done.stderr[-2000:]}")
    return done.stdout


def changed_lines(name: str) -> list[str]:
    """The lines that a change removes and adds, with their sign."""
    lines = mutmut("show", name).splitlines()
    return [line for line in lines if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"}]


def is_of_words(lines: list[str]) -> bool:
    """Whether a change is of a message alone."""
    plain = {SENTENCE.sub("", line[1:]).lower() for line in lines}
    return len(plain) == 1 or any(
        NO_MESSAGE.search(line) and "None" in line for line in lines if line[0] == "+"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
