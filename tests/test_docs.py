"""The documentation and its site compared with the code."""

import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from ruamel.yaml import YAML

from docs import measurements
from perennial.base import choices, config
from perennial.base.config import networks
from perennial.base.config.data import SeverityConfig
from perennial.base.config.paths import Paths
from perennial.base.errors import ERRORS
from perennial.base.params import edit_params
from perennial.base.project.stage_table import STAGES
from perennial.cli import all_commands
from perennial.data.datasets import DATASETS
from perennial.data.validation.problems import FIXES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
LISTS = ("commands", "flags", "measurements", "options", "problem-codes")  # made from code and tables
PAGES = sorted(str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md"))


def table(page: str, after: str) -> list[list[str]]:
    """The rows of the first table after a piece of a page's text, cell by cell, without its head."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    block = re.search(r"(\|.*\n)+", text[text.index(after) :])
    return [line.strip("| ").split(" | ") for line in block[0].splitlines()[2:]]


def quoted(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def test_every_problem_code_is_listed_with_its_fix() -> None:
    errors, judged = (
        {quoted(code)[0]: fix for code, _, fix in table("reference/problem-codes", after)}
        for after in ("## Errors", "## Checks with a severity of your choice")
    )
    assert errors | judged == FIXES
    assert set(judged) == set(SeverityConfig.model_fields)


OUTPUTS = [str(getattr(Paths(), name)) for stage in STAGES.values() for name in stage.outputs]
LISTED: dict[tuple[str, str], Iterable[str]] = {
    ("explanation/architecture", "## The stages"): tuple(STAGES),
    ("reference/files", "## Versioned by DVC"): OUTPUTS,
    ("how-to/data", "## Data sets"): DATASETS,
    ("how-to/export", "## Other formats"): get_args(choices.Format),
    ("how-to/training", "| preset |"): edit_params.presets(),
    ("reference/preprocessing", "## Preprocessings"): set(get_args(choices.Preprocessing)) - {"auto"},
}


@pytest.mark.parametrize(("page", "after"), LISTED)
def test_all_that_there_is_of_a_kind_is_listed(page: str, after: str) -> None:
    every = page == "reference/files"  # a row may name several
    cells = [quoted(row[0]) for row in table(page, after)]
    listed = [name.rstrip("/") for names in cells for name in (names if every else names[:1])]
    order = list if isinstance(LISTED[page, after], tuple) else sorted
    assert order(listed) == order(LISTED[page, after])


def test_every_model_is_of_one_of_the_families_that_are_listed() -> None:
    patterns = [pattern for row in table("reference/networks", "## Families") for pattern in quoted(row[0])]
    of_each = {name: [each for each in patterns if fnmatchcase(name, each)] for name in networks.NETWORKS}
    assert {len(found) for found in of_each.values()} == {1}
    assert {found[0] for found in of_each.values()} == set(patterns)


def test_every_exit_code_is_listed_with_its_class() -> None:
    listed = {
        (int(row[0]), quoted(row[1])[0])
        for row in table("reference/exit-codes", "# Exit codes")
        if quoted(row[1])
    }
    assert listed == {(error.exit_code, error.__name__) for error in ERRORS}


def test_the_reference_of_commands_is_generated() -> None:
    page = subprocess.run([sys.executable, DOCS / "commands.py"], capture_output=True, text=True, check=True)
    assert (DOCS / "reference" / "commands.md").read_text(encoding="utf-8") == page.stdout


@pytest.mark.parametrize("name", ["layers.svg", "run.svg"])
def test_the_pictures_of_the_house_and_of_a_run_are_drawn_from_the_code(name: str) -> None:
    draw = runpy.run_path(str(DOCS / "drawings.py"))["DRAWINGS"][name]
    assert (DOCS / "images" / name).read_text(encoding="utf-8") == draw()


def test_every_command_and_option_of_a_page_exists() -> None:
    commands = all_commands()
    for file in (ROOT / "README.md", *(DOCS / page for page in PAGES)):
        text = file.read_text(encoding="utf-8")
        for name, rest in re.findall(
            r"(?:`|\$ |^ {4})perennial ([a-z]+(?:-[a-z]+)*)([^`\n#]*)", text, re.MULTILINE
        ):
            options = {option for each in commands[name].params for option in each.opts} | {"--help"}
            assert set(re.findall(r"(?<!\S)\[?(--[\w-]+)", rest)) <= options, (file, name)


def test_the_output_of_start_in_the_tutorial_holds_valid_parameters() -> None:
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    lines = re.findall(r"^([a-z]+\.[a-z_.]+): (.*?)  # ", text, re.MULTILINE)
    values = {key: YAML(typ="safe").load(value) for key, value in lines}
    done = edit_params.set_values((ROOT / "params.yaml").read_text(encoding="utf-8"), values)
    assert config.check(config.read(done.text)).dataset.name == "image_folder"


def test_the_parameters_of_the_tutorial_with_a_bucket_are_valid(tmp_path: Path) -> None:
    yaml, page = YAML(), "tutorial-s3.md"
    params = yaml.load(ROOT / "params.yaml")
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    for section, values in ((key, value) for block in blocks for key, value in yaml.load(block).items()):
        assert set(values) <= set(params[section])
        params[section].update(values)
    yaml.dump(params, tmp_path / "params.yaml")
    assert config.load(tmp_path / "params.yaml").dataset.name == "image_folder"


def test_every_source_file_that_a_page_names_exists() -> None:
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        for path in re.findall(r"`((?:src|flows|tasks|tests|params|infra|requirements)/[\w./-]*)`", text):
            assert (ROOT / path).exists(), (page, path)


class Requests(HTMLParser):
    """The addresses that a browser requests for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag loads; links that a reader follows are not loaded."""
        self.urls += [
            value or "" for name, value in attrs if name == "src" or (name == "href" and tag in {"link", "use"})
        ]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; warnings such as broken links are errors."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    build(load_config(str(ROOT / "infra" / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


def test_every_page_is_in_the_navigation(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    menu = home[home.index('<nav class="md-nav md-nav--primary') :]
    linked = {link.removesuffix(".html") + ".md" for link in re.findall(r'href="([^"#:]+\.html)"', menu)}
    assert set(PAGES) <= linked | {"index.md"}


def test_the_site_requests_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        requests = Requests()
        requests.feed(page.read_text(encoding="utf-8"))
        assert requests.urls
        assert not [url for url in requests.urls if re.match(r"(?:\w+:)?//", url)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)[\s\"']*(?:\w+:)?//", style.read_text(encoding="utf-8")), style


@pytest.mark.parametrize("page", measurements.PAGES, ids=lambda page: page.name)
def test_the_measurements_are_those_of_the_benchmarks(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert measurements.documented(text) == text


def test_the_wheel_has_every_page() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    included = {Path(name) for name in built["targets"]["wheel"]["force-include"]}
    parts = {page: {Path("docs", page), *Path("docs", page).parents} for page in PAGES}
    assert [page for page, above in parts.items() if not above & included] == []


def test_a_page_written_by_hand_stays_short() -> None:
    by_hand = set(PAGES) - {"changelog.md", *(f"reference/{name}.md" for name in LISTS)}
    limits = {DOCS / page: 900 for page in by_hand}
    limits |= {ROOT / ".github/CONTRIBUTING.md": 900, ROOT / "README.md": 1000}  # with the output of a run
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in limits}
    assert {page: count for page, count in words.items() if count > limits[page]} == {}


def test_the_changelog_says_what_the_first_release_is_and_not_how_it_came_about() -> None:
    text = (DOCS / "changelog.md").read_text(encoding="utf-8")
    first = text[text.index("## 0.1.0") :]
    assert len(first.splitlines()) <= 30, "what changed before 0.1.0 was released stays in git"


def test_the_notice_lists_what_the_files_that_follow_another_program_say() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^  (\S+\.(?:py|yaml)): (.+)$", notice, re.MULTILINE))
    folders = [ROOT / folder for folder in ("src", "tests", "benchmarks")]
    files = [file for folder in folders for ending in ("py", "yaml") for file in folder.rglob(f"*.{ending}")]
    origins = {
        str(file.relative_to(ROOT)): " ".join(re.split(r"\n# | ", text[1]))
        for file in files
        if (text := re.match(r"# Origin: (.*?)\.\n(?=\"\"\"|#\n)", file.read_text(encoding="utf-8"), re.DOTALL))
    }
    assert {file: text.rpartition(": ")[2] for file, text in origins.items()} == listed
    assert all(f"https://{url}" in notice for url in re.findall(r"github\.com/\S+", " ".join(origins.values())))


def test_every_action_of_the_workflows_is_pinned_by_its_digest() -> None:
    for file in (ROOT / ".github" / "workflows").iterdir():
        used = re.findall(r"uses: (\S+)", file.read_text(encoding="utf-8"))
        assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", each) for each in used), file


def test_the_list_of_packages_has_every_package_of_each_layer() -> None:
    lines = (DOCS / "reference" / "packages.md").read_text(encoding="utf-8").splitlines()
    layer, named = "", dict[str, set[str]]()
    for row in (line.split("|")[1:-1] for line in lines if line.startswith("|") and "`" in line):
        layer = next(iter(quoted(row[0])), layer)
        named.setdefault(layer, set()).update(quoted(row[1]))
    for layer, packages in named.items():
        folder = ROOT / "src" / "perennial" / layer
        assert {path.parent.name for path in folder.glob("*/__init__.py")} <= packages
        assert all((folder / name).is_dir() or (folder / f"{name}.py").is_file() for name in packages)
