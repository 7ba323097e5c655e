"""Which rows a figure draws, in which group, and which it draws across itself as a reference."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from impresslearn.errors import InputError
from impresslearn.report.quantities import Quantity, named, quantity_in, word
from impresslearn.report.specification import Figure, Filter, matches
from impresslearn.report.statistics import Row, Summary, grouped, summarise


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
