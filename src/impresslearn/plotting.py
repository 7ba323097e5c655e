"""The library's two kinds of Altair charts, their look, and files of charts and pages.

Import this module inside functions: Altair takes a second to import.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import altair as alt

from impresslearn.errors import InputError
from impresslearn.files import write_file
from impresslearn.statistics import Summary
from impresslearn.tables import Table, format_value, kind_of

COLOURS = {
    "surface": "#ffffff",
    "text": "#1d2129",
    "muted": "#5f6773",
    "line": "#e3e4e1",
    "band": "#eef1f6",
    "accent": "#1f5fd0",
}
# Chosen by their distances under protanopia, deuteranopia and tritanopia; paler from the ninth on.
SERIES = (
    *("#1f5fd0", "#e07b10", "#15937a", "#c566d9", "#8c1c34", "#cdb620", "#4fb3e6", "#7a828d"),
    *("#9db9ec", "#f0c796", "#93cfc2", "#e3bdec", "#c98f9b", "#e8dc97", "#b2dcf3", "#c3c7cc"),
)
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
CELL_WIDTH, CELL_HEIGHT = 70, 40
LETTER = 7  # pixels: a cell shows its number where that fits
FORMATS = ("svg", "pdf", "png")
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ margin: 0 auto; max-width: 1100px; padding: 32px 24px; color: #1d2129;
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
p {{ color: #5f6773; }}
figure {{ margin: 24px 0; overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 5px 12px; text-align: left; border-bottom: 1px solid #e3e4e1; }}
th {{ font-weight: 500; color: #5f6773; }}
.right {{ text-align: right; }}
</style></head>
<body><h1>{title}</h1><p>{lead}</p>
{body}
</body></html>
"""


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
) -> Any:
    """Values of `y` over `x`, one colour per group; not yet `styled`.

    - rows: one mark each; keys `low` and `high` of a row are drawn as an interval, and the numbers
      under `draws` as points
    - x, y, group: keys of the rows
    - joined: whether a line joins the marks of a group
    - log_x: whether the horizontal axis is logarithmic

    Raises InputError without a row.
    """
    if not rows:
        raise InputError(f"no row has {x} and {y}; there is nothing to draw")
    marks, intervals, points = [], [], []
    for row in rows:
        mark = {"x": row[x], "y": row[y], "group": str(row[group])}
        mark["value"] = format_value(y, row[y])
        marks.append(mark)
        if row.get("low") is not None:
            intervals.append({**mark, "low": row["low"], "high": row["high"]})
        points += [{**mark, "y": draw} for draw in row.get("draws", ())]
    scale: Any = {"type": "log"} if log_x else {"zero": False, "nice": False, "padding": 12}
    # Counts, such as tasks learned, have no ticks between integers.
    whole = {"tickMinStep": 1} if all(isinstance(row[x], int) for row in rows) else {}
    across_axis = _axis(x, labelOverlap=True, **whole)
    across = alt.X("x:Q", title=x_label or x, scale=alt.Scale(**scale), axis=across_axis)
    up_scale = alt.Scale(zero=False, padding=8)
    up = alt.Y("y:Q", title=y_label or y, scale=up_scale, axis=_axis(y, tickCount=6))
    colour = alt.Color("group:N", sort=None, legend=alt.Legend(title=None, symbolOpacity=1))
    tips = [alt.Tooltip("group:N"), alt.Tooltip("x:Q", title=x), alt.Tooltip("value:N", title=y)]

    def layer(values: list[dict[str, Any]]) -> Any:
        return alt.Chart(alt.InlineData(values=values)).encode(across, color=colour, tooltip=tips)

    layers = []
    if intervals:
        drawn = layer(intervals)
        band = drawn.mark_area(opacity=0.12) if joined else drawn.mark_rule(opacity=0.6)
        layers.append(band.encode(alt.Y("low:Q", title=y_label or y), y2="high:Q"))
    if joined:
        layers.append(layer(marks).mark_line(strokeWidth=2).encode(up))
    if points:
        layers.append(layer(points).mark_circle(size=16, opacity=0.5).encode(up))
    layers.append(layer(marks).mark_point(filled=True, size=50).encode(up))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    chart.title = {"text": title, "subtitle": [note for note in notes if note]}
    return chart


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
    middle = (min(row[value] for row in rows) + max(row[value] for row in rows)) / 2
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
        dark = f"datum.value > {middle}"
        ink = alt.condition(dark, alt.value("#ffffff"), alt.value(COLOURS["text"]))
        layers.append(base.mark_text().encode(text="text:N", color=ink))
    height = CELL_HEIGHT if fits else 24
    chart = alt.layer(*layers).properties(width=width * len(columns), height=height * len(lines))
    chart.title = {"text": title}
    return chart


def save_chart(chart: Any, path: str | os.PathLike) -> Path:
    """Writes a chart as a picture, without a browser; returns the path.

    - chart: an Altair chart
    - path: ends in .svg, .pdf or .png

    Raises InputError for another ending, and where the file cannot be written.
    """
    suffix = Path(path).suffix.removeprefix(".").lower()
    if suffix not in FORMATS:
        raise InputError(f"a chart is saved as .svg, .pdf or .png, got {os.fspath(path)!r}")
    return write_file(path, picture(chart, suffix))


def picture(chart: Any, suffix: str) -> bytes:
    """The bytes of a chart as svg, pdf or png."""
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    specification = chart.to_dict(validate=False)
    if suffix == "svg":
        return vl_convert.vegalite_to_svg(specification, version).encode()
    if suffix == "pdf":
        return vl_convert.vegalite_to_pdf(specification, version)
    return vl_convert.vegalite_to_png(specification, version, scale=2)


def write_page(
    path: str | os.PathLike, title: str, lead: str, parts: Sequence[tuple[str, Any]]
) -> Path:
    """Writes tables and charts as one HTML file that loads nothing; returns the path.

    - title, lead: the heading and the line below it
    - parts: a caption, which may be empty, and a `Table` or an Altair chart each

    Raises InputError where the file cannot be written.
    """
    body = []
    for caption, part in parts:
        if caption:
            body.append(f"<p>{escape(caption)}</p>")
        if isinstance(part, Table):
            body.append(part.html())
        else:
            # As an image: the names of gradients and clips in two charts are the same.
            data = base64.b64encode(picture(part, "svg")).decode()
            alt_text = escape(str(getattr(part, "description", "") or title), quote=True)
            body.append(f'<figure><img alt="{alt_text}" src="data:image/svg+xml;base64,{data}">')
            body.append("</figure>")
    page = PAGE.format(title=escape(title), lead=escape(lead), body="\n".join(body))
    return write_file(path, page)


def _axis(key: str, **settings: Any) -> alt.Axis:
    return alt.Axis(labelExpr=_label(key), **settings)


def _label(key: str) -> str:
    """The Vega expression of an axis label."""
    return AXIS_LABELS.get(kind_of(key), "format(datum.value, ',.6~g')")
