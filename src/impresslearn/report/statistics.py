"""What is averaged over what: means with their intervals.

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

The intervals are Student's, at 95 per cent. Every seed weighs the same, however many rows it has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, TypeVar

from scipy import stats

from impresslearn.errors import InputError
from impresslearn.report.quantities import Quantity

Row = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Summary:
    """Mean, half the width of its interval (None for a single unit) and deviation of the rows.

    count: rows; over: what the interval is over, like "3 seeds".
    """

    mean: float
    deviation: float
    half_width: float | None
    count: int
    over: str

    def text(self, quantity: Quantity) -> str:
        """The mean and, where it is known, the interval, as they are read."""
        if self.half_width is None:
            return quantity.text(self.mean)
        return quantity.interval(self.mean, self.half_width)


def summarise(rows: Sequence[Row], key: str) -> Summary:
    """Mean and interval of `key` over rows that have it; `seed` and `task` give the levels.

    Raises InputError if there is no row.
    """
    if not rows:
        raise InputError(f"no row to average {key!r} over")
    by_seed = all("seed" in row for row in rows) and len({row["seed"] for row in rows}) > 1
    unit = "seed" if by_seed else "task" if all("task" in row for row in rows) else "row"
    units = grouped(enumerate(rows), lambda each: each[0] if unit == "row" else each[1][unit])
    means = [fmean(float(row[key]) for _, row in of) for of in units.values()]
    return Summary(
        mean=fmean(means),
        deviation=stdev(float(row[key]) for row in rows) if len(rows) > 1 else 0.0,
        half_width=half_width(means),
        count=len(rows),
        over=f"{len(means)} {unit}{'' if len(means) == 1 else 's'}",
    )


def half_width(values: Sequence[float]) -> float | None:
    """Half of Student's 95% interval of the mean of independent values; None of a single one."""
    if len(values) < 2:
        return None
    return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """The items by their key, in the order in which the keys first come."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
