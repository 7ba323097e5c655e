"""Which rows a figure draws, in which group, and which it draws across itself as a reference."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from impresslearn.errors import InputError
from impresslearn.report.quantities import Quantity, named, quantity_in, word
from impresslearn.report.specification import Figure, Filter, matches
from impresslearn.report.statistics import Summary, summarise

Row = Mapping[str, Any]


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
    chosen = [
        row
        for row in choose(rows, (figure.x, figure.y), figure.where)
        if not (figure.reference and matches(row, figure.reference))
    ]
    if not chosen:
        raise InputError(no_rows((figure.x, figure.y), figure.where))
    across = [
        row
        for row in (rows if figure.reference else ())
        if figure.y in row
        and matches(row, figure.reference)
        and matches(row, figure.where, lenient=True)
    ]
    if figure.reference and not across:
        asked = {**figure.where, **figure.reference}
        raise InputError(f"reference: {no_rows((figure.y,), asked)}")
    key = figure.group
    names = tuple(word(each) for each in ordered(row.get(key) for row in rows)) if key else ("",)
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


def choose(rows: Sequence[Row], keys: Sequence[str], where: Filter) -> list[Row]:
    """The rows that match and have all keys. Raises InputError if there is none."""
    chosen = [row for row in rows if matches(row, where) and all(key in row for key in keys)]
    if not chosen:
        raise InputError(no_rows(keys, where))
    return chosen


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
        tasks = [list({row.get("task") for row in rows if row[key] == value}) for value in values]
        if all(len(of) == 1 and of[0] is not None for of in tasks):
            names = [str(of[0]) for of in tasks]
    if len(set(names)) < len(names):  # two values must not become one place
        names = list(map(str, values))
    return dict(zip(values, names, strict=True))


def no_rows(keys: Sequence[str], where: Filter) -> str:
    """What to say when a figure or table has nothing to show."""
    asked = ", ".join(f"{key} = {' or '.join(map(word, of))}" for key, of in where.items())
    return f"no row has {' and '.join(keys)}" + (f" where {asked}" if asked else "")


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """The rows by their key, in the order in which the keys first come."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
