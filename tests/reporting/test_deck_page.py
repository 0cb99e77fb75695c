"""The deck's page: whole without scripts and styles, nothing remote, every word from outside escaped."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_aorta.checks import Bound, Check
from pytest_aorta.metric import Metric, RankValue
from pytest_aorta.reporting.deck import build_deck
from pytest_aorta.reporting.deck_page import DeckPlace, render_deck
from pytest_aorta.run.deck import draw, facts_of
from tests.reporting.deck_runs import LABELS, broken_run, make_run
from tests.reporting.test_html_fragments import Page as StrictPage

NASTY = '<script>alert(1)</script><b style=x onload="y">&\'\x1b[31m\x00'
SECTIONS = ["run-card", "lifecycle", "gates", "cells", "ranks", "results"]


class Page(StrictPage):
    """A deck's page; its style sheet is no text."""

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            super().handle_data(data)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.attributes}

    def values(self, name: str) -> list[str]:
        return [value or "" for its, value in self.attributes if its == name]


def page_of(tmp_path: Path, run: Any) -> tuple[str, Page]:
    where = DeckPlace(
        tmp_path / "aorta_run_deck.html", LABELS, html=tmp_path / "aorta.html", log=tmp_path / "aorta.log"
    )
    assert draw(run.record, run.folder, where) == ""
    html = where.page.read_text("utf-8")
    return html, Page(html)


@pytest.mark.parametrize("state", ["pass", "fail", "record"])
def test_a_page_that_jenkins_can_serve(tmp_path: Path, state: Any) -> None:
    html, page = page_of(tmp_path, make_run(tmp_path, ranks=16, state=state))
    assert "script" not in page.tags
    assert not {"iframe", "object", "img", "noscript"} & set(page.tags)
    assert not {name for name in page.names if name == "style" or name.startswith("on")}
    assert "data:" not in html
    assert "url(" not in html
    links = page.values("href") + page.values("src")
    assert links == ["aorta_run_deck.css", "aorta.html", "aorta.log", "aorta_run_deck.json"]
    assert set(page.values("xmlns")) == {"http://www.w3.org/2000/svg"}
    css = (tmp_path / "aorta_run_deck.css").read_text("utf-8")
    assert css.strip() in html
    assert [name for name in page.values("id") if name in SECTIONS] == SECTIONS


@pytest.mark.parametrize(
    ("state", "badge"), [("pass", "PASS"), ("fail", "FAIL"), ("record", "RECORD"), ("broken", "N/A")]
)
def test_the_badge_and_the_verdict_stand_first(tmp_path: Path, state: Any, badge: str) -> None:
    run = broken_run(tmp_path) if state == "broken" else make_run(tmp_path, ranks=16, state=state)
    html, page = page_of(tmp_path, run)
    assert re.search(r'<span class="badge badge-[a-z]+">([A-Z/]+)</span>', html)[1] == badge  # type: ignore[index]
    head = page.text[: page.text.index("distributed benchmark summary") + 400]
    assert run.record.sentence in " ".join(head.split())


def test_what_a_reader_needs_stands_in_the_head(tmp_path: Path) -> None:
    html, _ = page_of(tmp_path, make_run(tmp_path, ranks=64, state="fail"))
    head = Page(html[html.index("<header") : html.index("</header>") + len("</header>")]).text
    assert "max_avg_iteration_ms 1,620.30 ms (limit ≤ 1,500.00 ms, 8.0 % over)" in head
    assert "host gpu-0004, rank 33 is late" in head
    assert "metrics.json" in head


def test_the_head_names_the_rank_whose_value_it_gives(tmp_path: Path) -> None:
    gates = [{"metric": "profiled_step_time_ms_max", "kind": "max", "value": 1.0, "over": "each"}]
    run = make_run(tmp_path, ranks=16, gates=gates, limits={"min_compute_ratio": 0.1})
    html, _ = page_of(tmp_path, run)
    per_rank = run.folder.read_metrics()["profiled_step_time_ms_max"].per_rank
    value, rank = max((one.value or 0.0, one.rank) for one in per_rank)
    assert rank > 0
    assert f"<strong>profiled_step_time_ms_max</strong> {value:.2f} ms" in html
    assert f"host <strong>gpu-000{rank // 8}</strong> rank <strong>{rank}</strong></dd>" in html


def test_the_words_of_the_matrix_are_explained_below_it(tmp_path: Path) -> None:
    _, page = page_of(tmp_path, make_run(tmp_path, ranks=16))
    assert "the last column stands for the metrics that no gate is about" in page.text


def test_cards_that_have_nothing_to_show_are_not_there(tmp_path: Path) -> None:
    _, page = page_of(tmp_path, broken_run(tmp_path))
    assert page.values("id") == ["next-steps", "run-card", "lifecycle", "environment"]
    _, page = page_of(tmp_path, make_run(tmp_path / "one", ranks=1))
    assert "ranks" not in page.values("id")


def test_markup_from_outside_is_text(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=16, state="fail")
    gate = Check(label=f"[threshold] (metric=x{NASTY})", state="failed", actual=2.0, unit=NASTY, reason=NASTY,
                 gate=Bound(kind="max", limit=1.0, unit=NASTY), next_step=NASTY)  # fmt: skip
    host = Check(label=f"[evidence] (host=h{NASTY}, check=kernel_log)", state="failed", host=f"h{NASTY}", reason=NASTY)
    run.stage("test_run_benchmark", "failed", NASTY, (host,), (NASTY, f"h: kernel log: {NASTY}"))
    run.stage("test_validate_thresholds", "failed", NASTY, (gate,))
    run.stage("test_parse_results", "passed", notes=(f"rank 9 is late (kind: {NASTY})",))
    metrics = run.folder.read_metrics()
    metrics[f"x{NASTY}"] = Metric(value=2.0, unit=NASTY, source=NASTY, per_rank=(RankValue(rank=0, value=2.0),))
    run.folder.write_metrics(metrics)
    run.folder.write_document(run.folder.facts("gpu-0000"), {f"kernel{NASTY}": NASTY})
    facts = facts_of(run.record, run.folder, DeckPlace(tmp_path / "deck.html", {**LABELS, "test_teardown": NASTY}))
    planted = replace(facts, hosts=(NASTY, f"{NASTY}2"), cell_id=NASTY, workload=NASTY, image=NASTY, mode=NASTY)
    html = render_deck(build_deck(planted))
    page = Page(html)
    assert "<script" not in html
    assert not {"script", "b"} & set(page.tags)
    assert not {name for name in page.names if name.startswith("on") or name == "style"}
    assert page.text.count("<script>alert(1)</script>") > 40
    assert not {"\x1b", "\x00"} & set(html)


def test_a_figure_says_in_words_what_it_shows(tmp_path: Path) -> None:
    html, page = page_of(tmp_path, make_run(tmp_path, ranks=16, state="fail"))
    assert page.tags.count("svg") == len([label for label in page.values("aria-label") if label])
    assert "rank 9, gpu-0001 #1" in html
    assert page.text.count("The same as a table") >= 4


def test_numbers_stand_with_their_units_and_ratios_are_fractions(tmp_path: Path) -> None:
    html, _ = page_of(tmp_path, make_run(tmp_path, ranks=16))
    results = Page(
        html[html.index('<section id="results"') : html.index("</section>", html.index('id="results"'))] + "</section>"
    )
    assert "%" not in results.text
    assert "Avg iter (ms)" in results.text


def test_a_large_run_is_aggregated(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=1024, state="fail")
    html, page = page_of(tmp_path, run)
    assert len(html) < 600_000
    assert len(page.tags) < 6_000
    assert "A point is 4 ranks" in page.text
    assert "distribution over ranks" in page.text


def test_ranks_with_holes_can_be_drawn(tmp_path: Path) -> None:
    """Ranks that were not measured, that nobody configured, or whose number is not known."""
    run = make_run(tmp_path, ranks=16)
    holes = {
        name: metric.model_copy(
            update={
                "per_rank": tuple(
                    RankValue(
                        rank={3: -1, 5: 10**12}.get(one.rank, one.rank), value=None if one.rank % 2 else one.value
                    )
                    for one in metric.per_rank
                    if one.rank != 7
                )
            }
        )
        for name, metric in run.folder.read_metrics().items()
    }
    run.folder.write_metrics(holes)
    html, page = page_of(tmp_path, run)
    assert "rank 1, gpu-0000 #1: not measured" in html
    assert "Ranks that belong to no configured host are not drawn: 1." in page.text
    run.folder.write_metrics({name: metric.model_copy(update={"value": None}) for name, metric in holes.items()})
    _, page = page_of(tmp_path, run)
    assert "—" in page.text


def test_ranks_that_nobody_placed_are_drawn_without_hosts(tmp_path: Path) -> None:
    own = {"command": ["./train"], "launcher": "none", "traces": "out/*"}
    html, page = page_of(tmp_path, make_run(tmp_path, ranks=16, state="fail", workload=own))
    ranks = html[html.index('<section id="ranks"') : html.index("</section>", html.index('<section id="ranks"'))]
    assert "rank 3, —: " in ranks
    assert "gpu-000" not in ranks
    assert "2 hosts · run" in page.text


def test_a_metric_has_one_colour_in_every_chart(tmp_path: Path) -> None:
    run = make_run(tmp_path, ranks=16)
    page = render_deck(build_deck(facts_of(run.record, run.folder, DeckPlace(tmp_path / "deck.html", LABELS))))
    charts = re.findall(r'<svg[^>]*aria-label="(?:Time \(|Share )[^"]*".*?</svg>', page, re.DOTALL)
    legend = re.compile(r'<rect [^>]*fill="(#\w+)"></rect><text [^>]*>(Compute|Comm time)</text>')
    found = [{name: colour for colour, name in legend.findall(chart)} for chart in charts]
    assert found[0].keys() == {"Compute", "Comm time"}
    assert found == [found[0], found[0]]
    assert len(set(found[0].values())) == 2
