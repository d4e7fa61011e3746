"""The page of all runs, as text and in a real browser with the network off."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from reports.runs.conftest import CLASSES, Record
from support import chromium
from support.pages import Elements
from support.parameters import change_params
from typer.main import get_command

from perennial.base.config import Config
from perennial.base.errors import ConfigError, printable
from perennial.cli import app
from perennial.release.registry import run_records
from perennial.reports.runs import run_table, runs_page

browser = pytest.mark.skipif(
    chromium.PROGRAM is None, reason=f"needs Chromium: none of {', '.join(chromium.NAMES)} is on the PATH"
)
WIDTHS = (320, 390, 1280)
HEADS = "[...document.querySelectorAll('#runs thead th button')]"
SHOWN = "[...document.querySelectorAll('#runs tbody tr:not([hidden]) code')].map(each => each.textContent)"
BOXES = "[...document.querySelectorAll('#runs input')]"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(get_command(app), ["runs", *arguments])


def leave_runs(record: Record) -> None:
    """Four further runs: better, of another network, failed, and of an earlier version."""
    first = record(
        "night-2", params={"train": {"epochs": 9}, "dataset": {"name": "digits"}, "model": {"name": "lenet"}}
    )
    better = {name: {**each, "recall": 1.0} for name, each in first["scores"]["per_class"].items()}
    curve = [{"step": step, "accuracy": step / 400, "loss": 4 / step} for step in (100, 200, 300)]
    scores = {
        **first["scores"], "accuracy": 1.0, "low": 0.9, "high": 1.0, "per_class": better, "evaluations": curve,
    }  # fmt: skip
    record(
        "night-3", scores=scores, decision={"promote": True, "accuracy": 1.0}, started="2026-01-02T03:04:05Z"
    )
    record("night-4", outcome="Failed", scores=None, decision=None)
    record("night-5", scores=None)


def test_the_table_stands_in_the_page_without_its_script(config: Config, record: Record) -> None:
    leave_runs(record)
    done = invoke("--page")
    assert (done.exit_code, done.stdout) == (0, "runs.html: 5 runs\n")
    found = Elements(Path("runs.html").read_text(encoding="utf-8"))
    rows = {row[1]: row for row in found.rows if len(row) == 9}
    assert set(rows) == {"run", *(f"night-{number}" for number in range(1, 6))}
    assert rows["night-3"][2:8] == [
        "2026-01-02 03:04", "digits", "mnist_cnn", "100.0 %", "90.0 to 100.0", "passed",
    ]  # fmt: skip
    assert rows["night-4"][5:8] == ["-", "", "failed: failed"]
    assert found.seen["script"] == 2
    assert not {"img", "link", "iframe"} & found.seen.keys()


def test_each_decision_says_what_would_have_passed(config: Config, record: Record) -> None:
    known = {"opponent": "v0.0.3", "model": "m", "passed": False, "validation_gain": 0.01, "min_gain": 0.005,
             "examples": 1000, "won": 12, "lost": 5, "gain": 0.007, "p_value": 0.0717, "level": 0.1 / 365,
             "comparisons": 363, "promotions": 2}  # fmt: skip
    stopped = {name: known[name] for name in ("opponent", "model", "passed", "min_gain")}
    for run, compared in (
        ("night-2", known), ("night-3", {**known, "comparisons": 364, "level": None, "passed": True}),
        ("night-4", {**stopped, "validation_gain": -0.001}), ("night-5", {**known, "lost": 900}),
        ("night-6", {**known, "won": "many"}),
    ):  # fmt: skip
        record(run, decision={"promote": False, "accuracy": 0.9, "compared": compared})
    change_params(Path("params.yaml"), {"gate.false_share": 0.1})
    assert invoke("--page").exit_code == 0
    text = Path("runs.html").read_text(encoding="utf-8")
    table = re.search(r'id="decisions".*?(<table>.*?</table>)', text, re.DOTALL)[1]
    rows = {name: cells for name, *cells in Elements(table).rows}
    assert rows.pop("run")[-2:] == ["to pass", "decision"]
    assert rows == {
        "night-2": ["v0.0.3", "+1.00", "12", "5", "0.072", "0.00027", "24 won", "rejected"],
        "night-3": ["v0.0.3", "+1.00", "12", "5", "0.072", "", "10 won", "passed"],
        "night-4": ["v0.0.3", "-0.10", "", "", "", "", "+0.5 on validation", "rejected"],
        "night-5": ["v0.0.3", "+1.00", "12", "900", "0.072", "0.00027", "fewer lost", "rejected"],
    }
    assert "comparison 1 of 365, 0 passed before; it passes with a p-value up to 0.00027" in text


def test_a_page_goes_where_it_is_asked_to_and_replaces_only_a_page(config: Config) -> None:
    assert invoke("--page", "other.html", "--json").exit_code == 0
    assert invoke("--page", "other.html").exit_code == 0
    Path("notes.html").write_text("mine", encoding="utf-8")
    refused = invoke("--page", "notes.html")
    assert (refused.exit_code, Path("notes.html").read_text(encoding="utf-8")) == (2, "mine")
    with pytest.raises(ConfigError):
        runs_page.write(Path("params.yaml"), [], [], config.gate)


def test_three_hundred_runs_make_a_page_of_less_than_a_megabyte(config: Config) -> None:
    (found,) = run_records.listing(config, 1)
    records = [{**found, "run": f"night-{number}", "revision": f"{number:040x}"} for number in range(300)]
    runs_page.write(Path("runs.html"), run_table.rows(config, records), records, config.gate)
    assert Path("runs.html").stat().st_size < 1_000_000


@pytest.fixture
def page(config: Config, record: Record, tmp_path: Path) -> Iterator[chromium.Page]:
    """The page of five runs in a browser."""
    leave_runs(record)
    records = run_records.listing(config, 100)
    runs_page.write(Path("runs.html"), run_table.rows(config, records), records, config.gate)
    with chromium.opened(tmp_path / "runs.html", tmp_path / "profile") as shown:
        yield shown


@browser
def test_a_browser_shows_it_at_every_width_in_light_and_dark_and_asks_for_nothing(page: chromium.Page) -> None:
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            page.show(width=width, scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(chromium.CONTRAST) >= 4.5
    assert page.messages() == []
    assert page.requests() == [page.evaluate("document.location.href")]


@browser
def test_rows_are_sorted_by_a_click_and_filtered_by_words(page: chromium.Page) -> None:
    page.evaluate(f"{HEADS}.find(each => each.textContent === 'accuracy').click()")
    best = page.evaluate(SHOWN)
    assert best[0] == "night-3"
    assert best[-1] == "night-4"  # has none
    page.evaluate(f"{HEADS}.find(each => each.textContent === 'accuracy').click()")
    assert page.evaluate(SHOWN)[-2:] == ["night-3", "night-4"]
    page.evaluate("filter.value = 'lenet'; filter.dispatchEvent(new Event('input'))")
    assert page.evaluate(SHOWN) == ["night-2"]


@browser
def test_ticked_runs_have_their_curves_over_each_other_and_two_are_compared(page: chromium.Page) -> None:
    page.evaluate("document.getElementById('clear').click()")
    assert page.evaluate("document.getElementById('chosen').hidden")
    for run in ("night-1", "night-3", "night-2"):
        page.evaluate(f"{BOXES}.find(each => each.ariaLabel === '{run}').click()")
    assert page.evaluate("document.querySelectorAll('#chart path').length") == 3
    assert "perennial runs compare night-1 night-3" in page.evaluate("document.body.innerText")
    classes = page.evaluate("[...document.querySelectorAll('#classes th')].map(each => each.textContent)")
    assert sorted(classes) == sorted(map(printable, CLASSES))
    page.evaluate(f"{BOXES}.find(each => each.ariaLabel === 'night-3').click()")
    changed = page.evaluate("document.getElementById('changed').innerText")
    assert re.search(r"parameters\s+model\.name\s+mnist_cnn\s+lenet", changed)
    page.evaluate("document.querySelector('input[name=curve][value=\"2\"]').click()")
    assert page.evaluate("document.querySelectorAll('#chart path').length") == 2
