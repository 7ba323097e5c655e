"""Heat maps: the mean of a value in every cell of two keys, with its number."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import altair as alt

from benchmarks.report import quantities
from benchmarks.report.charts.theme import colour, themed, titled
from benchmarks.report.quantities import (
    Quantity,
    quantity_in,
    quantity_of,
    signed,
    spaced,
    word,
)
from benchmarks.report.specification import Figure
from benchmarks.report.statistics import Row, axis_names, choose, grouped

ROW, FULL = 44, 620
LETTER = 7
"""Pixels that a letter takes: what does not fit a cell is left to the tooltip."""
STEPS = (("#1f5fd0", "#6ea3f5"), ("#6f9ae2", "#4a73b5"), ("#bfd1f2", "#33496e"))
BOUNDS = (0.001, 0.01, 0.05)
"""p-values; from one to the next a cell is coloured less strongly."""

Shades = tuple[alt.Scale, alt.Legend | None, str]


def heatmap_chart(
    figure: Figure, rows: Sequence[Row], bounds: tuple[float, float] | None = None
) -> alt.TopLevelMixin:
    """The chart. Raises InputError if no row has x, y and the value.

    bounds: of the colours, by default the least and the largest value.
    """
    key = figure.value or ""
    needed = [figure.x, figure.y, key, *([figure.facet] if figure.facet else [])]
    chosen = choose(rows, needed, figure.where)
    quantity = quantity_in(rows, key)
    columns, lines = axis_names(chosen, figure.x), axis_names(chosen, figure.y)
    keys = (figure.x, figure.y, figure.facet or "")
    parts = grouped(chosen, lambda row: tuple(row.get(each) for each in keys))
    cells: list[dict[str, Any]] = []
    for (x, y, facet), of in parts.items():
        value = fmean(float(row[key]) for row in of)
        cell = {"x": columns[x], "y": lines[y], "facet": word(facet), "rows": len(of)}
        shown = {"value": value, "text": _short(value, quantity), "exactly": quantity.text(value)}
        cells.append(cell | shown | {"below": _below(of, figure.text)})
    down = list(lines.values())  # numbers grow upwards, texts are read downwards
    down = down if any(isinstance(value, str) for value in lines) else down[::-1]
    shades = _shades([cell["value"] for cell in cells], quantity, bounds)
    return _drawn(figure, shades, cells, list(columns.values()), down)


def _drawn(
    figure: Figure,
    shades: Shades,
    cells: Sequence[dict[str, Any]],
    columns: Sequence[str],
    lines: Sequence[str],
) -> alt.TopLevelMixin:
    """Cells with their texts; the colour is as strong as the value is notable."""
    scale, legend, strong = shades
    x_title, y_title = figure.x_label or spaced(figure.x), figure.y_label or spaced(figure.y)
    shown, below = spaced(figure.value or ""), spaced(figure.text or "")
    facets = list(dict.fromkeys(cell["facet"] for cell in cells))
    wide = max(min(70, FULL / len(columns) / len(facets)), 4)
    told = wide >= LETTER * max(len(cell["text"]) for cell in cells)
    angle = -45 if LETTER * max(map(len, columns)) > wide else 0
    tips = {"x": x_title, "y": y_title, "exactly": shown, "below": below, "rows": "rows"}
    base = alt.Chart(alt.InlineData(values=tuple(cells))).encode(
        alt.X("x:O", title=x_title, scale=alt.Scale(domain=columns, padding=0.04),
              axis=alt.Axis(labelOverlap=wide < 14, labelAngle=angle, orient="bottom")),
        alt.Y("y:O", title=y_title, scale=alt.Scale(domain=lines, padding=0.04),
              axis=alt.Axis(labelOverlap=len(lines) > 40)),
        tooltip=[alt.Tooltip(f"{tip}:N", title=title) for tip, title in tips.items() if title],
    )  # fmt: skip
    layers = [
        base.mark_rect().encode(alt.Color("value:Q", scale=scale, legend=legend, title=shown))
    ]
    if told:
        ink = alt.condition(strong, alt.value(colour("surface")), alt.value(colour("text")))
        lift = 8 if any(cell["below"] for cell in cells) else 0
        layers.append(base.mark_text(dy=-lift, fontSize=12).encode(text="text:N", color=ink))
        if lift:
            layers.append(base.mark_text(dy=lift, fontSize=10).encode(text="below:N", color=ink))
    high = ROW if told else 24
    drawn: Any = alt.layer(*layers).properties(width=wide * len(columns), height=high * len(lines))
    if figure.facet:
        drawn = drawn.facet(column=alt.Column("facet:N", title=None, sort=facets), spacing=6)
    notes = [f"in the cells: {shown}" + (f", below it {below}" if below else "")] if told else []
    notes += ["coloured: p < 0.05, < 0.01, < 0.001"] if legend is None else []
    description = f"Heat map of {shown} over {x_title} and {y_title}"
    return titled(drawn, figure.title, notes, description)


def _shades(
    values: Sequence[float], quantity: Quantity, bounds: tuple[float, float] | None
) -> Shades:
    """Scale, legend, and the Vega expression of where the colour is strong."""
    low, high = (min(values), max(values)) if bounds is None else bounds
    legend = alt.Legend(gradientThickness=10, labelExpr=quantity.label, tickCount=5)
    if quantity is quantities.PROBABILITY:
        shades = [*(themed(*pair) for pair in STEPS), colour("band")]
        scale = alt.Scale(type="threshold", domain=BOUNDS, range=shades)
        return scale, None, f"datum.value < {BOUNDS[1]}"
    if quantity in (quantities.DIFFERENCE, quantities.LOSS) or low < 0 < high:
        most = max(abs(low), abs(high)) or 1.0
        shades = [colour("negative"), colour("zero"), colour("accent")]
        scale = alt.Scale(domain=[-most, 0, most], range=shades, interpolate="rgb")
        return scale, legend, f"abs(datum.value) > {most / 2}"
    low -= (abs(low) or 1.0) if low == high else 0.0
    scale = alt.Scale(domain=[low, high], range=[colour("band"), colour("accent")])
    return scale, legend, f"datum.value > {(low + high) / 2}"


def _below(rows: Sequence[Row], key: str | None) -> str:
    """The second text of a cell."""
    given = [row[key] for row in rows if key in row] if key else []
    if not given or isinstance(given[0], str):
        return given[0] if given else ""
    return _short(fmean(given), quantity_of(key or ""))


def _short(value: float, quantity: Quantity) -> str:
    """A value as short as a cell needs it: its unit is in the title or the tooltip."""
    if quantity in (quantities.DIFFERENCE, quantities.LOSS):
        return signed(100 * value if quantity is quantities.LOSS else value)
    if quantity in (quantities.FRACTION, quantities.SHARE):
        return f"{100 * value:.1f}"
    whole = quantity is not quantities.NUMBER or float(value).is_integer()
    return quantity.text(value) if whole else f"{value:.2g}"
