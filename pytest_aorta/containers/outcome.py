"""Outcome: what an engine got done on several hosts, and in a sentence each why not on the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pytest_aorta.errors import ContainerError
from pytest_aorta.hostlist import told

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """`good` by host; `failed` has the cause of every other host that was asked."""

    good: Mapping[str, T]
    failed: Mapping[str, str]

    def of(self, hosts: Iterable[str], what: str) -> dict[str, T]:
        """Give what all these hosts gave.

        Raises:
            ContainerError: one or more did not do it, or said nothing at all; all causes are named.
        """
        causes = {
            host: self.failed.get(host, "it gave no answer")
            for host in hosts
            if host in self.failed or host not in self.good
        }
        if causes:
            raise ContainerError(f"could not {what}: {by_host(causes)}", causes)
        return {host: self.good[host] for host in hosts}


def by_host(causes: Mapping[str, str]) -> str:
    """Write causes down; the same one is written once for all its hosts."""
    return told((host, f"{host}: {cause}") for host, cause in causes.items())
