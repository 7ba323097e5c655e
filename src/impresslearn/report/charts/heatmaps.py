"""Heat maps: a value in every cell of two keys, or a test of two groups of rows in every cell."""

from collections.abc import Mapping, Sequence
from typing import Any

from impresslearn.errors import InputError
from impresslearn.report.charts.axes import category_axis, named, ordered
from impresslearn.report.charts.selection import Row, no_rows, quantity_in
from impresslearn.report.charts.shapes import HeatChart
from impresslearn.report.quantities import (
    DIFFERENCE,
    FRACTION,
    LOSS,
    PROBABILITY,
    SHARE,
    Quantity,
    quantity_of,
    signed,
    word,
)
from impresslearn.report.specification import COMPARED, HeatmapFigure, matches
from impresslearn.report.statistics import mean, welch
from impresslearn.report.wording import spaced


def heat_chart(figure: HeatmapFigure, rows: Sequence[Row]) -> HeatChart:
    """The chart. Raises InputError if no row has x, y and the value."""
    needed = [figure.x, figure.y]
    needed += figure.compare.values() or [figure.value]
    chosen = [
        row for row in rows if matches(row, figure.where) and all(key in row for key in needed)
    ]
    if not chosen:
        raise InputError(no_rows(needed, figure.where))
    columns, lines = (
        ordered(row[figure.x] for row in chosen),
        ordered(row[figure.y] for row in chosen),
    )
    cells: dict[tuple[Any, Any], list[Row]] = {}
    for row in chosen:
        cells.setdefault((row[figure.y], row[figure.x]), []).append(row)
    both = _both(figure, chosen)
    told = {place: _cell(figure, of, both) for place, of in cells.items()}
    grid = [[told.get((line, column), (None, "", "")) for column in columns] for line in lines]
    known = [value for value, _, _ in told.values() if value is not None]
    if not known:
        raise InputError(f"no cell has two rows of each {figure.compare['by']} to compare")
    quantity = _quantity(figure, rows)
    scale, low, high = _scale(known, quantity)
    x_axis = category_axis(columns, figure.x, figure.x_label)
    y_axis = category_axis(lines, figure.y, figure.y_label)
    return HeatChart(
        title=figure.title,
        caption=figure.caption,
        x=x_axis,
        y=y_axis,
        quantity=quantity,
        value_title=spaced(figure.value),
        values=tuple(tuple(value for value, _, _ in line) for line in grid),
        texts=tuple(tuple(text for _, text, _ in line) for line in grid),
        notes=tuple(tuple(note for _, _, note in line) for line in grid),
        scale=scale,
        low=low,
        high=high,
    )


def _both(figure: HeatmapFigure, rows: Sequence[Row]) -> list[Any]:
    """The two values of the key that is compared."""
    if not figure.compare:
        return []
    found = ordered(row[figure.compare["by"]] for row in rows)
    if len(found) < 2:
        raise InputError(
            f"compare needs two values of {figure.compare['by']!r}, rows have "
            f"{', '.join(map(word, found))} only"
        )
    return found[:2]


def _cell(
    figure: HeatmapFigure, rows: Sequence[Row], both: Sequence[Any]
) -> tuple[float | None, str, str]:
    """Value, text and note of a cell."""
    values = _compared(figure, rows, both) if both else _averaged(figure, rows)
    value = values.get(figure.value)
    if value is None:
        return None, "", ""
    count = f"{len(rows)} rows" if len(rows) > 1 else ""
    other = ""
    if figure.text is not None and isinstance(values.get(figure.text), float):
        other = f"{spaced(figure.text)} {quantity_of(figure.text).text(values[figure.text])}"
    note = " · ".join(part for part in (other, count) if part)
    shown = figure.text or figure.value
    return value, _short(shown, values.get(shown)), note


def _averaged(figure: HeatmapFigure, rows: Sequence[Row]) -> Mapping[str, Any]:
    found: dict[str, Any] = {figure.value: mean([float(row[figure.value]) for row in rows])}
    given = [row[figure.text] for row in rows if figure.text in row] if figure.text else []
    if figure.text and given:
        numeric = not any(isinstance(each, str) for each in given)
        found[figure.text] = mean(list(map(float, given))) if numeric else given[0]
    return found


def _compared(figure: HeatmapFigure, rows: Sequence[Row], both: Sequence[Any]) -> Mapping[str, Any]:
    """Welch's test over rows, as the paper does: tasks of all seeds as if independent."""
    by, of = figure.compare["by"], figure.compare["of"]
    first, second = ([float(row[of]) for row in rows if row[by] == side] for side in both)
    found = welch(first, second)
    if found is None:
        return {}
    points = 100 if quantity_of(of) is FRACTION else 1
    return dict(zip(COMPARED, (found.p_value, points * found.difference), strict=True))


def _quantity(figure: HeatmapFigure, rows: Sequence[Row]) -> Quantity:
    if figure.compare and figure.value in COMPARED:
        return PROBABILITY if figure.value == "p_value" else DIFFERENCE
    return quantity_in(rows, figure.value)


def _scale(known: Sequence[float], quantity: Quantity) -> tuple[str, float, float]:
    low, high = min(known), max(known)
    if quantity is PROBABILITY:
        return "probability", 0.0, 1.0
    if quantity in (DIFFERENCE, LOSS) or low < 0 < high:
        most = max(abs(low), abs(high)) or 1.0
        return "diverging", -most, most
    if low == high:
        return "sequential", low - (abs(low) or 1), high
    return "sequential", low, high


def _short(key: str, value: Any) -> str:
    """A value as short as a cell needs it: the unit is in the figure's caption or title."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    quantity = quantity_of(key)
    if quantity in (DIFFERENCE, LOSS):
        return signed(100 * value if quantity is LOSS else value)
    if quantity in (FRACTION, SHARE):
        return f"{100 * value:.1f}"
    return named(value, key) if quantity is not PROBABILITY else quantity.text(value)
