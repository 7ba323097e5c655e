"""Which rows are shown, and what is averaged over what: means with their intervals.

A record holds one row per task and seed (and sparsity, …). A seed stands for a network, its masks
and an order of tasks, so twenty tasks on two networks are two independent results, not forty.
`summarise` therefore works on two levels. With several seeds it averages the rows of each; mean and
interval are those of the S seed means: where the mean of many networks lies. With one seed or none
they are those of the T task means: how much the choice of tasks matters. The intervals are
Student's, at 95 per cent; every seed weighs the same, however many rows it has.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, TypeVar

from benchmarks.report.quantities import Quantity, named, quantity_in, word
from benchmarks.report.specification import Figure, Filter
from impresslearn.errors import InputError

EXACT = 1e-12
"""Share of a mean below which an interval is rounding: the seeds agree."""
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
    from scipy import stats  # takes a second to import

    if not rows:
        raise InputError(f"no row to average {key!r} over")
    by_seed = all("seed" in row for row in rows) and len({row["seed"] for row in rows}) > 1
    unit = "seed" if by_seed else "task" if all("task" in row for row in rows) else "row"
    units = grouped(enumerate(rows), lambda each: each[0] if unit == "row" else each[1][unit])
    means = [fmean(float(row[key]) for _, row in of) for of in units.values()]
    mean, half = fmean(means), None
    if len(means) > 1:
        half = float(stats.t.ppf(0.975, len(means) - 1) * stats.sem(means))
        half = 0.0 if half < EXACT * abs(mean) else half
    return Summary(
        mean=mean,
        deviation=stdev(float(row[key]) for row in rows) if len(rows) > 1 else 0.0,
        half_width=half,
        count=len(rows),
        over=f"{len(means)} {unit}{'' if len(means) == 1 else 's'}",
    )


def grouped(items: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    """The items by their key, in the order in which the keys first come."""
    groups: dict[Any, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


@dataclass(frozen=True)
class Selection:
    """Rows by group name, in the order to draw them.

    names: every group of the record, so that a group has one colour in all of its figures.
    """

    groups: Mapping[str, Sequence[Row]]
    names: tuple[str, ...]
    references: Mapping[str, Summary]
    quantity: Quantity

    @property
    def rows(self) -> list[Row]:
        """The rows of all groups."""
        return [row for group in self.groups.values() for row in group]


def select(figure: Figure, rows: Sequence[Row]) -> Selection:
    """The figure's rows. Raises InputError if there is none to draw."""
    across, inside = [], rows
    if asked := figure.reference:
        inside = [row for row in rows if not matches(row, asked)]
        within = [row for row in rows if matches(row, figure.where, lenient=True)]
        across = choose(within, (figure.y,), asked, "reference: ")
    key = figure.group
    names = tuple(word(each) for each in ordered(row.get(key) for row in rows)) if key else ("",)
    chosen = choose(inside, (figure.x, figure.y), figure.where)
    groups = grouped(chosen, lambda row: word(row.get(key)) if key else "")
    every = ", ".join(word(each) for of in figure.reference.values() for each in of)
    references = grouped(across, lambda row: word(row.get(key)) if key else every)
    wanted = dict.fromkeys((*figure.order, *names))
    return Selection(
        groups={name: groups[name] for name in wanted if name in groups},
        names=names,
        references={name: summarise(of, figure.y) for name, of in references.items()},
        quantity=quantity_in(rows, figure.y),
    )


def choose(rows: Sequence[Row], keys: Sequence[str], where: Filter, part: str = "") -> list[Row]:
    """The rows that match and have all keys. Raises InputError, naming the part, if none does."""
    chosen = [row for row in rows if matches(row, where) and all(key in row for key in keys)]
    if not chosen:
        raise InputError(part + no_rows(keys, where))
    return chosen


def no_rows(keys: Sequence[str], where: Filter) -> str:
    """What to say when there is nothing to show."""
    asked = ", ".join(f"{key} = {' or '.join(map(word, of))}" for key, of in where.items())
    return f"no row has {' and '.join(keys)}" + (f" where {asked}" if asked else "")


def matches(row: Mapping[str, Any], chosen: Filter, lenient: bool = False) -> bool:
    """Whether a row has the values asked for; lenient: a key that it lacks is no hindrance."""
    return all(
        lenient if row.get(key) is None else row[key] in allowed for key, allowed in chosen.items()
    )


def ordered(values: Iterable[Any]) -> list[Any]:
    """Distinct values: numbers ascending, no before yes, texts as they first come; none is last."""
    distinct = list(dict.fromkeys(values))
    known = [value for value in distinct if value is not None]
    if not any(isinstance(value, str) for value in known):
        known = sorted(known)
    return [*known, None] if None in distinct else known


def axis_names(rows: Sequence[Row], key: str) -> dict[Any, str]:
    """Every value of the key, in order, and its name; places in a stream have their task's."""
    values = ordered(row[key] for row in rows)
    names = [named(value, key) for value in values]
    if key == "place":
        tasks = [{row.get("task") for row in rows if row[key] == value} for value in values]
        if all(len(of) == 1 and None not in of for of in tasks):
            names = [str(task) for of in tasks for task in of]
    if len(set(names)) < len(names):  # two values must not become one place
        names = list(map(str, values))
    return dict(zip(values, names, strict=True))
