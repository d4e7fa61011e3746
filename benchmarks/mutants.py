"""Change a module in small ways, and list the changes that its tests do not notice: `make mutants MODULE=FILE`.

mutmut works in a copy of the tracked files, in .work/mutants: it writes its changes into the tree. SAMPLE=80
tries as many of the changes, drawn by SEED. The counts go into benchmarks/results/mutants.json.
"""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import results
from benchmarks.timing import ROOT

TREE = ROOT / ".work" / "mutants"
TEXT = re.compile(r"""f?(["'])((?:(?!\1).)*)\1""")
NO_MESSAGE = re.compile(r"(Error|log\.\w+)\(")
# mutmut counts calls in its own process, and where a program is started elsewhere it finds no configuration.
IN_PROGRAMS = """\
import os
if os.environ.get("MUTANT_UNDER_TEST") == "stats":
    del os.environ["MUTANT_UNDER_TEST"]
"""
# mutmut ends a change after 15 times this and the tests' own time, by the clock: on a busy machine one second
# is too little, and a change that was only slow would count as noticed. Changes run in forks of a process that
# has imported TensorFlow and no tests: TensorFlow waits forever in a fork of a process that has run it.
CONFIGURATION = """\
[mutmut]
timeout_constant=30
process_isolation=forkserver
forkserver_warmup=import
preload_modules_file=preloaded
source_paths=src/perennial
only_mutate={module}
also_copy=
    src/sitecustomize.py
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
    mutmut("run", "--max-children", str(os.cpu_count()), *sample())
    seconds = time.monotonic() - started
    states = {name: state for name, state in all_states().items() if state != "not checked"}
    survivors = {name: changed_lines(name) for name, state in states.items() if state == "survived"}
    shown = {name: lines for name, lines in survivors.items() if not is_of_words(lines)}
    for name, lines in shown.items():
        print(name, *lines, sep="\n")
    count = Counter(states.values())
    noticed = count["killed"] + count["timeout"]
    row = {
        "changes": len(all_states()),
        "tried": noticed + len(shown),
        "noticed": noticed,
        "of_messages": len(survivors) - len(shown),
        "no_test": count["no tests"],
        "seconds": round(seconds),
    }
    print(f"{module}: {row}")
    write(module, row)


def sample() -> list[str]:
    """The names of SAMPLE changes; none, which is all, without SAMPLE."""
    if not (size := int(os.environ.get("SAMPLE", "0"))):
        return []
    mutmut("run", "no such change", check=False)  # makes the changes, and learns which test runs what
    names = sorted(name for name, state in all_states().items() if state != "no tests")
    return random.Random(int(os.environ.get("SEED", "0"))).sample(names, min(size, len(names)))


def all_states() -> dict[str, str]:
    """What became of each change, by its name."""
    return dict(re.findall(r"^\s+(\S+): (.+)$", mutmut("results", "--all", "true"), re.MULTILINE))


def write(module: str, row: dict[str, int]) -> None:
    """Keep the counts of a module beside those of the others, each with its commit."""
    folder = ROOT / ("benchmarks" if results.revision() else ".work/benchmarks") / "results"
    file = folder / "mutants.json"
    before = json.loads(file.read_text(encoding="utf-8"))["modules"] if file.exists() else {}
    of = {"revision": results.revision(), "date": datetime.now(UTC).date().isoformat()}
    results.write("mutants", modules={**before, module.removeprefix("src/perennial/"): {**row, **of}})


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
    (TREE / "src" / "sitecustomize.py").write_text(IN_PROGRAMS)
    (TREE / "preloaded").write_text("pytest\ntensorflow\n")
    subprocess.run(["git", "init", "-q"], cwd=TREE, check=True)


def mutmut(*arguments: str, check: bool = True) -> str:
    """Run mutmut in the copy, and return what it prints."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    environment = {**os.environ, "PYTHONPATH": "src"}
    done = subprocess.run(command, cwd=TREE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and check:
        last = "\n".join(re.split(r"[\r\n]+", done.stdout)[-40:])
        sys.exit(f"mutmut {arguments[0]} failed:\n{last}\n{done.stderr[-2000:]}")
    return done.stdout


def changed_lines(name: str) -> list[str]:
    """The lines that a change removes and adds, with their sign."""
    lines = mutmut("show", name).splitlines()
    return [line for line in lines if line[:1] in {"-", "+"} and line[:3] not in {"---", "+++"}]


def is_of_words(lines: list[str]) -> bool:
    """Whether a change is of a message alone, whose words tests leave free: of a text with a blank."""
    plain = {
        TEXT.sub(lambda text: "" if " " in text[2] else text[0].replace("UTF-8", "utf-8"), line[1:])
        for line in lines
    }
    return len(plain) == 1 or any(
        NO_MESSAGE.search(line) and "None" in line for line in lines if line[0] == "+"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
