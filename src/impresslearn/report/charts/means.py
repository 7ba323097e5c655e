"""Lines and bars: means with their intervals, a series a group."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from impresslearn.report.charts.axes import (
    category_axis,
    named,
    number_axis,
    ordered,
    side_by_side,
    value_axis,
)
from impresslearn.report.charts.selection import Row, Selection, select
from impresslearn.report.charts.shapes import BarChart, LineChart, Mark, MarkSeries
from impresslearn.report.specification import BarFigure, LineFigure
from impresslearn.report.statistics import Summary, mean, summarise
from impresslearn.report.wording import spaced


def bar_chart(figure: BarFigure, rows: Sequence[Row]) -> BarChart:
    """The chart. Raises InputError if no row has x and y."""
    chosen = select(figure, rows)
    positions = ordered(row[figure.x] for group in chosen.groups.values() for row in group)
    axis = category_axis(positions, figure.x, figure.x_label)
    place_of = {value: float(place) for place, value in enumerate(positions)}
    parts = {
        name: _parted(group, (figure.x,), by_value=place_of)
        for name, group in chosen.groups.items()
    }
    present = {
        place: [name for name, of in parts.items() if (place,) in of] for place in place_of.values()
    }
    centres, width = side_by_side(present)
    series = tuple(
        MarkSeries(
            name,
            chosen.slots[name],
            tuple(
                _mark(centres[place, name], axis.labels[int(place)], of[place,], figure.y)
                for place in place_of.values()
                if (place,) in of
            ),
        )
        for name, of in parts.items()
    )
    return BarChart(
        title=figure.title,
        caption=figure.caption,
        x=axis,
        y=value_axis(
            _extent(series, chosen), chosen.quantity, figure.y_label or spaced(figure.y), True
        ),
        quantity=chosen.quantity,
        series=series,
        references=chosen.references,
        width=width,
    )


def line_chart(figure: LineFigure, rows: Sequence[Row]) -> LineChart:
    """The chart. Raises InputError if no row has x and y, or log_x meets a number below zero."""
    chosen = select(figure, rows)
    values = [row[figure.x] for group in chosen.groups.values() for row in group]
    place_of: dict[Any, float] | None = None
    if any(isinstance(value, (str, bool)) for value in values):
        positions = ordered(values)
        place_of = {value: float(place) for place, value in enumerate(positions)}
        axis = category_axis(positions, figure.x, figure.x_label)
    else:
        axis = number_axis(list(map(float, values)), figure.x, figure.x_label, figure.log_x)
    series = tuple(
        MarkSeries(name, chosen.slots[name], _line(figure, group, place_of))
        for name, group in chosen.groups.items()
    )
    ours = [each for each in series if not figure.ours or each.name in figure.ours]
    return LineChart(
        title=figure.title,
        caption=figure.caption,
        x=axis,
        y=value_axis(_extent(series, chosen), chosen.quantity, figure.y_label or spaced(figure.y)),
        quantity=chosen.quantity,
        series=series,
        references=chosen.references,
        frontier=frontier(ours) if figure.frontier else (),
    )


def frontier(series: Sequence[MarkSeries]) -> tuple[tuple[float, float], ...]:
    """The means that no mean at the same or a smaller x reaches, by ascending x."""
    found: list[tuple[float, float]] = []
    marks = sorted((mark.x, -mark.mean) for each in series for mark in each.marks)
    for x, negative in marks:
        if not found or -negative > found[-1][1]:
            found.append((x, -negative))
    return tuple(found)


def _line(
    figure: LineFigure, group: Sequence[Row], place_of: Mapping[Any, float] | None
) -> tuple[Mark, ...]:
    keys = figure.points or (figure.x,)
    marks = []
    for of in _parted(group, keys).values():
        values = [row[figure.x] for row in of]
        x = place_of[values[0]] if place_of else mean(list(map(float, values)))
        where = named(values[0] if place_of else x, figure.x)
        if figure.points:
            where += " · " + ", ".join(
                f"{spaced(key)} {named(of[0].get(key), key)}" for key in figure.points
            )
        marks.append(_mark(x, where, of, figure.y))
    return tuple(sorted(marks, key=lambda mark: mark.x))


def _parted(
    rows: Sequence[Row], keys: Sequence[str], by_value: Mapping[Any, float] | None = None
) -> dict[tuple[Hashable, ...], list[Row]]:
    """Rows that agree in the keys, together; by_value replaces the values."""
    found: dict[tuple[Hashable, ...], list[Row]] = {}
    for row in rows:
        values = tuple(row.get(key) for key in keys)
        if by_value is not None:
            values = tuple(by_value[value] for value in values)
        found.setdefault(values, []).append(row)
    return found


def _mark(x: float, where: str, rows: Sequence[Row], key: str) -> Mark:
    found = summarise(rows, key)
    return Mark(x, where, found.mean, found.low, found.high, found.count, units(found))


def units(summary: Summary) -> str:
    """What the interval is over: "3 seeds"."""
    return f"{summary.units} {summary.unit if summary.units > 1 else summary.unit[:-1]}"


def _extent(series: Sequence[MarkSeries], chosen: Selection) -> list[float]:
    """The means, the intervals as far as they do not dwarf them, and the references."""
    means = [mark.mean for each in series for mark in each.marks]
    means += [reference.mean for reference in chosen.references]
    reach = 0.5 * (max(means) - min(means)) or float("inf")
    found = list(means)
    for each in series:
        for mark in each.marks:
            if mark.low is not None and mark.high is not None:
                half = min(mark.high - mark.mean, reach)
                found += [mark.mean - half, mark.mean + half]
    for reference in chosen.references:
        half = min(reference.deviation, reach)
        found += [reference.mean - half, reference.mean + half]
    return found
