"""Boxes, bars and lines: the values of y over x, a colour a group, references across."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from statistics import fmean
from typing import Any

import altair as alt
import numpy as np

from impresslearn.errors import InputError
from impresslearn.report.charts.scales import value_scale
from impresslearn.report.charts.theme import colour, series, titled
from impresslearn.report.quantities import NUMBER, named, quantity_of, word
from impresslearn.report.selection import Row, Selection, axis_names, grouped, select
from impresslearn.report.specification import Figure
from impresslearn.report.statistics import summarise
from impresslearn.report.wording import spaced

WIDTH, HEIGHT = 620, 320
FEW = 12
"""Up to so many values are drawn one by one: a box says little of them."""
MANY = 200
"""Means beyond which intervals are left out."""
LETTER = 6.5
"""Pixels that a letter takes: a bar carries its number where that fits."""
BESIDE = alt.ExprRef("datum.offset * bandwidth('x')")
SPREAD = alt.ExprRef("(datum.offset + 0.8 * datum.spread * datum.share) * bandwidth('x')")
WIDE = alt.ExprRef("datum.share * bandwidth('x')")
TICK: Any = {"xOffset": BESIDE, "size": WIDE, "thickness": 2.5, "opacity": 1}
PLACED = {"low", "first", "median", "third", "high", "mean", "value"}
Mark = dict[str, Any]


def box_chart(figure: Figure, rows: Sequence[Row]) -> alt.LayerChart:
    """Boxes over quartiles with whiskers to the extremes; points where values are few."""
    chosen = select(figure, rows)
    text = chosen.quantity.text
    boxes, means, points = [], [], []
    for mark, of in _side_by_side(figure, chosen):
        values = sorted(float(row[figure.y]) for row in of)
        mark |= {"mean": fmean(values), "rows": len(values), "average": text(fmean(values))}
        if len(values) <= FEW:
            means.append(mark)
            for place, value in enumerate(values):  # the golden ratio scatters neighbours
                spread = (0.618 * place + 0.5) % 1 - 0.5
                points.append(mark | {"value": value, "this": text(value), "spread": spread})
        else:
            five = map(float, np.quantile(values, (0, 0.25, 0.5, 0.75, 1)))
            mark |= dict(zip(("low", "first", "median", "third", "high"), five, strict=True))
            boxes.append(mark | {"quartiles": f"{text(mark['first'])} to {text(mark['third'])}"})
    every = [box[end] for box in boxes for end in ("low", "high")]
    every += [point["value"] for point in points]
    plot = _Plot(figure, chosen, [mark["mean"] for mark in (*boxes, *means)], every)
    layers, notes = [], []
    if boxes:
        base = plot.base(boxes, "rows", "average", "quartiles")
        bar = base.mark_bar(xOffset=BESIDE, width=WIDE, fillOpacity=0.4, strokeWidth=1)
        mean = base.mark_point(xOffset=BESIDE, shape="diamond", size=30, filled=True, opacity=1)
        layers += [
            base.mark_rule(xOffset=BESIDE).encode(plot.y("low"), y2="high"),
            bar.encode(plot.y("first"), y2="third", stroke=plot.colour),
            base.mark_tick(**TICK).encode(plot.y("median")),
            mean.encode(plot.y("mean"), stroke=alt.value(colour("surface"))),
        ]
        notes.append("box: middle half, line: median, diamond: mean, whiskers: lowest and highest")
    if points:
        tick = plot.base(means, "rows", "average").mark_tick(**TICK)
        single = plot.base(points, "rows", "average", "this").mark_circle(
            xOffset=SPREAD, size=30, opacity=0.6
        )
        layers += [tick.encode(plot.y("mean")), single.encode(plot.y("value"))]
        beyond = sum(not plot.scale.low <= point["value"] <= plot.scale.high for point in points)
        at_edge = f"; {beyond} beyond the axis at its edge" if beyond else ""
        notes.append(f"points: single results, line: their mean{at_edge}")
    return plot.chart(layers, notes)


def bar_chart(figure: Figure, rows: Sequence[Row]) -> alt.LayerChart:
    """Means as bars from zero, with their intervals."""
    chosen = select(figure, rows)
    marks = [mark | _mean(of, figure.y, chosen) for mark, of in _side_by_side(figure, chosen)]
    plot = _Plot(figure, chosen, [mark["mean"] for mark in marks], _ends(marks))
    base = plot.base(marks, "rows", "average", "interval")
    ink = alt.value(colour("text"))
    layers = [
        base.mark_bar(xOffset=BESIDE, width=WIDE).encode(plot.y("mean"), y2=alt.datum(0)),
        base.mark_rule(xOffset=BESIDE).encode(plot.y("low"), y2="high", color=ink),
    ]
    room = WIDTH / len({mark["x"] for mark in marks}) * marks[0]["share"]
    if LETTER * max(len(mark["average"]) for mark in marks) <= room:
        number = base.mark_text(xOffset=BESIDE, dy=-8)
        layers.append(number.encode(plot.y("high"), text="average:N", color=ink))
    return plot.chart(layers, [_interval_note(marks)])


def line_chart(figure: Figure, rows: Sequence[Row], width: int = WIDTH) -> alt.LayerChart:
    """Means with intervals, joined by lines unless `points` says what a point is."""
    chosen = select(figure, rows)
    marks = list(_means_over_x(figure, chosen))
    plot = _Plot(figure, chosen, [mark["mean"] for mark in marks], _ends(marks))
    base = plot.base(marks, "rows", "average", "interval")
    layers, notes, few = [], [], len(marks) <= MANY
    if figure.frontier:
        best = frontier([m for m in marks if not figure.ours or m["group"] in figure.ours])
        steps = plot.base([{"x": x, "mean": mean} for x, mean in best])
        steps = steps.mark_line(interpolate="step-after", strokeWidth=8, opacity=0.6)
        layers.append(steps.encode(plot.y("mean"), color=alt.value(colour("notable"))))
        notes.append(f"yellow: the frontier{' of ' if figure.ours else ''}{', '.join(figure.ours)}")
    if not figure.points:
        layers.append(base.mark_line(strokeWidth=2).encode(plot.y("mean")))
    if few:
        layers.append(base.mark_rule(opacity=0.6).encode(plot.y("low"), y2="high"))
        notes.append(_interval_note(marks))
    points = base.mark_point(filled=True, size=60 if few else 15, opacity=0.9)
    return plot.chart([*layers, points.encode(plot.y("mean"), shape=plot.shape)], notes, width)


def frontier(marks: Sequence[Mark]) -> list[tuple[float, float]]:
    """(x, mean) of the marks that no mean at the same or a smaller x reaches, by ascending x."""
    found: list[tuple[float, float]] = []
    for x, negative in sorted((mark["x"], -mark["mean"]) for mark in marks):
        if not found or -negative > found[-1][1]:
            found.append((x, -negative))
    return found


def _side_by_side(figure: Figure, chosen: Selection) -> Iterator[tuple[Mark, list[Row]]]:
    """The rows of each group at each x; only groups present at an x take room there."""
    parts = {name: grouped(of, itemgetter(figure.x)) for name, of in chosen.groups.items()}
    labels = axis_names(chosen.rows, figure.x)
    present = {value: [name for name, of in parts.items() if value in of] for value in labels}
    share = min(1 / max(map(len, present.values())), 0.4)
    for value, names in present.items():
        for place, name in enumerate(names):
            offset = (place - (len(names) - 1) / 2) * share
            mark = {"group": name, "x": labels[value], "offset": offset, "share": 0.84 * share}
            yield mark, parts[name][value]


def _means_over_x(figure: Figure, chosen: Selection) -> Iterator[Mark]:
    """A mean for each x, or for each combination of the `points` of a group."""
    labels, keys = _labels(figure, chosen), figure.points or (figure.x,)
    for name, group in chosen.groups.items():
        parts = grouped(group, lambda row: tuple(row.get(key) for key in keys))
        for values, of in parts.items():
            x: Any = labels[of[0][figure.x]] if labels else fmean(row[figure.x] for row in of)
            if figure.log_x and x <= 0:
                found = f"{figure.x} is {word(x)} in a row"
                raise InputError(f"log_x needs values above 0, but {found}")
            pairs = zip(keys, values, strict=True)
            at = ", ".join(f"{spaced(key)} {named(value, key)}" for key, value in pairs)
            yield {"group": name, "x": x, "at": at} | _mean(of, figure.y, chosen)


def _labels(figure: Figure, chosen: Selection) -> dict[Any, str]:
    """Names of the values of x, where these are places and not numbers on an axis."""
    words = any(isinstance(row[figure.x], (str, bool)) for row in chosen.rows)
    return axis_names(chosen.rows, figure.x) if words or figure.kind != "line" else {}


def _mean(rows: Sequence[Row], key: str, chosen: Selection) -> Mark:
    found, quantity = summarise(rows, key), chosen.quantity
    half = found.half_width or 0.0
    return {
        "mean": found.mean,
        "low": max(found.mean - half, quantity.lowest),
        "high": min(found.mean + half, quantity.highest),
        "rows": found.count,
        "over": found.over,
        "average": quantity.text(found.mean),
        "interval": quantity.interval(found.mean, half) if half else "none",
    }


def _ends(marks: Sequence[Mark]) -> list[float]:
    return [mark[end] for mark in marks for end in ("low", "high")]


def _interval_note(marks: Sequence[Mark]) -> str:
    over = {mark["over"] for mark in marks if mark["low"] < mark["high"]}
    kinds = over if len(over) == 1 else {each.split()[-1] for each in over}
    return f"thin lines: 95% interval over {' or '.join(sorted(kinds))}" if over else ""


class _Plot:
    """The channels that the layers of one figure share."""

    def __init__(
        self, figure: Figure, chosen: Selection, means: Sequence[float], ends: Sequence[float]
    ) -> None:
        self.figure, self.chosen = figure, chosen
        self.x_title = figure.x_label or spaced(figure.x)
        self.y_title = figure.y_label or spaced(figure.y)
        across = chosen.references.values()
        spreads = [each.mean + sign * each.deviation for each in across for sign in (-1, 1)]
        self.scale = value_scale(
            [*means, *(each.mean for each in across)], [*ends, *spreads], chosen.quantity,
            from_zero=figure.kind == "bar", capped=figure.kind != "box",
        )  # fmt: skip
        self.shown = list(dict.fromkeys((*chosen.groups, *chosen.references)))
        self.colour, self.shape = series(chosen.names, self.shown, figure.kind == "line")
        identifier = f"picked_{figure.x.encode().hex()}"  # one name a chart, also side by side
        self.picked = alt.selection_point(name=identifier, fields=["group"], bind="legend")

    def y(self, field: str) -> alt.Y:
        """The vertical channel of a field."""
        return self.scale.encoding(field, self.y_title)

    def x(self, marks: Sequence[Mark]) -> alt.X:
        """The horizontal channel: places with names, or numbers."""
        labels = list(_labels(self.figure, self.chosen).values())
        if labels:
            slanted = sum(map(len, labels)) + 2 * len(labels) > 90
            axis = alt.Axis(labelAngle=-35 if slanted else 0, labelOverlap=len(labels) > 40)
            scale = alt.Scale(type="band", domain=labels, padding=0.12)
            if self.figure.kind == "line":
                scale = alt.Scale(type="point", domain=labels, padding=0.5)
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
        where = "at" if marks and "at" in marks[0] else "x"
        tooltip = [alt.Tooltip(f"{tip}:N", title=tip) for tip in ("group", *tips)]
        tooltip.insert(1, alt.Tooltip(f"{where}:N", title=self.x_title))
        return made.encode(tooltip=tooltip).transform_filter(self.picked) if tips else made

    def chart(
        self, layers: Sequence[alt.Chart], notes: Sequence[str], width: int = WIDTH
    ) -> alt.LayerChart:
        """The layers over the references, with everything that is said about them."""
        below: list[alt.Chart] = []
        if references := self.chosen.references:
            across = []
            for name, of in references.items():
                low, high = of.mean - of.deviation, of.mean + of.deviation
                across.append({"group": name, "mean": of.mean, "low": low, "high": high})
            base = alt.Chart(self.data(across)).encode(color=self.colour)
            below = [
                base.mark_rect(opacity=0.15).encode(self.y("low"), y2="high"),
                base.mark_rule(strokeDash=[5, 4], strokeWidth=1.5).encode(self.y("mean")),
            ]
            notes = [*notes, f"dashed: {', '.join(references)}, mean ± standard deviation"]
        kind = {"box": "Box plot", "bar": "Bar chart", "line": "Line chart"}[self.figure.kind]
        of_groups = f" for {', '.join(self.shown)}" if any(self.shown) else ""
        *rest, last = layers
        layered = alt.layer(*below, *rest, last.add_params(self.picked))
        layered.width, layered.height = width, HEIGHT
        return titled(
            layered, self.figure.title, notes,
            f"{kind} of {self.y_title} over {self.x_title}{of_groups}",
        )  # fmt: skip
