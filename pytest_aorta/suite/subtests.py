"""Sub-tests: a stage's checks, each told to pytest under its published label."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from pytest_aorta.checks import Check

LABEL = re.compile(r"^\[(?P<about>[^]]*)\](?: \((?P<context>.*)\))?$")


class Plain(str):
    """A sub-test's value that pytest prints without quotes, as the published labels have it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def open_subtests(checks: Sequence[Check], subtests: pytest.Subtests) -> None:
    """Open a sub-test for each check that is one, and fail it as the check failed."""
    for check in checks:
        if not check.subtest:
            continue
        about, context = split_label(check.label)
        with subtests.test(about, **context):
            if check.failed:
                pytest.fail(check.reason, pytrace=False)


def split_label(label: str) -> tuple[str, dict[str, Plain]]:
    """Take a check's label apart: `[threshold] (metric=x)` is `threshold` and {metric: x}."""
    found = LABEL.match(label)
    if found is None:
        return label, {}
    pairs = (pair.partition("=") for pair in (found["context"] or "").split(", ") if pair)
    return found["about"], {name: Plain(value) for name, _, value in pairs}
