"""Hosts for a test: `@pytest.mark.lab(2, docker=True)` and the fixture `lab`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.lab import Lab
from tests.lab.services import find_hindrance

pytest.register_assert_rewrite("tests.lab.broken", "tests.lab.cluster")

MakeLab = Callable[..., Lab]
DEFAULT_NUM_HOSTS = 2


@pytest.fixture(scope="module")
def labs() -> Iterator[MakeLab]:
    """Hand out labs that live as long as the module, one for each set of arguments of `Lab.up`."""
    made: dict[str, Lab] = {}

    def find_or_make(num_hosts: int = DEFAULT_NUM_HOSTS, **wishes: Any) -> Lab:
        if hindrance := find_hindrance(podman=bool(wishes.get("podman"))):
            if os.environ.get("AORTA_REQUIRE_LAB") == "1":
                pytest.fail(f"AORTA_REQUIRE_LAB=1, and {hindrance}", pytrace=False)
            pytest.skip(hindrance)
        key = repr((num_hosts, sorted(wishes.items())))
        if key not in made or not made[key].is_up:
            made[key] = Lab.up(num_hosts, **wishes)
        return made[key]

    yield find_or_make
    for lab in made.values():
        lab.down()


@pytest.fixture
def lab(request: pytest.FixtureRequest, labs: MakeLab) -> Iterator[Lab]:
    """Lend the lab that the test's marker `lab` describes; faults that the test leaves behind are undone."""
    mark = request.node.get_closest_marker("lab")
    if mark is None:
        pytest.fail("the fixture `lab` needs the marker: @pytest.mark.lab(2, docker=True)", pytrace=False)
    lent = labs(*mark.args, **mark.kwargs)
    yield lent
    try:
        lent.heal()
    except BaseException:
        lent.down()  # the next test gets another one
        raise


def python_folders() -> list[Path]:
    """What has to be bound so that this Python, its packages and this checkout are seen in hosts, wherever they lie."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2]}
    return sorted(folder for folder in folders if folder not in {Path("/"), Path("/usr")})
