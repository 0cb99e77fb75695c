"""Lateness metrics: what the ranks' collectives say together, under the names of metrics.json."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from pytest_aorta.trace.lateness import Lateness, RankLateness
from pytest_aorta.trace.links import SYMMETRIC
from pytest_aorta.trace.metrics import Quantity

MIN_BYTES = 1 << 20
"""Of a smaller collective the latency is measured, not the bandwidth."""

NOT_ASKED = "the collectives of the ranks were not compared"
_NO_TRANSFER = "no matched collective transferred anything"
_NO_KERNEL = "no two ranks ran the same kernel beside no communication"

_OF_RANK: dict[str, tuple[str, Callable[[RankLateness], float | None], bool, str]] = {
    # name: unit, value of a rank, whether the largest counts and not the mean, why there is none
    "hidden_transfer_ratio": ("", lambda rank: rank.hidden_transfer_ratio, False, _NO_TRANSFER),
    "exposed_transfer_ms": ("ms", lambda rank: rank.exposed_transfer_ms, False, _NO_TRANSFER),
    "exposed_wait_ms": ("ms", lambda rank: rank.exposed_wait_ms, False, _NO_TRANSFER),
    "caused_delay_ms_per_step": ("ms", lambda rank: rank.caused_delay_ms_per_step, True, _NO_TRANSFER),
    "rank_imbalance_ratio": ("", lambda rank: rank.imbalance_ratio, True, _NO_TRANSFER),
    "kernel_slowdown_ratio": ("", lambda rank: rank.kernel_slowdown_ratio, True, _NO_KERNEL),
}


def lateness_quantities(found: Lateness | None) -> dict[str, Quantity]:
    """Give every metric across ranks; without a comparison each says why it was not measured."""
    lateness = found if found is not None else Lateness(why=NOT_ASKED)
    nothing_said = lateness.why if lateness.largest_candidate is None else ""
    quantities = {
        "matched_ratio": Quantity(
            lateness.matched_ratio, "", why=lateness.why if lateness.matched_ratio is None else ""
        )
    }
    for name, (unit, of_rank, takes_largest, reason) in _OF_RANK.items():
        per_rank = tuple((rank.rank, of_rank(rank)) for rank in lateness.ranks)
        values = [value for _, value in per_rank if value is not None]
        value = None if not values else max(values) if takes_largest else fmean(values)
        quantities[name] = Quantity(value, unit, per_rank, "" if values else nothing_said or reason)
    for operation in sorted(SYMMETRIC):
        quantities[f"{operation}_bus_bandwidth_gbps"] = _bandwidth(lateness, operation, nothing_said)
    return quantities


def _bandwidth(lateness: Lateness, operation: str, nothing_said: str) -> Quantity:
    """Give the slowest group's bandwidth at the largest size that was seen, which must be large enough to have one."""
    rows = [row for row in lateness.bandwidths if row.operation == operation and row.size_bytes >= MIN_BYTES]
    if not rows:
        why = nothing_said or f"no {operation} of 1 MiB or more without computation beside it was matched between ranks"
        return Quantity(None, "GB/s", why=why)
    largest_bytes = max(row.size_bytes for row in rows)
    return Quantity(min(row.gbps for row in rows if row.size_bytes == largest_bytes), "GB/s")
