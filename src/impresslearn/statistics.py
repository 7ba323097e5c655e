"""Means, intervals and tests: one rule for the library and the documents.

A mean has a 95% interval from `MIN_DRAWS` independent draws on. With fewer draws Student's t is too
wide to be useful (two seeds: 12.7 standard errors), so the single values are shown. Results of one
seed share a network and its masks: twenty tasks on two networks are two draws, not forty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from impresslearn.errors import InputError

LEVEL = 0.95
MIN_DRAWS = 5
EXACT = 1e-12  # relative; a smaller spread is rounding: the draws agree


@dataclass(frozen=True)
class Summary:
    """A mean over independent draws.

    - mean: of the draws
    - half_width: half the 95% t interval; None for fewer than `MIN_DRAWS` draws
    - draws: the value of each draw, in order
    - unit: what one draw is, such as "seed"
    """

    mean: float
    half_width: float | None
    draws: tuple[float, ...]
    unit: str

    def text(
        self,
        value: Callable[[float], str] = "{:.4g}".format,
        interval: Callable[[float, float], str] = "{:.4g} ± {:.2g}".format,
    ) -> str:
        """The mean with its interval; without one, the mean and the draws in brackets.

        - value: formats one number
        - interval: formats a mean and half an interval
        """
        if self.half_width is not None:
            return interval(self.mean, self.half_width)
        if len(self.draws) == 1 or _spread(self.draws) == 0:
            return value(self.mean)
        return f"{value(self.mean)} [{', '.join(value(draw) for draw in self.draws)}]"


def summarise(values: Sequence[float], unit: str) -> Summary:
    """Mean and interval of independent draws, one value each.

    - values: one per draw
    - unit: what a draw is, in the singular

    Raises InputError without a value.
    """
    if not values:
        raise InputError(f"no {unit} to average over")
    draws = tuple(float(value) for value in values)
    half_width = None
    if len(draws) >= MIN_DRAWS:
        half_width = _t_factor(len(draws)) * _spread(draws) / sqrt(len(draws))
    return Summary(fmean(draws), half_width, draws, unit)


def summarise_rows(rows: Sequence[Mapping[str, Any]], key: str, unit: str | None = None) -> Summary:
    """Mean and interval of `key`, after averaging the rows of each draw.

    - rows: rows that have `key` and the unit as a key
    - key: the measured value
    - unit: the key that names a draw; by default "seed" where rows are of several seeds, else
      "task", else every row is a draw

    Raises InputError without a row.
    """
    if unit is None:
        seeds = {row.get("seed") for row in rows}
        if None not in seeds and len(seeds) > 1:
            unit = "seed"
        elif all("task" in row for row in rows):
            unit = "task"
    if unit is None:
        return summarise([row[key] for row in rows], "row")
    draws: dict[Any, list[float]] = {}
    for row in rows:
        draws.setdefault(row[unit], []).append(float(row[key]))
    return summarise([fmean(values) for values in draws.values()], unit)


def paired_test(first: Sequence[float], second: Sequence[float]) -> tuple[Summary, float | None]:
    """The differences of two methods, and the two-sided p-value of a paired t-test.

    - first, second: values on the same draws in the same order; the difference is first - second

    The p-value is None for fewer than `MIN_DRAWS` pairs, and if all differences are equal.
    Raises InputError without a pair and for values without a partner.
    """
    if len(first) != len(second):
        raise InputError(f"a paired test needs pairs, got {len(first)} and {len(second)} values")
    summary = summarise([a - b for a, b in zip(first, second, strict=True)], "pair")
    if not summary.half_width:  # nothing varies, so t would be 0 / 0 or infinite
        return summary, None
    from scipy import stats

    return summary, float(stats.ttest_rel(first, second).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected by Holm's step-down method (1979), in the same order.

    Compared with 0.05, they keep the chance of any false difference among all tests below 5%.
    """
    corrected, largest = list(p_values), 0.0
    ascending = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(ascending):
        # Corrected values never fall: a rank is rejected only if all before it are.
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def _spread(draws: Sequence[float]) -> float:
    """The standard deviation; 0 where it is rounding."""
    if len(draws) < 2:
        return 0.0
    deviation = stdev(draws)
    return 0.0 if deviation <= EXACT * abs(fmean(draws)) else deviation


def _t_factor(count: int) -> float:
    from scipy import stats  # takes a second to import

    return float(stats.t.ppf((1 + LEVEL) / 2, count - 1))
