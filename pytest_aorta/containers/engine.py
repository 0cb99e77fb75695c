"""Engine: what starts the containers that a run's processes live in, and takes them away again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pytest_aorta.containers.lifetime import Found
from pytest_aorta.containers.outcome import Outcome
from pytest_aorta.containers.spec import Spec
from pytest_aorta.fleet.fleet import Fleet


class Engine(Protocol):
    """One way of running things on a host: inside a container, or without one.

    An engine is made for one run. It keeps what `launch` started, so that `remove` needs nothing and can be called at
    any time, also after a launch that failed half-way. Whatever it starts is told to the host's node program as an
    undoing (`undo`), so that it is removed when the run or the link dies.
    """

    @property
    def name(self) -> str:
        """The runtime's name, as in `container.runtime.name`."""
        ...

    def launch(self, fleet: Fleet, specs: Mapping[str, Spec]) -> Mapping[str, str]:
        """Bring up the container on every host, or find it running, by the lifetime.

        Returns:
            One sentence a host on what is there: name, image and its digest.

        Raises:
            ContainerError: on some hosts it is not there; what was started on the others is removed.
        """
        ...

    def otherwise(self) -> Mapping[str, str]:
        """Give the hosts whose container was found there and is of another image than wanted, in words."""
        ...

    def argv(self, host: str, argv: Sequence[str]) -> list[str]:
        """Give the argument list that, started on the host, runs `argv` inside, its input and output connected."""
        ...

    def look(self, hosts: Iterable[str]) -> Outcome[Found | None]:
        """Look at the containers of hosts that `launch` has brought up; None is sure that one is gone."""
        ...

    def rouse(self, hosts: Iterable[str]) -> None:
        """Have the containers of hosts go on should somebody have paused them: else nothing inside can be ended.

        One that we found running and never start is left alone.
        """
        ...

    def revive(self, hosts: Iterable[str]) -> Mapping[str, str]:
        """Start what `launch` made once more on hosts where it was ended; gives why not, where it cannot be."""
        ...

    def remove(self) -> None:
        """Remove what `launch` started, unless the lifetime keeps it; harmless when called again.

        Raises:
            ContainerError: a container is still there; the hosts are named.
        """
        ...
