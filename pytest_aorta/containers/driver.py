"""Driver: the few things that an engine does with containers, on many hosts at once; when is decided elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pytest_aorta.containers.lifetime import Found
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.containers.spec import Spec
from pytest_aorta.fleet.fleet import Fleet

PROBE_TIMEOUT_S = 30.0
LOGIN_TIMEOUT_S = 30.0
PULL_TIMEOUT_S = 600.0
CREATE_TIMEOUT_S = 120.0
START_TIMEOUT_S = 120.0
REMOVE_TIMEOUT_S = 30.0
SILENT_TIMEOUT_S = 5.0  # for an engine that did not do the last thing in time
LAST_LINES = 5


class Driver(Protocol):
    """Every method has its own deadline and gives every host's cause; nothing is raised for a host that fails.

    An engine that did not do a thing in time has `SILENT_TIMEOUT_S` for the next one, until it does something again.
    """

    def reach(self, fleet: Fleet) -> Outcome[tuple[str, ...]]:
        """Find out on every host of the fleet how its engine is spoken to; gives how its client is called there."""
        ...

    def find(self, names: Mapping[str, str]) -> Outcome[Found | None]:
        """Look for the container of a name, running or not; None is sure that there is none."""
        ...

    def inspect(self, ids: Mapping[str, str]) -> Outcome[Found | None]:
        """Look at a container by its id; None is sure that it is gone."""
        ...

    def has_image(self, images: Mapping[str, str]) -> Outcome[bool]:
        """Tell whether an image, by name or digest, is there."""
        ...

    def pull(self, specs: Mapping[str, Spec]) -> Outcome[None]:
        """Get the image; a login for it leaves nothing behind."""
        ...

    def create(self, specs: Mapping[str, Spec]) -> Outcome[str]:
        """Make the container, without starting it; gives its id."""
        ...

    def start(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Start what was made, or has stopped."""
        ...

    def stop(self, ids: Mapping[str, str]) -> Outcome[None]:
        """End the container's processes and keep it."""
        ...

    def go_on(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Have the processes of a container go on that somebody paused; one that is not paused fails."""
        ...

    def last_words(self, ids: Mapping[str, str]) -> Outcome[str]:
        """Give the last lines that the container's first process wrote."""
        ...

    def remove(self, ids: Mapping[str, str]) -> Outcome[None]:
        """Remove it with its processes; one that is gone already is removed."""
        ...

    def removal(self, host: str, container_id: str) -> list[str]:
        """Give the argument list that removes a container, for the host itself."""
        ...

    def inside(self, host: str, container_id: str, argv: Sequence[str]) -> list[str]:
        """Give the argument list that runs `argv` inside, for the host itself."""
        ...
