"""The file that pytest-html writes, finished: styled by a file beside it as well, and without what has no use in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

_STYLE = re.compile(r"\s*<style[^>]*>(?P<css>.*?)</style>", re.DOTALL)
_HEAD_END = re.compile(r"\s*</head>")
_RELOAD = re.compile(r'<div class="summary__reload">.*?</div>\s*</div>\s*</div>', re.DOTALL)
_CHANGES = (
    (re.compile(r"<html>"), '<html lang="en">'),
    # Its script fills the environment table, so that it stays empty where scripts are blocked; ours stands above.
    (re.compile(r'<div id="environment-header">'), '<div id="environment-header" hidden="hidden">'),
    (re.compile(r'<table id="environment">'), '<table id="environment" hidden="hidden">'),
    (re.compile(r'(<div class="summary__data">)\s*<h2>Summary</h2>'), r"\1"),
    (re.compile(r'<p class="run-count">[^<]*</p>'), ""),  # it leaves out what was skipped
    (_RELOAD, ""),
    # It ends each of the counts with a comma, the last one too.
    (re.compile(r'(<span class="\w+">\d+ [\w ]+),</span>'), r"\1</span>"),
)
_VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1"/>'


@dataclass(frozen=True, slots=True)
class Finished:
    """A page, and the style sheet that it links and holds."""

    page: str
    css: str


def finish(page: str, css: str, css_href: str, *, other_css: str = "") -> Finished:
    """Give pytest-html's page with one style sheet, linked and once more inside: that plugin's and, below it, `css`.

    Jenkins lets the file act, a mailed copy has the block. `other_css` is that plugin's where the page only links it.
    """
    inside = _STYLE.search(page)
    sheet = f"{inside['css'] if inside is not None else other_css}\n{css}"
    link = f'<link rel="stylesheet" href="{escape(css_href)}"/>'
    head = f"\n    {_VIEWPORT}\n    {link}\n    <style>{sheet}</style>\n  </head>"
    page = _STYLE.sub("", page, count=1) if inside is not None else page
    # A function: in a template string the sheet's backslashes would be read as escapes.
    page = _HEAD_END.sub(lambda _: head, page, count=1)
    for pattern, replacement in _CHANGES:
        page = pattern.sub(replacement, page)
    return Finished(page, sheet)
