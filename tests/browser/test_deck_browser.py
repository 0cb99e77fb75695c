"""The Run Deck in Chromium: it fits the window, at any number of ranks, whatever words it is given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.reporting.deck import build_deck
from pytest_aorta.reporting.deck_document import DeckFailure
from pytest_aorta.reporting.deck_page import DeckPlace, render_deck
from pytest_aorta.run.deck import draw, facts_of
from tests.browser.server import serve
from tests.reporting.deck_runs import LABELS, make_run

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--virtual-time-budget=5000",
    "--dump-dom",
)  # fmt: skip
WIDTH = 1280
# A page of the same origin looks at the deck, which has no script of its own.
LOOKING = """<!DOCTYPE html><title>looking</title>
<iframe id="deck" src="deck.html" width="{width}" height="1700" style="border:0"></iframe>
<script>
deck.onload = () => {{
  const root = deck.contentDocument.documentElement;
  document.title = "wide " + root.scrollWidth + " of " + root.clientWidth + "; high " + root.scrollHeight;
}};
</script>"""
IS_WANTED = os.environ.get("AORTA_REQUIRE_LAB") == "1"
pytestmark = pytest.mark.skipif(
    not BROWSER and not IS_WANTED, reason="there is no Chromium here; apt-get install chromium"
)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serve(tmp_path, as_jenkins=False) as served:
        yield served


def look(tmp_path: Path, address: str, width: int = WIDTH) -> tuple[int, int, int]:
    """Give how wide the page is, how wide its window, and how high it is."""
    (tmp_path / "looking.html").write_text(LOOKING.format(width=width), "utf-8")
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"{address}/looking.html"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"wide (\d+) of (\d+); high (\d+)", done.stdout)
    assert found is not None, done.stdout
    wide, window, high = map(int, found.groups())
    return wide, window, high


@pytest.mark.parametrize("ranks", [2, 64, 1024])
@pytest.mark.parametrize("state", ["pass", "fail"])
def test_nothing_scrolls_sideways(tmp_path: Path, address: str, state: Any, ranks: int) -> None:
    run = make_run(tmp_path, ranks=ranks, state=state)
    assert draw(run.record, run.folder, DeckPlace(tmp_path / "deck.html", LABELS)) == ""
    wide, window, high = look(tmp_path, address)
    assert window <= WIDTH
    assert wide <= window
    assert 1000 < high < 8000


def test_long_words_are_broken(tmp_path: Path, address: str) -> None:
    long = "x" * 300
    run = make_run(tmp_path, ranks=16, state="fail")
    facts = facts_of(run.record, run.folder, DeckPlace(tmp_path / "deck.html", LABELS))
    failure = DeckFailure(stage="test_run_benchmark", what=long, host=long, rank=1, reason=long, next_step=long)
    hosts = (f"{long}1", f"{long}2")
    facts = replace(facts, cell_id=long, workload=long, image=long, hosts=hosts, failures=(failure,), rccl_branch=long)
    (tmp_path / "deck.html").write_text(render_deck(build_deck(facts), name="deck"), "utf-8")
    wide, window, _ = look(tmp_path, address)
    assert wide <= window
