"""Intervals and tests of measurements: Student's t, and Holm's correction where tests are several.

A measurement is a task's (or a seed's); the intervals say how far the mean would move with other
tasks (or seeds), not with other networks where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from statistics import fmean

from scipy import stats

from impresslearn.errors import InputError

LEVEL = 0.95


@dataclass(frozen=True)
class PairedTest:
    """A paired t-test of two methods on the same tasks.

    difference: mean of first minus second; half_width: of its 95% interval; p_value: two-sided, 1
    where the two agree on every task; count: of pairs.
    """

    difference: float
    half_width: float
    p_value: float
    count: int


def half_width(values: Sequence[float]) -> float:
    """Half the 95% t interval of the mean. Raises InputError for fewer than two values."""
    if len(values) < 2:
        raise InputError(f"an interval needs two values or more, got {len(values)}")
    return float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stats.sem(values))


def paired_test(first: Sequence[float], second: Sequence[float]) -> PairedTest:
    """Whether two methods differ, from a value of each on the same tasks, in the same order.

    Raises InputError for fewer than two pairs, or values without a partner.
    """
    if len(first) != len(second):
        raise InputError(f"pairs need a value of each, got {len(first)} and {len(second)}")
    differences = [a - b for a, b in zip(first, second, strict=True)]
    width = half_width(differences)
    p_value = float(stats.ttest_rel(first, second).pvalue) if width else float("nan")
    if isnan(p_value):  # the same difference everywhere
        p_value = 0.0 if any(differences) else 1.0
    return PairedTest(fmean(differences), width, p_value, len(differences))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected by Holm's step-down method, in their order.

    Compared with 0.05, they keep the chance of any false difference among all tests below 5%.
    """
    corrected, largest = list(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
