"""Pictures of the pages, for people to look at: the report of a passing, a failing and a recording run, and the deck.

    .venv/bin/python -m tests.browser.pictures [--into docs/images] [report-fail deck-pass-64 ...]

The report is that of real runs of two ranks (`host`: of a host without the GPUs that it should have), as Jenkins shows
it (no scripts) and opened from disk; the decks are drawn from made runs of 2, 64 and 4,096 ranks. It needs chromium.
With a palette of their 250 commonest colours (Pillow) the pictures are a third as large, and look the same.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from pytest_aorta.reporting.deck_page import DeckPlace
from pytest_aorta.run.deck import draw
from tests.browser.reports import make_shown_site
from tests.browser.server import serve
from tests.reporting.deck_runs import LABELS, State, make_run

STATES: tuple[State, ...] = ("pass", "fail", "record")
RANKS = (2, 64, 4096)
WIDTH = 1280


def main() -> int:
    """Take the pictures that are asked for; without a name all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of names, such as report or deck-fail-64")
    parser.add_argument("--into", type=Path, default=Path(__file__).parents[2] / "docs" / "images")
    options = parser.parse_args()
    wanted = tuple(options.names) or ("",)
    options.into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        reports = [f"report-{kind}-{how}" for kind in (*STATES, "host") for how in ("jenkins", "disk")]
        if chosen := [name for name in reports if name.startswith(wanted)]:
            site = make_shown_site(Path(folder) / "reports")
            with serve(site.root, as_jenkins=True) as address:
                for name in chosen:
                    _, kind, how = name.split("-")
                    path = f"{kind}/aorta_single.html"
                    shown = f"{address}/{path}" if how == "jenkins" else (site.root / path).as_uri()
                    take(browser, shown, options.into / f"{name}.png", WIDTH)
        for state in STATES:
            for ranks in RANKS:
                if (name := f"deck-{state}-{ranks}").startswith(wanted):
                    page = Path(folder) / name / "deck.html"
                    run = make_run(page.parent, ranks=ranks, state=state)
                    if why := draw(run.record, run.folder, DeckPlace(page, LABELS)):
                        sys.exit(f"{name}: {why}")
                    take(browser, page.as_uri(), options.into / f"{name}.png", WIDTH)
    return 0


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser of this machine."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        sys.exit("no browser here: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield browser
        browser.close()


def take(browser: Browser, address: str, picture: Path, width: int) -> None:
    """Take a picture of the whole page."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(address)
    page.screenshot(path=str(picture), full_page=True)
    page.close()
    print(picture)


if __name__ == "__main__":
    sys.exit(main())
