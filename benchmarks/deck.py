"""What the Run Deck costs: seconds to draw it, bytes of page and JSON, and seconds that Chromium takes to show it.

    python benchmarks/deck.py [--ranks 4096] [--states pass fail record]

The limits are 2 s to draw, 1 MB of page and 2 s to show. Chromium's own start, measured on an empty page, is taken off.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from pytest_aorta.reporting.deck_page import DeckPlace
from pytest_aorta.run.deck import draw
from tests.reporting.deck_runs import LABELS, make_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",    "--disable-component-update", "--disable-sync", "--window-size=1280,1700",
)  # fmt: skip
TIMES = 3


def main() -> int:
    """Print a line a run; exit 1 when a limit is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 64, 4096])
    parser.add_argument("--states", nargs="+", default=["pass", "fail", "record"], choices=["pass", "fail", "record"])
    options = parser.parse_args()
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.html"
        empty.write_text("<!DOCTYPE html><title>empty</title>", "utf-8")
        start_s = shown_s(browser, empty) if browser else 0.0
        print(f"{'run':<14} {'draw s':>7} {'page KB':>8} {'JSON KB':>8} {'show s':>7}")
        for state in options.states:
            for ranks in options.ranks:
                where = Path(folder) / f"{state}-{ranks}"
                drawn_s, place = drawn(where, state, ranks)
                show_s = max(0.0, shown_s(browser, place.page) - start_s) if browser else 0.0
                page, data = place.page.stat().st_size, place.data.stat().st_size
                kept = kept and drawn_s <= 2 and page <= 1_000_000 and show_s <= 2
                shown = f"{show_s:7.2f}" if browser else "      —"
                print(
                    f"{state}-{ranks:<{13 - len(state)}} {drawn_s:7.2f} {page / 1000:8.0f} {data / 1000:8.0f} {shown}"
                )
                shutil.rmtree(where)
    return 0 if kept else 1


def drawn(where: Path, state: str, ranks: int) -> tuple[float, DeckPlace]:
    """Draw the deck of a made run; give the best time of three."""
    run = make_run(where, ranks=ranks, state=state)  # type: ignore[arg-type]
    place = DeckPlace(where / "aorta_run_deck.html", LABELS)
    best = float("inf")
    for _ in range(TIMES):
        begun = time.perf_counter()
        why = draw(run.record, run.folder, place)
        best = min(best, time.perf_counter() - begun)
        if why:
            sys.exit(why)
    return best, place


def shown_s(browser: str, page: Path) -> float:
    """Have the browser draw a page from its start to the picture; give the best time of three."""
    best = float("inf")
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as profile:
            picture = Path(profile) / "page.png"
            command = [
                browser,
                *FLAGS,
                f"--user-data-dir={profile}",
                f"--screenshot={picture}",
                page.absolute().as_uri(),
            ]
            begun = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            best = min(best, time.perf_counter() - begun)
    return best


if __name__ == "__main__":
    sys.exit(main())
