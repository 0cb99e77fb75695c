"""Significance: whether a number stands out from chance, and from the others."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from statistics import median

MAD_SCALE = 1.4826  # makes the median absolute deviation of normal numbers their standard deviation


def binomial_tail(num_hits: int, num_trials: int, share: Fraction) -> float:
    """Give the chance of `num_hits` or more in `num_trials`, each a hit with probability `share`; exact integers."""
    if num_hits <= 0:
        return 1.0
    if num_hits > num_trials or not share:
        return 0.0
    hit, miss, whole = share.numerator, share.denominator - share.numerator, share.denominator
    if not miss:
        return 1.0
    term = hit**num_hits * miss ** (num_trials - num_hits)
    for step in range(num_hits):
        term = term * (num_trials - step) // (step + 1)
    tail = 0
    for num in range(num_hits, num_trials + 1):
        tail += term
        term = term * (num_trials - num) * hit // ((num + 1) * miss)
    return float(Fraction(tail, whole**num_trials))


def stands_out(value: float, others: Sequence[float], num_deviations: float) -> bool:
    """Tell whether a value is more than so many scaled median absolute deviations above the median of the others."""
    middle = median(others)
    return value > middle + num_deviations * MAD_SCALE * median(abs(other - middle) for other in others)
