"""Charts as plotly figures, for the page and for notebooks.

All numbers are worked out before (`charts`): a box of ten thousand values travels as five numbers
and its outliers. What stands for one group shares a legend entry, so that a click hides all of it.
"""

from collections.abc import Iterator
from math import log10
from typing import Any

import plotly.graph_objects as go

from impresslearn.report.canvas import CLEAR, FONT, empty_figure, escape, name_positions
from impresslearn.report.charts.shapes import (
    BarChart,
    BoxChart,
    Chart,
    HeatChart,
    LineChart,
    MarkSeries,
    Reference,
)
from impresslearn.report.colouring import (
    MARKERS,
    NOTABLE_NAMES,
    heat_colour,
    heat_stops,
    is_hollow,
    notability,
    readable_on,
    translucent,
)
from impresslearn.report.palette import LIGHT, Palette
from impresslearn.report.wording import shortened

MANY = 200
"""Marks beyond which a line chart leaves out intervals and large markers."""
CELL = 46
"""Height of a heat map's row, in pixels."""
CELLS = 16
"""Columns of a heat map up to which its cells have room for a text."""


def draw(chart: Chart, palette: Palette = LIGHT) -> go.Figure:
    """The chart as a plotly figure in these colours."""
    if isinstance(chart, HeatChart):
        return _heat(chart, palette)
    figure = empty_figure(palette, 400, chart.x.slanted)
    if isinstance(chart, BoxChart):
        _boxes(figure, chart, palette)
        boxes = sum(len(series.boxes) for series in chart.series)
    elif isinstance(chart, BarChart):
        _bars(figure, chart, palette)
        boxes = sum(len(series.marks) for series in chart.series)
    else:
        _lines(figure, chart, palette)
        boxes = 0
    for reference in chart.references:
        _reference(figure, chart, reference, palette)
    _axes(figure, chart, palette)
    named = [trace for trace in figure.data if trace.showlegend is not False and trace.name]
    figure.update_layout(
        showlegend=bool(named), meta={**figure.layout.meta, "width": 8 * boxes + 60}
    )
    return figure


def _boxes(figure: go.Figure, chart: BoxChart, palette: Palette) -> None:
    for series in chart.series:
        colour = palette.of_series(series.slot)
        same = {"legendgroup": escape(series.name) or "all", "name": _name(series.name)}
        boxes = series.boxes
        figure.add_box(
            **same,
            showlegend=bool(series.name),
            x=[box.x for box in boxes],
            q1=[box.quartiles[0] for box in boxes],
            median=[box.quartiles[1] for box in boxes],
            q3=[box.quartiles[2] for box in boxes],
            lowerfence=[box.lower for box in boxes],
            upperfence=[box.upper for box in boxes],
            width=chart.width,
            whiskerwidth=0.5,
            line={"color": colour, "width": 1.5},
            fillcolor=CLEAR if is_hollow(series.slot, palette) else translucent(colour, 0.28),
            hoverinfo="skip",
        )
        single = [(box.x, value) for box in boxes for value in box.values or box.outliers]
        figure.add_scatter(
            **same,
            showlegend=False,
            mode="markers",
            x=[x for x, _ in single],
            y=[value for _, value in single],
            marker={"color": colour, "size": 4, "opacity": 0.75},
            hoverinfo="skip",
        )
        figure.add_scatter(
            **same,
            showlegend=False,
            mode="markers",
            x=[box.x for box in boxes],
            y=[box.mean for box in boxes],
            marker={
                "symbol": "diamond",
                "size": 6 if len(chart.series) < 8 else 4,
                "color": palette.surface,
                "line": {"color": colour, "width": 1.5},
            },
            customdata=[
                [
                    escape(f"{chart.x.title} {box.where}"),
                    *(chart.quantity.text(value) for value in (*box.quartiles, box.mean)),
                    box.count,
                ]
                for box in boxes
            ],
            hovertemplate=(
                f"<b>{_name(series.name)}</b> %{{customdata[0]}}<br>median %{{customdata[2]}} "
                "(quartiles %{customdata[1]} to %{customdata[3]})<br>mean %{customdata[4]} · "
                "n = %{customdata[5]}<extra></extra>"
            ),
        )
    figure.update_layout(boxmode="overlay", hoverdistance=60)


def _bars(figure: go.Figure, chart: BarChart, palette: Palette) -> None:
    for series in chart.series:
        colour = palette.of_series(series.slot)
        hollow = is_hollow(series.slot, palette)
        figure.add_bar(
            name=_name(series.name),
            showlegend=bool(series.name),
            x=[mark.x for mark in series.marks],
            y=[mark.mean for mark in series.marks],
            width=chart.width,
            error_y=_error_bars(series, palette.text),
            marker={
                "color": CLEAR if hollow else colour,
                "line": {"color": colour, "width": 1.5 if hollow else 0},
            },
            **_hover(series, chart),
        )
    figure.update_layout(barmode="overlay")


def _lines(figure: go.Figure, chart: LineChart, palette: Palette) -> None:
    if chart.frontier:
        figure.add_scatter(
            name="frontier",
            mode="lines",
            x=[x for x, _ in chart.frontier],
            y=[y for _, y in chart.frontier],
            line={"color": translucent(palette.notable, 0.55), "width": 9, "shape": "hv"},
            hoverinfo="skip",
        )
    many = sum(len(series.marks) for series in chart.series) > MANY
    for series in chart.series:
        colour = palette.of_series(series.slot)
        hollow = is_hollow(series.slot, palette)
        symbol = MARKERS[series.slot % len(MARKERS)]
        figure.add_scatter(
            name=_name(series.name),
            showlegend=bool(series.name),
            mode="lines+markers",
            x=[mark.x for mark in series.marks],
            y=[mark.mean for mark in series.marks],
            error_y=None if many else _error_bars(series, colour),
            line={"color": colour, "width": 2, "dash": "dash" if hollow else "solid"},
            marker={
                "color": colour,
                "size": 4 if many else 8,
                "symbol": f"{symbol}-open" if hollow else symbol,
            },
            **_hover(series, chart),
        )


def _error_bars(series: MarkSeries, colour: str) -> dict[str, object] | None:
    if all(mark.high is None for mark in series.marks):
        return None
    return {
        "type": "data",
        "array": [0.0 if mark.high is None else mark.high - mark.mean for mark in series.marks],
        "color": colour,
        "thickness": 1.2,
        "width": 3,
    }


def _hover(series: MarkSeries, chart: BarChart | LineChart) -> dict[str, object]:
    def interval(low: float | None, high: float | None) -> str:
        if low is None or high is None:
            return ""
        return f"95% interval {chart.quantity.text(low)} to {chart.quantity.text(high)}<br>"

    return {
        "customdata": [
            [
                escape(f"{chart.x.title} {mark.where}"),
                chart.quantity.text(mark.mean),
                interval(mark.low, mark.high),
                f"{mark.count} rows, {mark.units}" if mark.count > 1 else "a single row",
            ]
            for mark in series.marks
        ],
        "hovertemplate": (
            f"<b>{_name(series.name)}</b> %{{customdata[0]}}<br>mean %{{customdata[1]}}<br>"
            "%{customdata[2]}%{customdata[3]}<extra></extra>"
        ),
    }


def _reference(
    figure: go.Figure,
    chart: BoxChart | BarChart | LineChart,
    reference: Reference,
    palette: Palette,
) -> None:
    colour = palette.of_series(reference.slot)
    low, high = reference.mean - reference.deviation, reference.mean + reference.deviation
    same = {"legendgroup": f"reference {escape(reference.name)}"}
    ends = [chart.x.low, chart.x.high]
    figure.add_scatter(
        **same,
        showlegend=False,
        mode="lines",
        x=[*ends, *reversed(ends)],
        y=[low, low, high, high],
        fill="toself",
        fillcolor=translucent(colour, 0.16),
        line={"width": 0},
        hoverinfo="skip",
    )
    figure.add_scatter(
        **same,
        name=f"{_name(reference.name)} (mean ± deviation)",
        mode="lines",
        x=ends,
        y=[reference.mean] * 2,
        line={"color": colour, "width": 1.5, "dash": "dash"},
        hovertemplate=(
            f"<b>{_name(reference.name)}</b><br>mean {chart.quantity.text(reference.mean)}, "
            f"standard deviation {chart.quantity.text(reference.deviation)}<br>"
            f"n = {reference.count}<extra></extra>"
        ),
    )


def _heat(chart: HeatChart, palette: Palette) -> go.Figure:
    figure = empty_figure(palette, 120 + CELL * min(len(chart.y.labels), 30), chart.x.slanted)
    stops = heat_stops(chart, palette)
    stepped = chart.scale == "probability"
    last = len(stops) - 1
    bar: dict[str, Any] = {"thickness": 10, "outlinewidth": 0, "len": 1, "xpad": 6, "nticks": 5}
    if stepped:
        bar |= {"tickvals": list(range(len(stops))), "ticktext": list(NOTABLE_NAMES)}
        edges = [index / len(stops) for index in range(len(stops) + 1)]
        colours = [[edge, stops[i]] for i in range(len(stops)) for edge in edges[i : i + 2]]
    else:
        colours = [[index / last, stop] for index, stop in enumerate(stops)]
    figure.add_heatmap(
        z=[
            [value if value is None or not stepped else notability(value) for value in line]
            for line in chart.values
        ],
        zmin=-0.5 if stepped else chart.low,
        zmax=last + 0.5 if stepped else chart.high,
        colorscale=colours,
        colorbar={**bar, "title": {"text": escape(chart.value_title), "font": {"size": 12}}},
        customdata=[
            [
                [escape(part) for part in _told(chart, row, column)]
                for column in range(len(chart.x.labels))
            ]
            for row in range(len(chart.y.labels))
        ],
        xgap=2,
        ygap=2,
        hoverongaps=False,
        hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
    )
    if len(chart.x.labels) <= CELLS:
        figure.update_layout(annotations=list(_cell_texts(chart, palette)))
    _axes(figure, chart, palette)
    figure.update_xaxes(range=[-0.5, len(chart.x.labels) - 0.5])
    figure.update_yaxes(range=[-0.5, len(chart.y.labels) - 0.5], showgrid=False, zeroline=False)
    figure.update_layout(margin={"t": 16})
    return figure


def _cell_texts(chart: HeatChart, palette: Palette) -> Iterator[dict[str, Any]]:
    for row, values in enumerate(chart.values):
        for column, value in enumerate(values):
            if value is not None and chart.texts[row][column]:
                yield {
                    "x": column,
                    "y": row,
                    "text": escape(chart.texts[row][column]),
                    "showarrow": False,
                    "font": {"color": readable_on(heat_colour(chart, palette, value))},
                }


def _told(chart: HeatChart, row: int, column: int) -> tuple[str, str]:
    where = f"{chart.x.title} {chart.x.labels[column]} · {chart.y.title} {chart.y.labels[row]}"
    value = chart.values[row][column]
    if value is None:
        return where, ""
    note = chart.notes[row][column]
    return where, f"{chart.value_title} {chart.quantity.text(value)}" + (
        f" · {note}" if note else ""
    )


def _axes(figure: go.Figure, chart: Chart, palette: Palette) -> None:
    title = {"font": {"size": 13, "color": palette.text, "family": FONT}, "standoff": 10}
    for update, axis in ((figure.update_xaxes, chart.x), (figure.update_yaxes, chart.y)):
        name_positions(update, axis.labels, axis.ticks)
        update(
            title={**title, "text": escape(axis.title)},
            range=[log10(axis.low), log10(axis.high)] if axis.log else [axis.low, axis.high],
            type="log" if axis.log else "linear",
            minor={"ticks": ""},
        )


def _name(name: str) -> str:
    return escape(shortened(name, 40))
