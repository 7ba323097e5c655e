"""The demo's three figures as plotly figures; usable in a notebook as well as in the page.

Every function takes the result record and a palette.
"""

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from typing import Any

import plotly.graph_objects as go

from impresslearn.report.canvas import LABEL_LIMIT, empty_figure, escape, name_positions
from impresslearn.report.palette import LIGHT, Palette
from impresslearn.report.record import check_demo_record, tasks_of
from impresslearn.report.wording import power_of_ten, shortened, size

METHODS = (
    ("accuracy", "ImpressLearn", "learned"),
    ("supsup_accuracy", "SupSup", "supsup"),
    ("single_mask_accuracy", "Single mask (X)", "single"),
)
"""(key of a task, name in the legend, colour)."""


def accuracy_figure(results: Mapping[str, Any], palette: Palette = LIGHT) -> go.Figure:
    """Accuracy of every task under each method, basis tasks on a band of their own."""
    check_demo_record(results)
    tasks = _basis_first(results)
    figure = empty_figure(palette, height=380)
    names = [escape(str(task["name"])) for task in tasks]
    for key, label, colour in METHODS:
        figure.add_bar(
            x=list(range(len(tasks))),
            y=[task[key] for task in tasks],
            name=label,
            marker={"color": getattr(palette, colour), "line": {"width": 0}},
            customdata=names,
            hovertemplate=f"<b>%{{customdata}}</b><br>{label} %{{y:.1%}}<extra></extra>",
        )
    figure.update_layout(barmode="group", bargap=0.28, bargroupgap=0.06)
    figure.update_yaxes(range=[0, 1.09], tickvals=[0, 0.25, 0.5, 0.75, 1], tickformat=".0%")
    _name_tasks(figure, tasks)
    _mark_roles(figure, results, palette)
    return figure


def coefficients_figure(results: Mapping[str, Any], palette: Palette = LIGHT) -> go.Figure:
    """Coefficients as a heat map: a row per task, a column per mask, one block a layer."""
    check_demo_record(results)
    part = results["coefficients"]
    masks, layers, tasks = (list(map(str, part[key])) for key in ("masks", "layers", "tasks"))
    rows: list[list[float | None]] = []
    hover: list[list[list[str]]] = []
    for task, of_task in zip(tasks, part["values"], strict=True):
        row: list[float | None] = []
        texts: list[list[str]] = []
        for position, layer in enumerate(layers):
            if position:  # an empty column sets the blocks apart
                row.append(None)
                texts.append(["", "", ""])
            row += [of_mask[position] for of_mask in of_task]
            texts += [[escape(task), escape(mask), escape(layer)] for mask in masks]
        rows.append(row)
        hover.append(texts)
    largest = max((abs(value) for row in rows for value in row if value is not None), default=0)
    figure = empty_figure(palette, height=130 + max(26 * min(len(tasks), 30), 80))
    figure.add_heatmap(
        z=rows,
        customdata=hover,
        zmin=-largest or -1,
        zmax=largest or 1,
        colorscale=[[0, palette.negative], [0.5, palette.zero], [1, palette.positive]],
        xgap=1,
        ygap=1,
        hoverongaps=False,
        hovertemplate=(
            "<b>%{customdata[0]}</b><br>mask %{customdata[1]}<br>layer %{customdata[2]}"
            "<br>coefficient %{z:.3f}<extra></extra>"
        ),
        colorbar={"thickness": 10, "outlinewidth": 0, "len": 1, "nticks": 5, "xpad": 6},
    )
    name_positions(figure.update_yaxes, tasks, autorange="reversed", showgrid=False, zeroline=False)
    width = len(masks) + 1
    step = max(1, ceil(len(masks) * len(layers) / LABEL_LIMIT))
    name_positions(
        figure.update_xaxes,
        masks[::step] * len(layers),
        [block * width + i for block in range(len(layers)) for i in range(0, len(masks), step)],
    )
    _head_blocks(figure, layers, width, palette)
    figure.update_layout(margin={"t": 24})
    return figure


def bytes_figure(results: Mapping[str, Any], palette: Palette = LIGHT) -> go.Figure:
    """What every task costs, on a logarithmic scale, with a SupSup mask as the yardstick."""
    check_demo_record(results)
    tasks = _basis_first(results)
    figure = empty_figure(palette, height=330)
    position = 0
    for role, label, symbol in (
        ("basis", "basis task: a mask", "circle-open"),
        ("new", "new task: coefficients", "circle"),
    ):
        chosen = tasks_of(results, role)
        figure.add_scatter(
            x=list(range(position, position + len(chosen))),
            y=[max(task["bytes"], 1) for task in chosen],  # a logarithm knows no zero
            mode="markers",
            name=label,
            marker={
                "color": palette.learned,
                "size": 9,
                "symbol": symbol,
                "line": {"color": palette.learned, "width": 2},
            },
            customdata=[[escape(str(task["name"])), size(task["bytes"])] for task in chosen],
            hovertemplate="<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
        )
        position += len(chosen)
    yardstick = results["summary"]["bytes_per_supsup_mask"]
    sizes = [max(task["bytes"], 1) for task in tasks]
    if yardstick:
        sizes.append(yardstick)
        figure.add_hline(y=yardstick, line={"color": palette.muted, "width": 1, "dash": "dash"})
        figure.add_annotation(
            text=f"a SupSup mask: {size(yardstick)}",
            x=1,
            xref="paper",
            xanchor="right",
            y=log10(yardstick),
            yanchor="bottom",
            showarrow=False,
            font={"color": palette.muted, "size": 12},
        )
    lowest, highest = floor(log10(min(sizes))), ceil(log10(max(sizes)) + 0.15)
    powers = range(lowest, highest + 1)
    figure.update_yaxes(
        type="log",
        range=[lowest - 0.15, highest],
        tickvals=[10**power for power in powers],
        ticktext=[power_of_ten(power) for power in powers],
    )
    _name_tasks(figure, tasks)
    return figure


def _basis_first(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return tasks_of(results, "basis") + tasks_of(results, "new")


def _name_tasks(figure: go.Figure, tasks: Sequence[Mapping[str, Any]]) -> None:
    name_positions(figure.update_xaxes, [str(task["name"]) for task in tasks])
    figure.update_xaxes(range=[-0.6, len(tasks) - 0.4])


def _mark_roles(figure: go.Figure, results: Mapping[str, Any], palette: Palette) -> None:
    """A band behind the basis tasks, and both roles named inside the plot's upper edge."""
    basis, new = len(tasks_of(results, "basis")), len(tasks_of(results, "new"))
    if basis:
        figure.add_vrect(
            x0=-0.6, x1=basis - 0.5, fillcolor=palette.band, layer="below", line={"width": 0}
        )
    for label, start, count in (("basis tasks", -0.5, basis), ("new tasks", basis - 0.4, new)):
        if count:
            figure.add_annotation(
                text=label,
                x=start,
                xanchor="left",
                y=1,
                yref="paper",
                yanchor="top",
                showarrow=False,
                font={"color": palette.muted, "size": 12},
            )


def _head_blocks(figure: go.Figure, layers: Sequence[str], width: int, palette: Palette) -> None:
    """The layers' names above their blocks, thinned where they would overlap."""
    step = max(1, ceil(len(layers) / 12))
    for block in range(0, len(layers), step):
        figure.add_annotation(
            text=escape(shortened(layers[block])),
            x=block * width + (width - 2) / 2,
            y=1,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            font={"color": palette.text, "size": 12},
        )
