"""No container: processes run on the hosts themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pytest_aorta.containers.lifetime import Found
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.containers.spec import Spec
from pytest_aorta.fleet.fleet import Fleet


class Bare:
    """The engine of a configuration without `container`, or with the runtime `none`: starts and removes nothing."""

    name = "none"

    def launch(self, fleet: Fleet, specs: Mapping[str, Spec]) -> Mapping[str, str]:
        """Say for every host that there is no container."""
        return dict.fromkeys(fleet.hosts, "no container, processes run on the host itself")

    def otherwise(self) -> Mapping[str, str]:
        """Say that there is none."""
        return {}

    def argv(self, host: str, argv: Sequence[str]) -> list[str]:
        """Give the argument list as it is."""
        return list(argv)

    def look(self, hosts: Iterable[str]) -> Outcome[Found | None]:
        """Say nothing of any host: there is none."""
        return Outcome({}, {})

    def rouse(self, hosts: Iterable[str]) -> None:
        """Do nothing."""

    def revive(self, hosts: Iterable[str]) -> Mapping[str, str]:
        """Do nothing."""
        return {}

    def remove(self) -> None:
        """Do nothing."""
