"""The page of `dvc plots show`, made with the template and the configuration of the checkout."""

import subprocess
from pathlib import Path

import pytest
from support import chromium, forks

pytestmark = pytest.mark.slow
PLOT = """plots:
  - curve:
      x: step
      y:
        curve.csv: loss
"""
DRAWN = "document.querySelectorAll('.vega-embed canvas').length"


@pytest.fixture
def page(tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)

    def dvc(*arguments: str) -> None:
        subprocess.run([forks.python(), "-m", "dvc", *arguments], check=True, capture_output=True)

    dvc("init", "--no-scm", "--quiet")
    for name in ("config", "plots.html"):
        Path(".dvc", name).write_bytes((pytestconfig.rootpath / ".dvc" / name).read_bytes())
    dvc("config", "core.no_scm", "true")
    Path("curve.csv").write_text("step,loss\n0,1\n1,0.5\n")
    Path("dvc.yaml").write_text(PLOT)
    dvc("plots", "show")
    return Path("dvc_plots", "index.html")


def test_the_page_loads_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "vegaEmbed('#" in text
    assert "<script src" not in text


@pytest.mark.skipif(chromium.PROGRAM is None, reason="needs Chromium")
def test_the_page_draws_its_plots_without_a_network(page: Path, tmp_path: Path) -> None:
    with chromium.opened(page, tmp_path / "profile") as shown:
        shown.wait_for(f"{DRAWN} === 1")
        assert [address for address in shown.requests() if address.startswith("http")] == []
