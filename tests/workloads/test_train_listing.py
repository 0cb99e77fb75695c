from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from aorta_train.listing import table
from aorta_train.loading import SECTIONS


def test_every_option_is_listed_with_its_sentence() -> None:
    lines = {line.split("`")[1]: line for line in table().splitlines() if line.startswith("| `")}
    assert set(lines) == {f"{section}.{knob.name}" for section, kind in SECTIONS.items() for knob in fields(kind)}
    assert (
        lines["training.batch_size"]
        == "| `training.batch_size` | integer ≥ 1 | `8` | Samples a rank works on at once. |"
    )
    assert lines["fsdp.forward_prefetch"].endswith("Mode fsdp only. On cuda, rocm only. |")


def test_the_documentation_holds_the_whole_list(tree: Path) -> None:
    documentation = tree.parent / "docs" / "workload.md"
    assert table().strip() in documentation.read_text(encoding="utf-8"), (
        "run train.py --list-options into docs/workload.md"
    )
