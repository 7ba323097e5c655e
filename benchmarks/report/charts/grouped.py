"""Boxes, bars and lines: the values of y over x, a colour a group, references across."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from statistics import fmean
from typing import Any

import altair as alt
import numpy as np

from benchmarks.report.charts.plot import WIDTH, Mark, Plot, labels_of
from benchmarks.report.charts.theme import colour
from benchmarks.report.quantities import named, spaced, word
from benchmarks.report.specification import Figure
from benchmarks.report.statistics import Row, Selection, axis_names, grouped, select, summarise
from impresslearn.errors import InputError

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
    plot = Plot(figure, chosen, [*boxes, *points])
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
    plot = Plot(figure, chosen, marks)
    base, ink = plot.base(marks, "rows", "average", "interval"), alt.value(colour("text"))
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
    plot = Plot(figure, chosen, marks)
    base = plot.base(marks, "rows", "average", "interval")
    layers, notes, few = [], [], len(marks) <= MANY
    if figure.frontier:
        best = frontier([m for m in marks if not figure.ours or m["group"] in figure.ours])
        steps = plot.base([{"x": x, "mean": mean} for x, mean in best])
        steps = steps.mark_line(interpolate="step-after", strokeWidth=8, opacity=0.6)
        layers.append(steps.encode(plot.y("mean"), color=alt.value(colour("notable"))))
        notes.append(f"yellow: the frontier{' of ' if figure.ours else ''}{', '.join(figure.ours)}")
    if few:
        of_points = base.mark_rule(opacity=0.6) if figure.points else base.mark_area(opacity=0.12)
        layers.append(of_points.encode(plot.y("low"), y2="high"))
        notes.append(_interval_note(marks, "thin lines" if figure.points else "bands"))
        if any(m["low"] < plot.scale.low or m["high"] > plot.scale.high for m in marks):
            notes.append("cut at the ends of the axis")
    if not figure.points:
        layers.append(base.mark_line(strokeWidth=2).encode(plot.y("mean")))
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
    labels, keys = labels_of(figure, chosen), figure.points or (figure.x,)
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


def _interval_note(marks: Sequence[Mark], drawn: str = "thin lines") -> str:
    over = {mark["over"] for mark in marks if mark["low"] < mark["high"]}
    kinds = over if len(over) == 1 else {each.split()[-1] for each in over}
    return f"{drawn}: 95% interval over {' or '.join(sorted(kinds))}" if over else ""
