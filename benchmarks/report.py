"""Shows records: figures as pictures, and tables as text, by these keys of a record:
- figures: kind (box, bar, line, heatmap), title, x, y, group, where (which rows to use);
  reference: rows that become a horizontal line; chance: the accuracy of guessing, also a line;
  points: columns whose values make a point, in place of x; log_x: whether x is logarithmic;
  order: the order of the groups; names, settings: as in shown.toml; note: a line below the title;
  value, text: columns for the colour and the number in the cells of a heatmap
- tables: title, where, columns and values (which become means), or header and rows_verbatim
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd

from benchmarks.analysis import chosen, groups_of, mean_of, tables_of
from benchmarks.records import Record
from benchmarks.targets.plan import read_tables
from impresslearn.errors import ImpressLearnError
from impresslearn.files import write_file
from impresslearn.plotting import (
    AXIS_LABELS,
    COLOURS,
    HEIGHT,
    SERIES,
    line_chart,
    mark_of,
    picture,
    places_of,
    styled,
)
from impresslearn.tables import format_value, kind_of, signed

WIDTH = 660
SHOWN = read_tables("shown.toml")
# A method has the same colour and shape in every figure: STYLES has its place among them.
NAMES = SHOWN["names"]
STYLES = {name: place for place, names in enumerate(SHOWN["styles"]) for name in names}
Figure = Mapping[str, Any]


def write_figures(records: Sequence[Record], folder: Path) -> list[Path]:
    """Writes every figure as TARGET-NUMBER-TITLE.svg and returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for record in records:
        charts = charts_of(record)
        for number, (figure, chart) in enumerate(zip(record["figures"], charts, strict=True), 1):
            words = re.sub(r"[^a-z0-9]+", "-", figure["title"].lower()).strip("-")[:40]
            name = f"{record['target']}-{number}-{words}".rstrip("-")
            written.append(write_file(folder / f"{name}.svg", picture(chart)))
    return written


def tables_text(record: Record) -> str:
    """The title and tables of a record as text."""
    lines = [f"# {record['title']}", record.get("finding", "")]
    return "\n\n".join([*filter(None, lines), *(table.text() for table in tables_of(record))])


def charts_of(record: Record) -> list[Any]:
    """The figures of a record. Raises ImpressLearnError, which names it, for one without rows."""
    draw = {"box": _boxes, "bar": _bars, "line": _lines, "heatmap": _heatmap}
    frame, charts = pd.DataFrame(record["rows"]), []
    for figure in map(_titled, record["figures"]):
        try:
            charts.append(draw[figure["kind"]](figure, frame))
        except ImpressLearnError as error:
            raise type(error)(f"{record['target']}: {figure['title']}: {error}") from error
    return charts


def _titled(figure: Figure) -> Figure:
    """The figure with its benchmark's full name in the title, and the accuracy of guessing."""
    slug, colon, rest = figure["title"].partition(":")
    if not colon or slug not in SHOWN["benchmarks"]:
        return figure
    # Tasks in box plots have five classes (CIFAR-100) or ten.
    chance = {"chance": 0.2 if "cifar" in slug else 0.1} if figure["kind"] == "box" else {}
    return {**chance, **figure, "title": f"{SHOWN['benchmarks'][slug]}:{rest}"}


def _lines(figure: Figure, frame: pd.DataFrame) -> Any:
    """Means over x, joined by lines unless the figure has `points`."""
    x, y, group = figure["x"], figure["y"], figure["group"]
    keys = [group, *figure.get("points", [x])]
    inside, across, across_name = _split(figure, frame)
    marks = []
    names = {**NAMES, **figure.get("names", {})}
    for place, rows in groups_of(chosen(inside, figure.get("where", {}), [x, y]), keys):
        mark = {group: names.get(place[0], place[0]), x: float(rows[x].mean())}
        for setting in {*SHOWN["settings"], *figure.get("settings", ())}.intersection(place):
            mark["label"] = f"{mark[group]}, {setting}"
        summary, n = mean_of(rows, y)
        marks.append(mark | mark_of(y, summary) | {"over": n})
    joined, notes = "points" not in figure, [figure.get("note", ""), *_notes(marks)]
    if not joined:
        notes.append("steps: a method's best up to this size")
    if across is not None:
        notes.append(f"dashed: {across_name}")
    # If accuracies are near 100%, an axis of errors shows the differences better.
    by_error = not joined and kind_of(y) == "fraction" and max(mark[y] for mark in marks) > 0.95
    chart = line_chart(
        marks, x, y, group, joined=joined, log_x=figure.get("log_x", False),
        styles=STYLES, log_error=by_error, width=WIDTH, across=across,
        x_label=figure.get("x_label", ""), y_label=figure.get("y_label", ""),
    )  # fmt: skip
    return styled(chart, figure["title"], notes)


def _bars(figure: Figure, frame: pd.DataFrame) -> Any:
    """Means as bars from zero, with their intervals."""
    x, y, group = figure["x"], figure["y"], figure["group"]
    marks = []
    rows = chosen(frame, figure.get("where", {}), [x, y])
    for (at, name), part in groups_of(rows, [x, group]):
        summary, n = mean_of(part, y)
        mark = {"x": format_value("", at), "group": str(name), **mark_of(y, summary)}
        marks.append(mark | {"text": format_value(y, summary.mean), "over": n})
    base = _side_by_side(marks, figure)
    layers = [base.mark_bar().encode(_up(y, figure), tooltip=["group:N", "x:N", "text:N"])]
    if any("low" in mark for mark in marks):
        rules = base.mark_rule().encode(_up("low", figure), y2="high:Q")
        layers.append(rules.encode(color=alt.value(COLOURS["text"])))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return styled(chart, figure["title"], _notes(marks))


def _boxes(figure: Figure, frame: pd.DataFrame) -> Any:
    """Boxes over the quartiles, with whiskers to the extremes."""
    x, y, group = figure["x"], figure["y"], figure["group"]
    inside, across, name = _split(figure, frame)
    marks, rows = [], chosen(inside, figure.get("where", {}), [x, y])
    for (at, method), part in groups_of(rows, [x, group]):
        place = {"x": format_value("", at), "group": NAMES.get(method, str(method))}
        marks += [{**place, "y": float(value)} for value in part[y]]
    base, up = _side_by_side(marks, figure), _up("y", figure, zero=False)
    means = base.mark_point(shape="diamond", fill=COLOURS["surface"], size=45)
    layers = [
        base.mark_boxplot(extent="min-max", size=12).encode(up),
        base.mark_circle(size=10, opacity=0.5).encode(up),
        means.encode(_up("mean(y)", figure, zero=False)),
    ]
    notes = ["box: middle half, median; whiskers: extremes; diamond: mean; points: single results"]
    if figure.get("chance") and kind_of(y) == "fraction":
        layers.append(_across(figure["chance"], "chance"))
    if across is not None:
        layers.append(_across(across, f"{name} {format_value(y, across)}"))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    return styled(chart, figure["title"], notes)


def _heatmap(figure: Figure, frame: pd.DataFrame) -> Any:
    """Means in the cells of two columns, each followed by the number that `text` names."""
    x, y, value, text = (figure[key] for key in ("x", "y", "value", "text"))
    rows = chosen(frame, figure.get("where", {}), [x, y, value])
    cells = []
    for (column, line), part in groups_of(rows, [x, y]):
        mean = float(part[value].mean())
        cell = {"x": format_value("", column), "y": format_value("", line), "value": mean}
        inside = f"{format_value(value, mean)} ({signed(float(part[text].mean()))})"
        cells.append(cell | {"text": inside})
    columns = list(dict.fromkeys(cell["x"] for cell in cells))
    lines = sorted({cell["y"] for cell in cells}, reverse=True)  # numbers grow upwards
    base = alt.Chart(alt.InlineData(values=cells)).encode(
        alt.X("x:N", sort=columns, title=figure["x_label"], axis=alt.Axis(labelAngle=0)),
        alt.Y("y:N", sort=lines, title=figure["y_label"]),
    )
    shades = alt.Scale(range=[COLOURS["accent"], COLOURS["band"]])  # small p-values stand out
    colour = alt.Color("value:Q", scale=shades, legend=None)  # the cells have the numbers
    text_layer = base.mark_text().encode(text="text:N")
    chart = alt.layer(base.mark_rect(opacity=0.5).encode(colour), text_layer)
    chart = chart.properties(width=110 * len(columns), height=44 * len(lines))
    notes = [f"{value.replace('_', ' ')}, in brackets: {text.replace('_', ' ')}"]
    return styled(chart, figure["title"], notes)


def _split(figure: Figure, frame: pd.DataFrame) -> tuple[pd.DataFrame, float | None, str]:
    """The rows of the figure without its reference, the mean of the reference, and its name."""
    if "reference" not in figure:
        return frame, None, ""
    across = chosen(frame, {**figure.get("where", {}), **figure["reference"]}, [figure["y"]])
    name = ", ".join(NAMES.get(value, value) for value in figure["reference"].values())
    return frame.drop(across.index), mean_of(across, figure["y"])[0].mean, name


def _across(value: float, name: str) -> Any:
    """A horizontal dashed line, with its name at the right end."""
    base = alt.Chart(alt.InlineData(values=[{"y": value, "name": name}])).encode(y="y:Q")
    words = base.mark_text(align="left", dx=4, color=COLOURS["muted"])
    rule = base.mark_rule(strokeDash=[5, 4], strokeWidth=1.5, color=COLOURS["muted"])
    return rule + words.encode(x=alt.value(WIDTH), text="name:N")


def _side_by_side(marks: Sequence[Mapping[str, Any]], figure: Figure) -> Any:
    """A layer of marks over x; the groups at one place of x are side by side."""
    columns = list(dict.fromkeys(mark["x"] for mark in marks))
    names = list(dict.fromkeys(mark["group"] for mark in marks))
    order = [NAMES.get(name, name) for name in figure.get("order", ())]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    axis = alt.Axis(labelAngle=0)
    across = alt.X("x:N", sort=columns, axis=axis, title=figure.get("x_label", figure["x"]))
    places = places_of(names, STYLES)
    scale = alt.Scale(domain=names, range=[SERIES[places[name]] for name in names])
    legend = alt.Legend(title=None, symbolOpacity=1, orient="bottom", columns=3)
    colour = alt.Color("group:N", scale=scale, legend=legend)
    base = alt.Chart(alt.InlineData(values=list(marks)))
    return base.encode(across, xOffset=alt.XOffset("group:N", sort=names), color=colour)


def _up(field: str, figure: Figure, zero: bool = True) -> alt.Y:
    label = AXIS_LABELS.get(kind_of(figure["y"]), "format(datum.value, ',.6~g')")
    title = figure.get("y_label", figure["y"].replace("_", " "))
    axis = alt.Axis(labelExpr=label, tickCount=6)
    return alt.Y(f"{field}:Q", title=title, axis=axis, scale=alt.Scale(zero=zero))


def _notes(marks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes that explain the intervals and points of a figure."""
    over = " or ".join(dict.fromkeys(mark["over"] for mark in marks))
    notes = ["one result each" if over == "1 row" else f"means over {over}"]
    if any("low" in mark for mark in marks):
        notes.append("thin lines and bands: 95% interval")
    if any("draws" in mark for mark in marks):
        notes.append("small points: single draws, too few for an interval")
    return notes
