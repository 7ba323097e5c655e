"""What is averaged over what: means with intervals, and the test of two groups of results.

A result record holds one row per task and seed (and sparsity, …). A seed stands for a network, its
masks and an order of tasks, so the rows of one seed are not independent of each other: twenty
tasks on two networks are two networks, not forty. `summarise` therefore works on two levels.

- Several seeds: the rows of each seed are averaged, over its tasks and over whatever else differs;
  mean and interval are those of the S seed means, with S - 1 degrees of freedom. The interval says
  where the mean of many networks lies. With two or three seeds it is wide, as it has to be.
- One seed, or rows without seeds: the rows of each task are averaged; mean and interval are those
  of the T task means, with T - 1 degrees of freedom. The interval says how much the choice of tasks
  matters, and nothing about other networks.
- A single mean has no interval.

The intervals are Student's, at 95 per cent: m ± t(0.975, k - 1) s / sqrt(k). Where seeds have
unequal numbers of rows every seed weighs the same. `deviation` is the plain standard deviation of
all rows (n - 1), a description of their spread.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import Any

from impresslearn.errors import InputError

LEVEL = 0.95


@dataclass(frozen=True)
class Summary:
    """mean; deviation of the rows; half_width of the interval, None for a single unit.

    count: rows; unit: what the interval is over, "seeds", "tasks" or "rows"; units: how many.
    """

    mean: float
    deviation: float
    half_width: float | None
    count: int
    unit: str
    units: int

    @property
    def low(self) -> float | None:
        """The interval's lower end."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The interval's upper end."""
        return None if self.half_width is None else self.mean + self.half_width


@dataclass(frozen=True)
class Comparison:
    """A test of two groups: difference of the means (second - first), t, degrees, p_value."""

    difference: float
    t: float
    degrees: float
    p_value: float


def summarise(rows: Sequence[Mapping[str, Any]], key: str) -> Summary:
    """Mean and interval of `key` over rows that have it; `seed` and `task` give the levels.

    Raises InputError if there is no row.
    """
    if not rows:
        raise InputError(f"no row to average {key!r} over")
    values = [float(row[key]) for row in rows]
    unit = _unit(rows)
    means = values if unit == "rows" else _means((row[unit[:-1]] for row in rows), values)
    return Summary(
        mean=mean(means),
        deviation=deviation(values),
        half_width=half_width(means),
        count=len(values),
        unit=unit,
        units=len(means),
    )


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """The standard deviation with n - 1; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return sqrt(fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def half_width(values: Sequence[float], level: float = LEVEL) -> float | None:
    """Half of Student's interval of the mean of independent values; None of a single one."""
    count = len(values)
    if count < 2:
        return None
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + level) / 2)) * deviation(values) / sqrt(count)


def welch(first: Sequence[float], second: Sequence[float]) -> Comparison | None:
    """Welch's two-sided t-test of two independent groups of unequal variance.

    None where a group has fewer than two values. Where neither varies, p is 1 for equal means and 0
    for unequal ones.
    """
    if min(len(first), len(second)) < 2:
        return None
    difference = mean(second) - mean(first)
    parts = [deviation(group) ** 2 / len(group) for group in (first, second)]
    if sum(parts) == 0:
        certain = float("inf") if difference > 0 else float("-inf")
        t, p_value = (certain, 0.0) if difference else (0.0, 1.0)
        return Comparison(difference, t, float(len(first) + len(second) - 2), p_value)
    from scipy.special import stdtr

    t = difference / sqrt(sum(parts))
    below = (part**2 / (len(group) - 1) for part, group in zip(parts, (first, second), strict=True))
    degrees = sum(parts) ** 2 / sum(below)
    return Comparison(difference, t, degrees, 2 * float(stdtr(degrees, -abs(t))))


def quantile(ordered: Sequence[float], fraction: float) -> float:
    """A quantile of ordered values, linear between neighbours."""
    place = fraction * (len(ordered) - 1)
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (place - lower) * (ordered[upper] - ordered[lower])


def _unit(rows: Sequence[Mapping[str, Any]]) -> str:
    if len({row.get("seed") for row in rows}) > 1 and all("seed" in row for row in rows):
        return "seeds"
    return "tasks" if all("task" in row for row in rows) else "rows"


def _means(names: Iterable[Hashable], values: Sequence[float]) -> list[float]:
    """The mean of the values of each name."""
    gathered: dict[Hashable, list[float]] = {}
    for name, value in zip(names, values, strict=True):
        gathered.setdefault(name, []).append(value)
    return [mean(group) for group in gathered.values()]
