"""The library's Altair charts (line charts and heat maps), their style, and pictures of them.

Import this module inside functions, because importing Altair takes a second.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle, product
from typing import Any

import altair as alt
import numpy as np

from impresslearn.errors import InputError
from impresslearn.statistics import Summary
from impresslearn.tables import format_value, kind_of, texts_of

COLOURS = {
    "surface": "#ffffff",
    "text": "#1d2129",
    "muted": "#5f6773",
    "line": "#e3e4e1",
    "band": "#eef1f6",
    "accent": "#1f5fd0",
}
# Colours with a contrast of at least 3:1 on white. Marks of different groups also differ in shape.
SERIES = (
    *("#1f5fd0", "#c2570c", "#0f7a63", "#a93fc0", "#8c1c34", "#857400", "#1c7fb0", "#5f6773"),
    *("#c2306f", "#3d6b1f", "#6b4bd6", "#7d4b2a", "#0b4f5c", "#b3473f", "#4f6f9f", "#8a5a8f"),
)
SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "cross", "triangle-down"),
    *("triangle-right", "triangle-left"),
)
MOST_IN_A_LEGEND = 6  # groups; if there are more, each has a label beside its marks
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
WIDTH, HEIGHT = 420, 400
LETTER_WIDTH = 6.4  # mean width of a letter of a label, in pixels
LABEL_PLACES = [(dx, dy) for dy in (0, 8, -8, 11, -11, 20, -20, 23, -23) for dx in (9, -9)]
LABEL_PLACES += [(0, 14), (0, -14)]
MARGIN = 0.05  # the share of an axis beyond the outermost marks
ERRORS = (0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005)  # ticks of errors
FEW_TICKS = 8
LOG_ERRORS = " (errors on a log scale)"
CELL_WIDTH, CELL_HEIGHT = 70, 40
LEAST_ERROR = 0.001
LETTER = 7  # width of a digit in pixels: a cell shows its number if it fits


def styled(chart: Any, title: str = "", notes: Sequence[str] = (), description: str = "") -> Any:
    """Puts the library's fonts and colours on a complete chart.

    - title: the title above the chart
    - notes: lines below the title, which say what the marks mean
    - description: the chart in one sentence, for screen readers; by default the title
    """
    if title or notes:
        chart.title = {"text": title, "subtitle": [note for note in notes if note]}
    chart.description = description or title
    chart.config = CONFIG  # in place, as Altair takes long to copy a layered chart
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
    across: float | None = None,
    styles: Mapping[str, int] | None = None,
    width: int = WIDTH,
) -> Any:
    """A chart of `y` over `x`, with one colour per group; call `styled` on the result.

    - rows: one mark each. Optional keys: `low` and `high` for an interval, `draws` for numbers that
      are drawn as points, `label` for a text beside the mark
    - x, y, group: keys of the rows
    - joined: whether a line joins the marks of a group; otherwise a step line shows the best y so
      far
    - log_x: whether the horizontal axis is logarithmic
    - log_error: whether the vertical axis is the logarithm of 1 - y, for y that is a share
    - across: a value of y at which a dashed line is drawn
    - styles: group -> its place in `SERIES`, for groups that look the same in all figures

    Raises InputError if there are no rows.
    """
    if log_x:
        rows = [row for row in rows if row[x] > 0]  # a logarithmic axis has no zero
    if not rows:
        raise InputError(f"no row has {x} and {y}; there is nothing to draw")
    marks: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []

    def up_to(value: float) -> float:
        return max(1 - value, LEAST_ERROR) if log_error else value

    for row in rows:
        mark = {"x": row[x], "y": up_to(row[y]), "group": str(row[group])}
        mark |= {"value": format_value(y, row[y]), "label": row.get("label", mark["group"])}
        if row.get("low") is not None:
            mark |= {"low": up_to(row["low"]), "high": up_to(row["high"])}
        marks.append(mark)
        points += [{**mark, "y": up_to(draw)} for draw in row.get("draws", ())]
    horizontal = _horizontal(rows, x, x_label, log_x)
    title_up = (y_label or y) + LOG_ERRORS * log_error
    shown = [mark[key] for mark in (*marks, *points) for key in ("y", "low", "high") if key in mark]
    shown += [] if across is None else [up_to(across)]
    up = _vertical(shown, y, title_up, log_error)
    names = list(dict.fromkeys(mark["group"] for mark in marks))
    places = list(places_of(names, styles or {}).values())
    labels = {mark["label"] for mark in marks}
    labelled = not joined and (len(names) > MOST_IN_A_LEGEND or labels != set(names))
    legend = None if labelled or len(names) == 1 else alt.Legend(title=None, symbolOpacity=1)
    colours = alt.Scale(domain=names, range=[SERIES[place] for place in places])
    shapes = alt.Scale(domain=names, range=[SHAPES[place % len(SHAPES)] for place in places])
    colour = alt.Color("group:N", scale=colours, legend=legend)
    tips = [alt.Tooltip("group:N"), alt.Tooltip("x:Q", title=x), alt.Tooltip("value:N", title=y)]

    def layer(values: list[dict[str, Any]]) -> Any:
        data = alt.InlineData(values=values)
        return alt.Chart(data).encode(horizontal, color=colour, tooltip=tips)

    layers = []
    if intervals := [mark for mark in marks if "low" in mark]:
        drawn = layer(intervals)
        band = drawn.mark_area(opacity=0.12) if joined else drawn.mark_rule(opacity=0.6)
        layers.append(band.encode(alt.Y("low:Q", title=title_up), y2="high:Q"))
    shape = alt.Shape("group:N", scale=shapes, legend=legend)
    dots = layer(marks).mark_point(filled=True, size=50, opacity=1).encode(up, shape)
    if joined:
        layers.append(layer(marks).mark_line(strokeWidth=2).encode(up))
    else:
        best = {"best": "min(y)" if log_error else "max(y)"}
        steps = layer(marks).mark_line(interpolate="step-after", opacity=0.45)
        steps = steps.transform_window(sort=[alt.SortField("x")], groupby=["group"], **best)
        layers.append(steps.encode(alt.Y("best:Q", title=title_up)))
    if points:
        layers.append(layer(points).mark_circle(size=16, opacity=0.5).encode(up))
    layers.append(dots)
    if across is not None:
        rule = alt.Chart(alt.InlineData(values=[{"y": up_to(across)}])).encode(up)
        layers.append(rule.mark_rule(strokeDash=[5, 4], strokeWidth=1.5, color=COLOURS["muted"]))
    if labelled:
        spots = [*marks, *points]
        left = _pixels(spots, "x", horizontal, log_x, (0, width))
        top = _pixels(spots, "y", up, log_error, (0, HEIGHT) if log_error else (HEIGHT, 0))
        text = layer(_labels(spots, len(marks), left, top)).encode(up, text="label:N")
        own: Any = {key: alt.ExprRef(f"datum.{key}") for key in ("align", "dx", "dy")}
        layers.append(text.mark_text(stroke=COLOURS["surface"], strokeWidth=3, aria=False, **own))
        layers.append(text.mark_text(**own))
    chart = alt.layer(*layers).properties(width=width, height=HEIGHT)
    chart.title = {"text": title, "subtitle": [note for note in notes if note]}
    return chart


def places_of(names: Sequence[str], styles: Mapping[str, int]) -> dict[str, int]:
    """Each group's place in `SERIES`: its place in `styles`, or else the first unused place."""
    # If two groups have the same place in `styles`, the second gets an unused place.
    owners = {styles[name]: name for name in reversed(names) if name in styles}
    own = {name: place for place, name in owners.items()}
    left = cycle([place for place in range(len(SERIES)) if place not in owners] or [0])
    return {name: own[name] if name in own else next(left) for name in names}


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten from below `low` to above `high`, with 2 and 5 between them if they are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if low / 2 <= tick <= high * 2]


def _ends(values: Sequence[float], log: bool) -> list[float]:
    """The ends of an axis for these values."""
    low, high = min(values), max(values)
    if not log:
        margin = MARGIN * (high - low or abs(high) or 1)
        return [low - margin, high + margin]
    if high < 3 * low:
        low, high = low / 2, high * 2  # a narrower axis may have a single tick
    return [low / (high / low) ** MARGIN, high * (high / low) ** MARGIN]


def _horizontal(rows: Sequence[Mapping[str, Any]], x: str, label: str, log: bool) -> alt.X:
    values = [row[x] for row in rows]
    ends = _ends(values, log)
    ticks: dict[str, Any] = {"values": log_ticks(min(values), max(values))} if log else {}
    # An axis of counts, such as learned tasks, has no ticks between integers. If there are few
    # counts, each has its tick. (Bytes of tasks are often too close together for that.)
    if not log and all(isinstance(value, int) for value in values):
        counts = sorted(set(values))
        few = len(counts) <= FEW_TICKS and kind_of(x) != "bytes"
        ticks = {"values": counts} if few else {"tickMinStep": 1}
    scale = alt.Scale(type="log" if log else "linear", domain=ends, nice=False)
    axis = alt.Axis(labelExpr=_label(x), labelOverlap=True, labelSeparation=4, **ticks)
    return alt.X("x:Q", title=label or x, scale=scale, axis=axis)


def _vertical(values: Sequence[float], key: str, title: str, log_error: bool) -> alt.Y:
    """The vertical axis; with log_error, a logarithmic axis of errors."""
    ends = _ends(values, log_error)
    if "seconds" in key:
        ends[0] = 0.0  # durations start at 0
    scale = alt.Scale(domain=ends, nice=False, zero=False)
    axis = alt.Axis(labelExpr=_label(key), tickCount=6)
    if log_error:
        scale = alt.Scale(type="log", domain=ends, reverse=True, nice=False)
        axis = alt.Axis(labelExpr="format(1 - datum.value, '.3~%')", values=list(ERRORS))
    return alt.Y("y:Q", title=title, scale=scale, axis=axis)


def _pixels(spots: list[Any], key: str, axis: Any, log: bool, onto: tuple[int, int]) -> Any:
    """The positions of marks and draws along an axis, in pixels."""
    place = np.log if log else np.asarray
    values = [spot[key] for spot in spots]
    return np.interp(place(values), place(axis["scale"]["domain"]), onto)


def _labels(spots: list[dict[str, Any]], marks: int, x: Any, y: Any) -> list[dict[str, Any]]:
    """Places labels, each near a mark that it names and over as few other spots as possible.

    - spots: marks and draws; the first `marks` of them are marks
    - x, y: the positions of the spots in pixels
    """
    owner = np.array([spot["group"] for spot in spots])
    weight = np.where(np.arange(len(spots)) < marks, 40, 25)  # the cost of covering each
    choices: dict[str, list[tuple[Any, ...]]] = {}
    for number, (dx, dy) in product(reversed(range(marks)), LABEL_PLACES):
        align, shift = {9: ("left", 0), 0: ("center", 0.5), -9: ("right", 1)}[dx]
        name, text = spots[number]["group"], spots[number]["label"]
        length = LETTER_WIDTH * len(text) + 6
        left, top = x[number] + dx - length * shift, y[number] + dy
        gaps = np.max([left - x, x - left - length, abs(y - top) - 6], axis=0)
        nearer = gaps[owner == name].min() - gaps[owner != name].min()
        cost = weight @ (gaps < 3) + abs(dy) / 10 + 60 * (nearer > 0) + 20 * (nearer > -3)
        cost += 1000 * (left < 0) + 15 * (not 0 < top < HEIGHT)
        label = {**spots[number], "align": align, "dx": dx, "dy": dy}
        choices.setdefault(text, []).append((cost, left, left + length, top, label))
    chosen: dict[str, tuple[Any, ...]] = {}
    hardest = sorted(choices, key=lambda name: -min(cost for cost, *_ in choices[name]))
    for name in hardest * 3:  # repeat, as earlier labels may have to avoid later ones
        others = [chosen[other] for other in chosen if other != name]
        least = math.inf
        for choice in choices[name]:
            cost, left, right, top, _ = choice
            hits = (left < b and a < right and abs(top - at) < 12 for _, a, b, at, _ in others)
            if (cost := cost + 150 * sum(hits)) < least:
                least, chosen[name] = cost, choice
    return [label for *_, label in chosen.values()]


def mark_of(key: str, summary: Summary) -> dict[str, Any]:
    """A summary as a mark of a chart, with its interval, or with its draws if it has none."""
    mark: dict[str, Any] = {key: summary.mean}
    if summary.half_width is not None:
        low, high = summary.mean - summary.half_width, summary.mean + summary.half_width
        if kind_of(key) == "fraction":  # clip accuracies to 0% and 100%
            low, high = max(low, 0.0), min(high, 1.0)
        mark |= {"low": low, "high": high}
    elif len(summary.draws) > 1:
        mark["draws"] = summary.draws
    return mark


def heatmap(
    rows: Sequence[Mapping[str, Any]], x: str, y: str, value: str, *, title: str = ""
) -> Any:
    """A heat map with numbers in the cells if they fit; call `styled` on the result.

    - rows: one per cell
    - x, y, value: keys of the rows; x and y keep the order in which their values first occur

    Raises InputError if there are no rows.
    """
    if not rows:
        raise InputError(f"no row has {x}, {y} and {value}; there is nothing to draw")
    cells = []
    across, down = (texts_of(key, (row[key] for row in rows)) for key in (x, y))
    for row in rows:
        cell = {"x": across[row[x]], "y": down[row[y]], "value": row[value]}
        cells.append(cell | {"text": format_value(value, row[value])})
    columns, lines = list(across.values()), list(down.values())
    # White text has a contrast of at least 4:1 on the darkest quarter of the shades.
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
    """A chart as the text of an SVG picture; needs no browser."""
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return vl_convert.vegalite_to_svg(chart.to_dict(validate=False), version)


def _label(key: str) -> str:
    """The Vega expression for the labels of an axis."""
    return AXIS_LABELS.get(kind_of(key), "format(datum.value, ',.6~g')")
