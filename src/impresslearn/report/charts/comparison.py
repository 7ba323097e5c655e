"""Several methods on one stream of tasks: what is remembered, and what it costs."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import altair as alt

from impresslearn.errors import InputError
from impresslearn.report.charts.grouped import line_chart
from impresslearn.report.charts.theme import themed_chart
from impresslearn.report.specification import Figure


def comparison_chart(rows: Sequence[Mapping[str, Any]]) -> alt.TopLevelMixin:
    """Average accuracy over the tasks learned so far, and at the end against bytes a task.

    rows: {method, task, learned, accuracy, bytes}; accuracy is that on the task after so many tasks
    of the stream are learned, NaN where the method could not answer. Tasks come in the order in
    which they were learned. Raises InputError if there is no row of a learned task.
    """
    places = {task: place for place, task in enumerate(dict.fromkeys(row["task"] for row in rows))}
    seen = [
        row for row in rows if row["learned"] > places[row["task"]] and not isnan(row["accuracy"])
    ]
    if not seen:
        raise InputError("no row holds the accuracy on a task that was learned")
    last = max(row["learned"] for row in seen)
    progress = Figure(
        kind="line", x="learned", y="accuracy", group="method", x_label="tasks learned",
        y_label="average accuracy", title="Average accuracy over the tasks so far",
    )  # fmt: skip
    cost = Figure(
        kind="line", x="bytes", y="accuracy", group="method", points=("method",),
        x_label="bytes a task", y_label="average accuracy", title="At the end, against bytes",
        log_x=all(row["bytes"] > 0 for row in seen),
    )  # fmt: skip
    at_end = [row for row in seen if row["learned"] == last]
    both = [line_chart(progress, seen, 380), line_chart(cost, at_end, 260)]
    described = "Average accuracy of the methods over the tasks learned, and against bytes a task"
    return themed_chart(alt.hconcat(*both).properties(description=described))
