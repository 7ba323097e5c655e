"""Means, intervals and tests, by one rule for the library and the documents.

A mean of at least `MIN_DRAWS` independent draws has a 95% interval. With fewer draws, an interval
by Student's t is too wide to be useful (two seeds: 12.7 standard errors), so the values are shown
instead. Results of one seed share a network and masks: twenty tasks on two networks are two draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

from impresslearn.errors import InputError

LEVEL = 0.95
MIN_DRAWS = 5
EXACT = 1e-12  # with a relative spread below this, draws are equal up to rounding


@dataclass(frozen=True)
class Summary:
    """A mean over independent draws.

    - mean: the mean of the draws
    - half_width: half the width of the 95% t interval; None for fewer than `MIN_DRAWS` draws
    - draws: the value of each draw, in order
    """

    mean: float
    half_width: float | None
    draws: tuple[float, ...]


def summarise(values: Sequence[float]) -> Summary:
    """The mean and interval of independent draws. Raises InputError without values."""
    if not values:
        raise InputError("no value to average over")
    draws = tuple(float(value) for value in values)
    mean, count = fmean(draws), len(draws)
    if count < MIN_DRAWS:
        return Summary(mean, None, draws)
    deviation = stdev(draws)
    if deviation <= EXACT * abs(mean):
        return Summary(mean, 0.0, draws)
    from scipy import stats  # takes a second to import

    t_factor = float(stats.t.ppf((1 + LEVEL) / 2, count - 1))
    return Summary(mean, t_factor * deviation / sqrt(count), draws)


def paired_test(first: Sequence[float], second: Sequence[float]) -> tuple[Summary, float | None]:
    """The mean difference of two methods, and the two-sided p-value of a paired t-test.

    - first, second: values on the same draws in the same order; the difference is first - second

    The p-value is None for fewer than `MIN_DRAWS` pairs, and if all differences are equal.
    Raises InputError without values, and if the numbers of values differ.
    """
    if len(first) != len(second):
        raise InputError(f"a paired test needs pairs, got {len(first)} and {len(second)} values")
    summary = summarise([a - b for a, b in zip(first, second, strict=True)])
    if not summary.half_width:  # without variation, t would be 0 / 0 or infinite
        return summary, None
    from scipy import stats

    return summary, float(stats.ttest_rel(first, second).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected by Holm's step-down method (1979), in the same order.

    Compared with 0.05, they keep the probability of any false difference in all tests below 5%.
    """
    corrected, largest = list(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        # Corrected values never decrease: a test is significant only if all before it are.
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected
