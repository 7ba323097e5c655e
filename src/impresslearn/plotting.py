"""The library's two kinds of Altair charts, their look, and pictures of them.

Import this module inside functions: Altair takes a second to import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import altair as alt

from impresslearn.errors import InputError
from impresslearn.statistics import Summary
from impresslearn.tables import format_value, kind_of

COLOURS = {
    "surface": "#ffffff",
    "text": "#1d2129",
    "muted": "#5f6773",
    "line": "#e3e4e1",
    "band": "#eef1f6",
    "accent": "#1f5fd0",
}
# All with a contrast of at least 3:1 on white; marks differ in shape as well.
SERIES = (
    *("#1f5fd0", "#c2570c", "#0f7a63", "#a93fc0", "#8c1c34", "#857400", "#1c7fb0", "#5f6773"),
    *("#c2306f", "#3d6b1f", "#6b4bd6", "#7d4b2a", "#0b4f5c", "#b3473f", "#4f6f9f", "#8a5a8f"),
)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
MOST_IN_A_LEGEND = 6  # groups; more are labelled beside their marks
CONFIG = {
    "background": COLOURS["surface"],
    "font": "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif",
    "padding": 12,
    "view": {"stroke": None},
    "title": {"anchor": "start", "fontSize": 15, "subtitleColor": COLOURS["muted"], "offset": 14},
    "axis": {"gridColor": COLOURS["line"], "domain": False, "ticks": False, "labelPadding": 6},
    "axisX": {"grid": False},
    "axisBand": {"grid": False},
    "legend": {"labelLimit": 260},
    "range": {"category": list(SERIES)},
}
AXIS_LABELS = {
    "fraction": "format(datum.value, '.4~%')",
    "points": "format(100 * datum.value, '.4~g')",
    "bytes": "replace(format(datum.value, '.3~s'), /([kMGT]?)$/, ' $1B')",
}
WIDTH, HEIGHT = 420, 300
LETTER_WIDTH = 6.4  # pixels of a letter of a label beside a mark
LABEL_PLACES = [(dx, dy) for dy in (0, 13, -13, 26, -26) for dx in (9, -9)]
ERRORS = (0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005)  # ticks where errors are drawn
FEW_TICKS = 8
LOG_ERRORS = " (errors on a log scale)"
CELL_WIDTH, CELL_HEIGHT = 70, 40
LEAST_ERROR = 0.001
LETTER = 7  # pixels: a cell shows its number where that fits


def styled(chart: Any, title: str = "", notes: Sequence[str] = (), description: str = "") -> Any:
    """The whole chart with the library's fonts and colours.

    - title: above it
    - notes: what its marks mean, below the title
    - description: the chart in a sentence, for screen readers; by default the title
    """
    if title or notes:
        chart.title = {"text": title, "subtitle": [note for note in notes if note]}
    chart.description = description or title
    chart.config = CONFIG  # in place: every copy that Altair makes of a layered chart takes long
    return chart


def line_chart(
    rows: Sequence[Mapping[str, Any]],
    x: str,
    y: str,
    group: str,
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    notes: Sequence[str] = (),
    joined: bool = True,
    log_x: bool = False,
    log_error: bool = False,
    styles: Mapping[str, int] | None = None,
    width: int = WIDTH,
) -> Any:
    """Values of `y` over `x`, one colour per group; not yet `styled`.

    - rows: one mark each; keys `low` and `high` of a row are drawn as an interval, and the numbers
      under `draws` as points
    - x, y, group: keys of the rows
    - joined: whether a line joins the marks of a group; else a step shows its best so far
    - log_x: whether the horizontal axis is logarithmic
    - log_error: whether y, a share, is shown by the logarithm of its distance from 1
    - styles: group -> its place in `SERIES`, for those that look the same in all figures
    - width: in pixels

    Raises InputError without a row.
    """
    if log_x:
        rows = [row for row in rows if row[x] > 0]  # others have no place on this axis
    if not rows:
        raise InputError(f"no row has {x} and {y}; there is nothing to draw")
    marks: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []

    def up_to(value: float) -> float:
        return max(1 - value, LEAST_ERROR) if log_error else value

    for row in rows:
        mark = {"x": row[x], "y": up_to(row[y]), "group": str(row[group])}
        mark["value"] = format_value(y, row[y])
        if row.get("low") is not None:
            mark |= {"low": up_to(row["low"]), "high": up_to(row["high"])}
        marks.append(mark)
        points += [{**mark, "y": up_to(draw)} for draw in row.get("draws", ())]
    across = _across_axis(rows, x, x_label, log_x)
    title_up = (y_label or y) + LOG_ERRORS * log_error
    up = _up_axis(y, title_up, log_error)
    names = list(dict.fromkeys(mark["group"] for mark in marks))
    places = list(places_of(names, styles or {}).values())
    labelled = not joined and len(names) > MOST_IN_A_LEGEND
    legend = None if labelled or len(names) == 1 else alt.Legend(title=None, symbolOpacity=1)
    colours = alt.Scale(domain=names, range=[SERIES[place] for place in places])
    shapes = alt.Scale(domain=names, range=[SHAPES[place % len(SHAPES)] for place in places])
    colour = alt.Color("group:N", scale=colours, legend=legend)
    tips = [alt.Tooltip("group:N"), alt.Tooltip("x:Q", title=x), alt.Tooltip("value:N", title=y)]

    def layer(values: list[dict[str, Any]]) -> Any:
        return alt.Chart(alt.InlineData(values=values)).encode(across, color=colour, tooltip=tips)

    layers = []
    if intervals := [mark for mark in marks if "low" in mark]:
        drawn = layer(intervals)
        band = drawn.mark_area(opacity=0.12) if joined else drawn.mark_rule(opacity=0.6)
        layers.append(band.encode(alt.Y("low:Q", title=title_up), y2="high:Q"))
    dots = layer(marks).mark_point(filled=True, size=50, opacity=1).encode(up)
    if joined:
        layers.append(layer(marks).mark_line(strokeWidth=2).encode(up))
    else:
        best = {"best": "min(y)" if log_error else "max(y)"}
        steps = layer(marks).mark_line(interpolate="step-after", opacity=0.45)
        steps = steps.transform_window(sort=[alt.SortField("x")], groupby=["group"], **best)
        layers.append(steps.encode(alt.Y("best:Q", title=title_up)))
        dots = dots.encode(alt.Shape("group:N", scale=shapes, legend=legend))
    if points:
        layers.append(layer(points).mark_circle(size=16, opacity=0.5).encode(up))
    layers.append(dots)
    for label in _labels(marks, log_x, log_error, width) if labelled else ():
        side = "left" if label["dx"] > 0 else "right"
        text = layer([label]).mark_text(align=side, dx=label["dx"], dy=label["dy"], fontSize=11)
        layers.append(text.encode(up, text="group:N"))
    chart = alt.layer(*layers).properties(width=width, height=HEIGHT)
    chart.title = {"text": title, "subtitle": [note for note in notes if note]}
    return chart


def places_of(names: Sequence[str], styles: Mapping[str, int]) -> dict[str, int]:
    """Each group's place in `SERIES`: its own in all figures, else the first that is left."""
    fixed = {name: styles[name] for name in names if name in styles}
    left = [place for place in range(len(SERIES)) if place not in fixed.values()]
    others = [name for name in names if name not in fixed]
    return fixed | {name: left[n % len(left)] for n, name in enumerate(others)}


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from the one below to the one above, with 2 and 5 between them if few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if low / 2 <= tick <= high * 2]


def _across_axis(rows: Sequence[Mapping[str, Any]], x: str, label: str, log: bool) -> alt.X:
    if log:
        low, high = min(row[x] for row in rows), max(row[x] for row in rows)
        if high < 3 * low:
            low, high = low / 2, high * 2  # a narrower axis may have a single tick
        scale = alt.Scale(type="log", domain=[low / 1.3, high * 1.3], nice=False)
        axis = alt.Axis(labelExpr=_label(x), values=log_ticks(low, high), labelOverlap=True)
        return alt.X("x:Q", title=label or x, scale=scale, axis=axis)
    # Counts, such as tasks learned, have no ticks between integers, and few have their own. The
    # bytes of tasks are rarely far enough apart for that.
    whole: dict[str, Any] = {}
    if all(isinstance(row[x], int) for row in rows):
        counts = sorted({row[x] for row in rows})
        few = len(counts) <= FEW_TICKS and kind_of(x) != "bytes"
        whole = {"values": counts} if few else {"tickMinStep": 1}
    scale = alt.Scale(zero=False, nice=False, padding=12)
    axis = alt.Axis(labelExpr=_label(x), labelOverlap=True, **whole)
    return alt.X("x:Q", title=label or x, scale=scale, axis=axis)


def _up_axis(key: str, title: str, log_error: bool) -> alt.Y:
    """The vertical axis: of shares by their errors, if so chosen."""
    if not log_error:
        scale = alt.Scale(zero="seconds" in key, padding=8)  # times are compared with nothing
        axis = alt.Axis(labelExpr=_label(key), tickCount=6)
        return alt.Y("y:Q", title=title, scale=scale, axis=axis)
    scale = alt.Scale(type="log", reverse=True, nice=False, padding=8)
    axis = alt.Axis(labelExpr="format(1 - datum.value, '.3~%')", values=list(ERRORS))
    return alt.Y("y:Q", title=title, scale=scale, axis=axis)


def _labels(
    marks: Sequence[Mapping[str, Any]], log_x: bool, log_error: bool, width: int
) -> list[dict[str, Any]]:
    """Each group's name beside one of its marks, with the fewest marks and names below it."""
    across = _pixels([mark["x"] for mark in marks], log_x, width)
    down = _pixels([mark["y"] for mark in marks], log_error, HEIGHT if log_error else -HEIGHT)
    taken, spots = [], dict[str, list[tuple[float, float, Mapping[str, Any]]]]()
    for mark in marks:
        left, middle = across(mark["x"]), down(mark["y"])
        spots.setdefault(mark["group"], []).append((left, middle, mark))
        taken.append((left - 6, left + 6, middle - 6, middle + 6))
        if "low" in mark:  # the line of an interval
            taken.append((left - 2, left + 2, down(mark["high"]), down(mark["low"])))
    for own in spots.values():
        for (begins, middle), (ends, _) in pairwise(sorted(spot[:2] for spot in own)):
            taken.append((begins, ends, middle - 4, middle + 4))  # the line of a step
    labels: list[dict[str, Any]] = []
    named: list[tuple[float, ...]] = []
    for name, own in spots.items():
        length, places = LETTER_WIDTH * len(name), []
        for left, middle, mark in reversed(own):
            for dx, dy in LABEL_PLACES:
                begins = left + dx - (length if dx < 0 else 0)
                box = (begins, begins + length, middle + dy - 6, middle + dy + 6)
                hit = sum(_overlap(box, other) for other in taken)
                hit += 4 * sum(_overlap(box, other) for other in named)
                hit += 15 * (begins < 0) + (begins + length > width + 60)
                places.append((hit, box, {**mark, "dx": dx, "dy": dy}))
        _, box, label = min(places, key=lambda place: place[0])
        named.append(box)
        labels.append(label)
    return labels


def _pixels(values: Sequence[float], log: bool, length: int) -> Callable[[float], float]:
    """Where a value lies on an axis of these values; a negative length begins at the largest."""
    place = math.log if log else float
    low, high = place(min(values)), place(max(values))
    start = low if length > 0 else high
    return lambda value: length * (place(value) - start) / (high - low or 1)


def _overlap(one: Sequence[float], other: Sequence[float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]


def mark_of(key: str, summary: Summary) -> dict[str, Any]:
    """A summary as a mark of a chart: its interval, or its draws if they are too few for one."""
    mark: dict[str, Any] = {key: summary.mean}
    if summary.half_width is not None:
        mark["low"] = summary.mean - summary.half_width
        mark["high"] = summary.mean + summary.half_width
    elif len(summary.draws) > 1:
        mark["draws"] = summary.draws
    return mark


def heatmap(
    rows: Sequence[Mapping[str, Any]], x: str, y: str, value: str, *, title: str = ""
) -> Any:
    """A cell per row, coloured by its value, with the number where it fits; not yet `styled`.

    - rows: one per cell
    - x, y, value: keys of the rows; columns and lines keep the order in which they first come

    Raises InputError without a row.
    """
    if not rows:
        raise InputError(f"no row has {x}, {y} and {value}; there is nothing to draw")
    cells = []
    for row in rows:
        cell = {"x": format_value(x, row[x]), "y": format_value(y, row[y]), "value": row[value]}
        cells.append(cell | {"text": format_value(value, row[value])})
    columns = list(dict.fromkeys(cell["x"] for cell in cells))
    lines = list(dict.fromkeys(cell["y"] for cell in cells))
    # White on a shade has a contrast of at least 4 to 1 from three quarters of the way on.
    low, high = min(row[value] for row in rows), max(row[value] for row in rows)
    dark_from = low + 0.75 * (high - low)
    shades = alt.Scale(range=[COLOURS["band"], COLOURS["accent"]], interpolate="rgb", zero=False)
    width = max(min(CELL_WIDTH, 620 / len(columns)), 6)
    fits = width >= LETTER * max(len(cell["text"]) for cell in cells)
    slanted = -45 if LETTER * max(map(len, columns)) > width else 0
    base = alt.Chart(alt.InlineData(values=cells)).encode(
        alt.X("x:N", sort=columns, title=x.replace("_", " "), axis=alt.Axis(labelAngle=slanted)),
        alt.Y("y:N", sort=lines, title=y.replace("_", " ")),
        tooltip=["x:N", "y:N", "text:N"],
    )
    legend = alt.Legend(gradientThickness=10, tickCount=5, labelExpr=_label(value))
    colour = alt.Color("value:Q", scale=shades, title=value.replace("_", " "), legend=legend)
    layers = [base.mark_rect().encode(colour)]
    if fits:
        dark = f"datum.value > {dark_from}"
        ink = alt.condition(dark, alt.value("#ffffff"), alt.value(COLOURS["text"]))
        layers.append(base.mark_text().encode(text="text:N", color=ink))
    height = CELL_HEIGHT if fits else 24
    chart = alt.layer(*layers).properties(width=width * len(columns), height=height * len(lines))
    chart.title = {"text": title}
    return chart


def picture(chart: Any) -> str:
    """A chart as SVG, without a browser."""
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return vl_convert.vegalite_to_svg(chart.to_dict(validate=False), version)


def _label(key: str) -> str:
    """The Vega expression of an axis label."""
    return AXIS_LABELS.get(kind_of(key), "format(datum.value, ',.6~g')")
