"""StageSuite: the stage tests as a collector of their own, independent of paths, ini files and conftests."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import _pytest.main
import _pytest.mark
import pytest
from _pytest.fixtures import FuncFixtureInfo

from pytest_aorta.run.gating import Stage

TESTS = "pytest_aorta.suite.test_aorta"
OUR_FIXTURES = ("subtests", "aorta")
TRUSTED_MODULES = ("_pytest", "pytest_subtests", "pytest_aorta")


class StageSuite(pytest.Module):
    """The stage tests of one suite under the node id `aorta_single` or `aorta_distributed`."""

    stages: Sequence[Stage] = ()

    def _getobj(self) -> ModuleType:
        return importlib.import_module(TESTS)

    def collect(self) -> Iterator[StageItem]:
        """Give one item a stage, in the order of the table."""
        for stage in self.stages:
            function = getattr(self.obj, stage.test)
            fixtures = _own_fixtures(self, function)
            item: StageItem = StageItem.from_parent(self, name=stage.test, callobj=function, fixtureinfo=fixtures)
            item.stage = stage
            yield item


class StageItem(pytest.Function):
    """One stage test."""

    stage: Stage

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Say where it stands: under the suite's name, not in the file that happens to hold it."""
        return self.config.rootpath / self.nodeid.partition("::")[0], 0, self.name


def stage_suite(session: pytest.Session, name: str, stages: Sequence[Stage]) -> StageSuite:
    """Make the collector of a suite."""
    path = Path(str(importlib.import_module(TESTS).__file__))
    suite: StageSuite = StageSuite.from_parent(session, path=path, nodeid=name)
    suite.name = name
    suite.stages = stages
    # Whatever filters a project sets, a warning of ours or of a library never decides about a cluster.
    suite.add_marker(pytest.mark.filterwarnings("default"))
    return suite


def in_table_order(items: list[pytest.Item], stages: Sequence[Stage]) -> None:
    """Put the stage tests first and in the table's order, whatever another plugin made of it."""
    place = {stage.test: index for index, stage in enumerate(stages)}
    own = [item for item in items if isinstance(item, StageItem)]
    own.sort(key=lambda item: place[item.stage.test])
    items[:] = [*own, *(item for item in items if not isinstance(item, StageItem))]


def select_as_pytest_does(items: list[pytest.Item], config: pytest.Config) -> None:
    """Leave the items that --deselect, -k and -m select; pytest asks them of what conftests have left only."""
    _pytest.main.pytest_collection_modifyitems(items, config)
    _pytest.mark.pytest_collection_modifyitems(items, config)


def _own_fixtures(suite: StageSuite, function: Callable[..., object]) -> FuncFixtureInfo:
    """Say which fixtures a stage test takes: ours alone, none of a conftest, neither autouse ones nor namesakes."""
    # pytest has no public way to leave a project's fixtures out.
    manager: Any = suite.session._fixturemanager  # noqa: SLF001
    info: FuncFixtureInfo = manager.getfixtureinfo(suite, function, None)
    info.name2fixturedefs.clear()
    for name in OUR_FIXTURES:
        definitions = manager.getfixturedefs(name, suite) or ()
        info.name2fixturedefs[name] = [d for d in definitions if d.func.__module__.startswith(TRUSTED_MODULES)]
    info.names_closure[:] = OUR_FIXTURES
    return info
