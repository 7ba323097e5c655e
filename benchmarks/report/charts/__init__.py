"""What a record asks for, as Altair charts: pages, notebooks and pictures draw the same ones."""

from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any

import altair as alt

from benchmarks.report.charts.grouped import bar_chart, box_chart, line_chart
from benchmarks.report.charts.heatmaps import heatmap_chart
from benchmarks.report.charts.theme import VEGA_LITE, themed_chart
from benchmarks.report.records import Record
from benchmarks.report.specification import Figure, naming
from impresslearn.errors import InputError

__all__ = ["VEGA_LITE", "charts_of", "comparison_chart"]
_DRAW: dict[str, Callable[..., Any]] = {
    "box": box_chart,
    "bar": bar_chart,
    "line": line_chart,
    "heatmap": heatmap_chart,
}


def charts_of(record: Record) -> list[Any]:
    """The record's figures, in its order. Raises InputError for one without rows to draw."""
    charts = []
    for position, figure in enumerate(record.figures):
        with naming(f"{record.target}: figures[{position}]"):
            charts.append(themed_chart(_DRAW[figure.kind](figure, record.rows)))
    return charts


def comparison_chart(rows: Sequence[Mapping[str, Any]]) -> alt.TopLevelMixin:
    """Average accuracy over the tasks learned so far, and at the end against bytes a task.

    rows: {method, task, learned, accuracy, bytes}; accuracy is that on the task after so many tasks
    of the stream are learned, NaN or None where the method could not answer; bytes None where they
    are unknown. Tasks come in the order in which they were learned. Raises InputError if there is
    no row of a learned task.
    """
    places = {task: place for place, task in enumerate(dict.fromkeys(row["task"] for row in rows))}
    seen = [
        {key: value for key, value in row.items() if value is not None}
        for row in rows
        if row["learned"] > places[row["task"]]
        and row["accuracy"] is not None
        and not isnan(row["accuracy"])
    ]
    if not seen:
        raise InputError("no row holds the accuracy on a task that was learned")
    last = max(row["learned"] for row in seen)
    at_end = [row for row in seen if row["learned"] == last and "bytes" in row]
    common = {"kind": "line", "y": "accuracy", "group": "method", "y_label": "average accuracy"}
    progress = Figure.model_validate(
        common | {"x": "learned", "x_label": "tasks learned", "title": "Average accuracy so far"}
    )
    charts = [line_chart(progress, seen, 380)]
    if at_end:
        cost = common | {"x": "bytes", "x_label": "bytes a task", "title": "At the end, and bytes"}
        log = all(row["bytes"] > 0 for row in at_end)
        shown = Figure.model_validate(cost | {"points": "method", "log_x": log})
        charts.append(line_chart(shown, at_end, 260))
    described = "Average accuracy of the methods over the tasks learned, and against bytes a task"
    return themed_chart(alt.hconcat(*charts).properties(description=described))
