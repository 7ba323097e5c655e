"""What the layers of a figure share: axes, colours, tooltips, references and the legend.

A vertical axis is linear, from zero, or for accuracies near 1 logarithmic in the error: there 90%,
99% and 99.9% are equally far apart, where a linear axis would show dashes. A value is its error
then, and the axis runs downwards and is labelled with accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import altair as alt

from benchmarks.report.charts.theme import series, titled
from benchmarks.report.quantities import FRACTION, NUMBER, Quantity, quantity_of, spaced
from benchmarks.report.specification import Figure
from benchmarks.report.statistics import Selection, axis_names

WIDTH, HEIGHT = 620, 320
ENDS = ("low", "high", "value")
PLACED = {*ENDS, "first", "median", "third", "mean"}
KINDS = {"box": "Box plot", "bar": "Bar chart", "line": "Line chart"}
TICKS = (
    *(1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01),
    *(0.005, 0.002, 0.001),
)
SMALLEST = 0.0005
Mark = dict[str, Any]


class Plot:
    """The channels and layers of one figure, for marks that it shows with their means."""

    def __init__(self, figure: Figure, chosen: Selection, marks: Sequence[Mark]) -> None:
        self.figure, self.labels = figure, list(labels_of(figure, chosen).values())
        self.x_title = figure.x_label or spaced(figure.x)
        self.y_title = figure.y_label or spaced(figure.y)
        self.across: list[Mark] = [
            {"group": name, "mean": of.mean, "low": of.mean - of.deviation}
            | {"high": of.mean + of.deviation}
            for name, of in chosen.references.items()
        ]
        every = [*marks, *self.across]
        self.scale = value_scale(
            [mark["mean"] for mark in every],
            [mark[end] for mark in every for end in ENDS if end in mark],
            chosen.quantity,
            from_zero=figure.kind == "bar",
            capped=figure.kind != "box",
        )
        self.shown = list(dict.fromkeys((*chosen.groups, *chosen.references)))
        self.colour, self.shape = series(chosen.names, self.shown, figure.kind == "line")
        identifier = f"picked_{figure.x.encode().hex()}"  # one name a chart, also side by side
        self.picked = alt.selection_point(name=identifier, fields=["group"], bind="legend")

    def y(self, field: str) -> alt.Y:
        """The vertical channel of a field."""
        return self.scale.encoding(field, self.y_title)

    def x(self, marks: Sequence[Mark]) -> alt.X:
        """The horizontal channel: places with names, or numbers."""
        if labels := self.labels:
            slanted = sum(map(len, labels)) + 2 * len(labels) > 90
            axis = alt.Axis(labelAngle=-35 if slanted else 0, labelOverlap=len(labels) > 40)
            kind: Any = ("point", 0.5) if self.figure.kind == "line" else ("band", 0.12)
            scale = alt.Scale(type=kind[0], domain=labels, padding=kind[1])
            return alt.X("x:N", scale=scale, axis=axis, title=self.x_title)
        quantity, values = quantity_of(self.figure.x), sorted({mark["x"] for mark in marks})
        ticks = {"values": values} if quantity is NUMBER and len(values) <= 12 else {"tickCount": 6}
        log = {"type": "log"} if self.figure.log_x else {"zero": False}
        axis = alt.Axis(
            labelExpr=quantity.label, labelOverlap="greedy", labelSeparation=10, **ticks
        )
        scale = alt.Scale(nice=False, padding=24, **log)
        return alt.X("x:Q", scale=scale, axis=axis, title=self.x_title)

    def data(self, marks: Sequence[Mark]) -> alt.InlineData:
        """The marks, their values where they are on the vertical axis; a tuple is not copied."""
        return alt.InlineData(values=tuple(
            {key: self.scale.place(each) if key in PLACED else each for key, each in mark.items()}
            for mark in marks
        ))  # fmt: skip

    def base(self, marks: Sequence[Mark], *tips: str) -> alt.Chart:
        """A layer of these marks, with x, colour and tooltip; a click in the legend chooses."""
        made = alt.Chart(self.data(marks)).encode(self.x(marks), color=self.colour)
        if not tips:
            return made
        x = alt.Tooltip(f"{'at' if 'at' in marks[0] else 'x'}:N", title=self.x_title)
        others = [alt.Tooltip(f"{tip}:N", title=tip) for tip in ("group", *tips)]
        return made.encode(tooltip=[others[0], x, *others[1:]]).transform_filter(self.picked)

    def chart(
        self, layers: Sequence[alt.Chart], notes: Sequence[str], width: int = WIDTH
    ) -> alt.LayerChart:
        """The layers over the references, with everything that is said about them."""
        below: list[alt.Chart] = []
        if self.across:
            base = alt.Chart(self.data(self.across)).encode(color=self.colour)
            below = [
                base.mark_rect(opacity=0.15).encode(self.y("low"), y2="high"),
                base.mark_rule(strokeDash=[5, 4], strokeWidth=1.5).encode(self.y("mean")),
            ]
            names = ", ".join(mark["group"] for mark in self.across)
            notes = [*notes, f"dashed: {names}, mean ± standard deviation"]
        *rest, last = layers
        layered = alt.layer(*below, *rest, last.add_params(self.picked))
        layered.width, layered.height = width, HEIGHT
        of_groups = f" for {', '.join(self.shown)}" if any(self.shown) else ""
        kind = f"{KINDS[self.figure.kind]} of {self.y_title} over {self.x_title}"
        return titled(layered, self.figure.title, notes, kind + of_groups)


def labels_of(figure: Figure, chosen: Selection) -> dict[Any, str]:
    """Names of the values of x, where these are places and not numbers on an axis."""
    words = any(isinstance(row[figure.x], (str, bool)) for row in chosen.rows)
    return axis_names(chosen.rows, figure.x) if words or figure.kind != "line" else {}


@dataclass(frozen=True)
class ValueScale:
    """The axis of a quantity from low to high; `errors`: logarithmic in 1 - value."""

    quantity: Quantity
    low: float
    high: float
    from_zero: bool
    errors: bool

    def place(self, value: float) -> float:
        """Where a value is on the axis, kept within it."""
        value = min(max(value, self.low), self.high)
        return 1 - value if self.errors else value

    def encoding(self, field: str, title: str) -> alt.Y:
        """The channel of a field that holds places."""
        if not self.errors:
            axis = alt.Axis(labelExpr=self.quantity.label, tickCount=6)
            scale = alt.Scale(zero=self.from_zero, padding=0 if self.from_zero else 8)
            return alt.Y(f"{field}:Q", scale=scale, axis=axis, title=title)
        ticks = [error for error in TICKS if 1 - self.high <= error <= 1 - self.low]
        label = "format(1 - datum.value, '.3~%')"
        axis = alt.Axis(values=ticks, labelExpr=label, labelOverlap="greedy", labelSeparation=4)
        scale = alt.Scale(type="log", domain=[1 - self.low, 1 - self.high], nice=False, padding=8)
        title = f"{title} (log scale of the error)"
        return alt.Y(f"{field}:Q", scale=scale, axis=axis, title=title)


def value_scale(
    means: Sequence[float],
    ends: Sequence[float],
    quantity: Quantity,
    from_zero: bool = False,
    capped: bool = True,
) -> ValueScale:
    """The axis that shows all means and ends.

    capped: ends of intervals reach only so far that they do not dwarf the means.
    """
    spread = (max(means) - min(means) or inf) / 2 if capped else inf
    low = max(min((*means, *ends)), min(means) - spread)
    high = min(max((*means, *ends)), max(means) + spread)
    low = max(low, 0.0) if from_zero and min(means) >= 0 else low
    near_one = max(means) > 0.8 and high - low > 0.1
    errors = quantity is FRACTION and not from_zero and near_one
    if errors:  # a result without error has no place on a logarithmic axis
        high = 1 - max(1 - high, (1 - max(means)) / 4, SMALLEST)
    return ValueScale(quantity, low, high, from_zero, errors)
