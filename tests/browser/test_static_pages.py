"""Every page, read as text: nothing that Jenkins blocks, nothing from elsewhere, no text that became markup."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from tests.browser.reports import PLANT, Site

LOADING = {
    ("link", "href"), ("script", "src"), ("img", "src"), ("source", "src"), ("video", "src"), ("iframe", "src"),
    ("object", "data"), ("embed", "src"), ("image", "href"), ("use", "href"), ("form", "action"), ("img", "srcset"),
}  # fmt: skip
STARTS = re.compile(r"<(?:script>alert|img src=x|b style)")


@dataclass
class Page(HTMLParser):
    """What of a page matters: its elements with their attributes, its text outside of scripts and styles."""

    text: str = ""
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    css: str = ""
    blob: str = ""
    _inside: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.blob = found.get("data-jsonblob", self.blob)
        self.elements.append((tag, found))
        if tag in {"script", "style"}:
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data
        elif self._inside[-1] == "style":
            self.css += data


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text("utf-8"))
    page.close()
    return page


def test_there_are_pages_of_every_kind(site: Site) -> None:
    names = {str(path.relative_to(site.root)) for path in site.pages}
    for run in ("gates", "rank", "record"):
        assert f"{run}/aorta_single.html" in names
        assert f"{run}/aorta_single_html/aorta_run_deck.html" in names
        assert f"{run}/aorta_single_html/test_run_benchmark.html" in names
    assert "planted/aorta_single_html/test_run_benchmark.html" in names


def test_no_page_holds_what_jenkins_blocks(site: Site) -> None:
    found = []
    for path in site.pages:
        page = read(path)
        for tag, attributes in page.elements:
            found += [(path.name, tag, name) for name in attributes if name == "style" or name.startswith("on")]
            found += [(path.name, tag, "data:") for value in attributes.values() if value.startswith("data:")]
            found += [
                (path.name, tag, "") for name in (tag,) if name in {"iframe", "object", "embed", "base", "noscript"}
            ]
        assert page.css
        assert "url(" not in page.css
        assert "@import" not in page.css
        assert [tag for tag, _ in page.elements].count("style") == 1
        assert [tag for tag, _ in page.elements].count("script") <= 1
    assert found == []


def test_nothing_is_loaded_from_elsewhere_and_links_go_to_pages_and_the_web(site: Site) -> None:
    for path in site.pages:
        for tag, attributes in read(path).elements:
            for name, value in attributes.items():
                url = urlsplit(value)
                if (tag, name) in LOADING:
                    assert (url.scheme, url.netloc) == ("", ""), (path.name, tag, value)
                    assert not value or (path.parent / url.path).is_file(), (path.name, value)
                if (tag, name) == ("a", "href"):
                    assert url.scheme in {"", "https"}, (path.name, value)
                    assert url.scheme or not url.path or (path.parent / url.path).is_file(), (path.name, value)


def test_planted_markup_is_text_everywhere(site: Site) -> None:
    for path in site.pages:
        raw = path.read_text("utf-8")
        assert not STARTS.search(raw), path
        page = read(path)
        assert ("img", {"src": "x", "onerror": "alert(1)"}) not in page.elements
        if page.blob:
            # pytest-html's script sets these texts as HTML.
            assert not any(STARTS.search(text) for text in texts_of(json.loads(page.blob))), path
    assert read(site.root / "planted" / "aorta_single.html").text.count(PLANT) > 10
    assert PLANT in read(site.root / "planted" / "aorta_single_html" / "test_run_benchmark.html").text
    assert PLANT in read(site.root / "rank" / "aorta_single_html" / "test_run_benchmark.html").text


def test_the_style_sheet_stands_twice_and_alike(site: Site) -> None:
    for path in site.pages:
        page = read(path)
        sheets = [attributes["href"] for tag, attributes in page.elements if tag == "link"]
        assert len(sheets) == 1, path
        assert (path.parent / sheets[0]).read_text("utf-8").strip() == page.css.strip()


def test_the_environment_is_one_table_and_links_copies_of_the_inputs(site: Site) -> None:
    report = site.root / "gates" / "aorta_single.html"
    page = read(report)
    shown = [attributes for tag, attributes in page.elements if tag == "table" and "hidden" not in attributes]
    assert sum("environment" in f"{attributes.get('class')} {attributes.get('id')}" for attributes in shown) == 1
    assert page.text.count("Platform") == 1
    assert json.loads((report.parent / "aorta_single_html" / "config_config.json").read_text("utf-8"))["workload"]
    hrefs = [attributes.get("href", "") for _, attributes in page.elements]
    assert "aorta_single_html/config_config.json" in hrefs
    assert "aorta_single_html/thresholds_limits_threshold.json" in hrefs
    assert "aorta_single_html/aorta_run_deck.html" in hrefs


def texts_of(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for child in value.values() for text in texts_of(child)]
    return [text for child in value for text in texts_of(child)] if isinstance(value, list) else []
