"""The Run Deck of a session: written beside the HTML report, linked from it, drawn again from the stored run."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.suite.conftest import Rig

FOLDER = "aorta_single_html"


def deck(path: Path) -> dict[str, object]:
    document: dict[str, object] = json.loads((path / "aorta_run_deck.json").read_text("utf-8"))
    return document


def test_a_session_writes_its_deck_and_links_it(rig: Rig) -> None:
    rig.configure()
    output = rig.run(code=0)
    page = rig.reports / FOLDER / "aorta_run_deck.html"
    assert f"Run Deck: {page}" in output
    report = (rig.reports / "aorta_single.html").read_text("utf-8")
    assert f'<a href="{FOLDER}/aorta_run_deck.html">Aorta Run Deck</a>' in report
    assert f'<a href="{FOLDER}/aorta_run_deck.json">' in report
    html = page.read_text("utf-8")
    assert '<a href="../aorta_single.html">' in html
    assert '<a href="../aorta_single.log">' in html
    assert deck(page.parent)["overall_status"] == "pass"

    shown = rig.aorta("runs", "show", "last", "--html", code=0)
    assert str(rig.folder / "aorta_run_deck.html") in shown
    again = deck(rig.folder)
    changing = {"generated_at", "provenance", "run_card_display"}
    assert {k: v for k, v in again.items() if k not in changing} == {
        k: v for k, v in deck(page.parent).items() if k not in changing
    }
    links = ("pytest_html_href", "log_file_href")
    assert [again["provenance"][name] for name in links] == [  # type: ignore[index]
        os.path.relpath(rig.reports / f"aorta_single.{kind}", rig.folder) for kind in ("html", "log")
    ]
    rig.aorta("runs", "show", "last", "--html", "--output", "mine/deck.html", code=0)
    assert {path.name for path in (rig.path / "mine").iterdir()} == {"deck.html", "deck.json", "deck.css"}
    assert '<link rel="stylesheet" href="deck.css"/>' in (rig.path / "mine" / "deck.html").read_text("utf-8")
    (rig.path / "other.json").write_text("{}")
    assert "other.json" in rig.aorta("runs", "show", "last", "--html", "--output", "other.html", code=2)
    assert (rig.path / "other.json").read_text() == "{}"

    rig.pytest("--aorta-run=last", f"--aorta-thresholds={_limits(rig, 0.001)}", code=1)
    rejudged = deck(rig.reports / "aorta_single-rejudged_html")
    assert rejudged["overall_status"] == "fail"
    assert rejudged["provenance"]["config_file"] == str(rig.path / "config.json")  # type: ignore[index]
    assert rejudged["provenance"]["judged_by"] == str(rig.path / "strict.json")  # type: ignore[index]
    assert deck(page.parent)["overall_status"] == "pass"
    (written,) = (rig.folder / "judgements").glob("*/verdict.json")
    assert json.loads(written.read_text("utf-8"))["verdict"] == "failed"
    assert json.loads((rig.folder / "verdict.json").read_text("utf-8"))["verdict"] == "passed"
    assert 'name="aorta_single-rejudged-gates"' in (rig.reports / "aorta_single-rejudged-gates.xml").read_text("utf-8")

    (rig.reports / "aorta_single.html").write_text("the report of another run")
    rig.aorta("runs", "show", "last", "--html", code=0)
    assert deck(rig.folder)["provenance"]["pytest_html_href"] is None  # type: ignore[index]


def test_no_html_no_deck(rig: Rig) -> None:
    rig.configure()
    assert "Run Deck" not in rig.run("--aorta-no-reports", code=0)
    assert list(rig.path.rglob("aorta_run_deck.*")) == []

    record = rig.record()
    marks = "\x1b[31m\u202e"
    os.mkfifo(rig.path / "pipe")
    record |= {"reports": {"HTML report": str(rig.path / "pipe")}, "created": f"{marks}20", "plan": [f"a{marks}"]}
    record["stages"] = {f"a{marks}": {"name": f"a{marks}", "outcome": "failed", "reason": f"b{marks}"}}
    (rig.folder / "run.json").write_text(json.dumps(record), "utf-8")
    metric = {"value": 1.0, "unit": f"ms{marks}", "source": f"s{marks}", "why": "", "per_rank": []}
    (rig.folder / "metrics.json").write_text(json.dumps({"metrics": {f"m{marks}": metric}}), "utf-8")
    shown = rig.aorta("runs", "show", str(rig.folder), code=0) + rig.aorta("runs", code=0)
    assert shown.count("\ufffd") >= 7
    assert [mark for mark in "\x1b\u202e" if mark in shown] == []
    assert "aorta_run_deck.html" in rig.aorta("runs", "show", str(rig.folder), "--html", code=0)


def test_a_failed_run_has_its_deck_and_a_failed_drawing_changes_nothing(rig: Rig) -> None:
    rig.configure("--no-such-option")
    output = rig.run(code=1)
    assert "Run Deck: " in output
    assert deck(rig.reports / FOLDER)["overall_status"] == "na"
    rig.configure()
    in_the_way = rig.reports / FOLDER / "aorta_run_deck.css"
    in_the_way.unlink()
    (in_the_way / "full").mkdir(parents=True)
    output = rig.run(code=0)
    assert "note: deck could not be drawn: " in output
    assert "Run Deck: " not in output
    report = (rig.reports / "aorta_single.html").read_text("utf-8")
    assert "deck could not be drawn: " in report
    assert "Aorta Run Deck" not in report


def _limits(rig: Rig, most_ms: float) -> Path:
    path = rig.path / "strict.json"
    path.write_text(json.dumps({"expected_results": {"max_avg_iteration_ms": most_ms}}), "utf-8")
    return path
