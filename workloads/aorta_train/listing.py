"""Every option as a table: the sentences stand under the fields in `options.py`, and are read from there."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from types import ModuleType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from aorta_train import options as options_module
from aorta_train.knob import DEVICES, MODES, Limits
from aorta_train.loading import SECTIONS


def table() -> str:
    """Give a Markdown table of all options, a section after the other."""
    sentences = _sentences(options_module)
    lines: list[str] = []
    for section, kind in SECTIONS.items():
        lines += [
            "",
            f"### {section}",
            "",
            sentences[kind.__name__, ""],
            "",
            "| option | values | default | meaning |",
            "|---|---|---|---|",
        ]
        hints = get_type_hints(kind)
        for knob in fields(kind):
            limits = knob.metadata["limits"]
            meaning = " ".join([sentences[kind.__name__, knob.name], *_where(limits)])
            cells = [f"`{section}.{knob.name}`", _values(hints[knob.name], limits), _default(knob), meaning]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines[1:]) + "\n"


def _sentences(module: ModuleType) -> dict[tuple[str, str], str]:
    """Read the docstrings of classes (field "") and the texts that follow their fields."""
    found: dict[tuple[str, str], str] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ClassDef):
            found[node.name, ""] = ast.get_docstring(node) or ""
            found.update({(node.name, name): text for name, text in _fields_with_text(node)})
    return found


def _fields_with_text(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id, str(text.value.value)


def _values(hint: Any, limits: Limits) -> str:
    if get_origin(hint) in (types.UnionType, Union):
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(hint))
    if get_origin(hint) is tuple:
        name = "two numbers"
    else:
        plain = get_origin(hint) or hint
        name = {int: "integer", float: "number", bool: "`true`, `false`", str: "text", dict: "mapping"}[plain]
    bounds = [
        f"{sign} {bound:g}"
        for sign, bound in (("≥", limits.at_least), (">", limits.above), ("≤", limits.at_most), ("<", limits.below))
        if bound is not None
    ]
    return " ".join([name, ", ".join(bounds)]).strip()


def _default(knob: Field[Any]) -> str:
    if knob.default is MISSING:
        return "`{}`"
    value = knob.default
    if isinstance(value, bool) or value is None:
        return f"`{'null' if value is None else str(value).lower()}`"
    return f"`{list(value)}`" if isinstance(value, tuple) else f"`{value}`"


def _where(limits: Limits) -> Iterator[str]:
    if limits.modes != MODES:
        yield f"Mode {', '.join(limits.modes)} only."
    if limits.devices != DEVICES:
        yield f"On {', '.join(limits.devices)} only."
