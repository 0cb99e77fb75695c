"""Significance: whether a number stands out from chance, and from the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean, median, stdev

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


def mean_tail(values: Sequence[float], resolution: float) -> float:
    """Give the chance of so large a mean, if the values lay normally around 0: Student's t, one-sided.

    No value is taken to be finer than `resolution`, so that rounded ones do not seem to agree better than they can. 1
    where nothing can be said: fewer than three values, or a mean of 0 or less.
    """
    if len(values) < 3 or fmean(values) <= 0:
        return 1.0
    deviation = math.hypot(stdev(values), resolution)
    return t_tail(fmean(values) / deviation * math.sqrt(len(values)), len(values) - 1)


def t_tail(value: float, num_degrees: int) -> float:
    """Give the chance that Student's t with so many degrees of freedom is `value` or more.

    Source: the finite series for whole degrees of freedom, Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    angle = math.atan2(value, math.sqrt(num_degrees))
    is_odd = num_degrees % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0
    for power in range(is_odd, num_degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if is_odd else math.sin(angle) * total
    return max(0.0, (1 - inside) / 2)


def stands_out(value: float, others: Sequence[float], num_deviations: float) -> bool:
    """Tell whether a value is more than so many scaled median absolute deviations above the median of the others."""
    middle = median(others)
    return value > middle + num_deviations * MAD_SCALE * median(abs(other - middle) for other in others)
