"""Which rows a figure draws, in which group, and which it draws across itself as a reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from impresslearn.errors import InputError
from impresslearn.report.charts.axes import ordered
from impresslearn.report.charts.shapes import Reference
from impresslearn.report.palette import slots_of
from impresslearn.report.quantities import SHARE, Quantity, quantity_of, word
from impresslearn.report.specification import BarFigure, BoxFigure, Filter, LineFigure, matches
from impresslearn.report.statistics import deviation, summarise

Row = Mapping[str, Any]
Grouped = BoxFigure | BarFigure | LineFigure


@dataclass(frozen=True)
class Selection:
    """rows by group name, in the order to draw them; slots: a colour for each name."""

    groups: Mapping[str, Sequence[Row]]
    slots: Mapping[str, int]
    references: tuple[Reference, ...]
    quantity: Quantity


def select(figure: Grouped, rows: Sequence[Row]) -> Selection:
    """The figure's rows. Raises InputError if there is none to draw."""
    slots = slots_of(_names(figure, rows))
    chosen = [
        row
        for row in rows
        if matches(row, figure.where)
        and figure.x in row
        and figure.y in row
        and not (figure.reference and matches(row, figure.reference))
    ]
    if not chosen:
        raise InputError(no_rows((figure.x, figure.y), figure.where))
    groups: dict[str, list[Row]] = {}
    for row in chosen:
        groups.setdefault(group_of(figure, row), []).append(row)
    wanted = list(dict.fromkeys((*figure.order, *slots)))
    return Selection(
        groups={name: groups[name] for name in wanted if name in groups},
        slots=slots,
        references=_references(figure, rows, slots),
        quantity=quantity_in(rows, figure.y),
    )


def quantity_in(rows: Sequence[Row], key: str) -> Quantity:
    """What a key of these rows measures."""
    first = next((row[key] for row in rows if key in row), None)
    return SHARE if isinstance(first, bool) else quantity_of(key)


def group_of(figure: Grouped, row: Row) -> str:
    """The name of a row's group; "" in a figure without groups."""
    return "" if figure.group is None else word(row.get(figure.group))


def no_rows(keys: Sequence[str], where: Filter) -> str:
    """What to say when a figure or table has nothing to show."""
    wanted = " and ".join(keys)
    asked = ", ".join(f"{key} = {' or '.join(map(word, of))}" for key, of in where.items())
    return f"no row has {wanted}" + (f" where {asked}" if asked else "")


def _names(figure: Grouped, rows: Sequence[Row]) -> list[str]:
    """Every group of the record, so that a group has one colour in all of its figures."""
    if figure.group is None:
        return [""]
    key = figure.group
    names = [word(value) for value in ordered(row[key] for row in rows if key in row)]
    return [*names, word(None)] if any(key not in row for row in rows) else names


def _references(
    figure: Grouped, rows: Sequence[Row], slots: Mapping[str, int]
) -> tuple[Reference, ...]:
    if not figure.reference:
        return ()
    chosen: dict[str, list[Row]] = {}
    for row in rows:
        meant = matches(row, figure.reference) and matches(row, figure.where, lenient=True)
        if meant and figure.y in row:
            chosen.setdefault(group_of(figure, row), []).append(row)
    if not chosen:
        raise InputError(f"reference: {no_rows((figure.y,), {**figure.where, **figure.reference})}")
    return tuple(
        Reference(
            name=name or ", ".join(word(v) for of in figure.reference.values() for v in of),
            slot=slots[name],
            mean=summarise(of_name, figure.y).mean,
            deviation=deviation([float(row[figure.y]) for row in of_name]),
            count=len(of_name),
        )
        for name, of_name in chosen.items()
    )
