"""Ranks: where each of them runs, as torchrun numbers them, host by host."""

from __future__ import annotations

from collections.abc import Sequence


def place_of(rank: int, hosts: Sequence[str], ranks_per_host: int) -> tuple[str | None, int | None]:
    """Give the host and the local rank of a rank; of one that no host has, neither.

    With 0 ranks a host, nobody numbers them host by host: which host has one is known only where there is no other.
    """
    if not ranks_per_host:
        return (hosts[0] if len(hosts) == 1 else None), None
    node, local = divmod(rank, ranks_per_host)
    return (hosts[node], local) if 0 <= node < len(hosts) else (None, None)


def ranks_of(node: int, ranks_per_host: int) -> range:
    """Give the ranks on the host of that place, counted from 0."""
    return range(node * ranks_per_host, (node + 1) * ranks_per_host)
