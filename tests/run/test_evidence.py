"""Evidence: what `evidence` in the configuration makes of a check."""

from __future__ import annotations

import pytest

from pytest_aorta.checks import Check
from pytest_aorta.run.evidence import weigh

CHECK = Check(label="[evidence] (host=a, check=kernel_log)", state="failed", reason="a: GPU reset")


@pytest.mark.parametrize(
    ("how", "state", "subtest"),
    [("fail", "failed", True), ("warn", "warned", False), ("off", "not_judged", False), (None, "failed", True)],
)
def test_how_a_check_counts(how: str | None, state: str, subtest: bool) -> None:
    (weighed,) = weigh([CHECK], {"kernel_log": how} if how else {})

    assert (weighed.state, weighed.subtest) == (state, subtest)


def test_other_checks_are_left_alone() -> None:
    threshold = CHECK.model_copy(update={"label": "[threshold] (metric=kernel_log)"})

    assert list(weigh([threshold], {"kernel_log": "off"})) == [threshold]
