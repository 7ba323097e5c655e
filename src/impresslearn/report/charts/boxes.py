"""Box plots in the paper's manner: a box per group at each value of x, a reference across."""

from collections.abc import Sequence

from impresslearn.report.charts.axes import category_axis, ordered, side_by_side, value_axis
from impresslearn.report.charts.selection import Row, Selection, select
from impresslearn.report.charts.shapes import Box, BoxChart, BoxSeries
from impresslearn.report.specification import BoxFigure
from impresslearn.report.statistics import mean, quantile
from impresslearn.report.wording import spaced

FEW = 8
"""Up to so many values are shown one by one besides their box, which says little of them."""


def box_chart(figure: BoxFigure, rows: Sequence[Row]) -> BoxChart:
    """The chart. Raises InputError if no row has x and y."""
    chosen = select(figure, rows)
    positions = ordered(row[figure.x] for group in chosen.groups.values() for row in group)
    axis = category_axis(positions, figure.x, figure.x_label)
    gathered: dict[float, dict[str, list[float]]] = {
        place: {} for place in map(float, range(len(positions)))
    }
    place_of = {value: float(place) for place, value in enumerate(positions)}
    for name, group in chosen.groups.items():
        for row in group:
            values = gathered[place_of[row[figure.x]]].setdefault(name, [])
            values.append(float(row[figure.y]))
    centres, width = side_by_side({place: list(of) for place, of in gathered.items()})
    series = tuple(
        BoxSeries(
            name=name,
            slot=chosen.slots[name],
            boxes=tuple(
                summarised_box(of[name], centres[place, name], axis.labels[int(place)])
                for place, of in gathered.items()
                if name in of
            ),
        )
        for name in chosen.groups
    )
    return BoxChart(
        title=figure.title,
        caption=figure.caption,
        x=axis,
        y=value_axis(_extent(series, chosen), chosen.quantity, figure.y_label or spaced(figure.y)),
        quantity=chosen.quantity,
        series=series,
        references=chosen.references,
        width=width,
    )


def summarised_box(values: Sequence[float], x: float, where: str) -> Box:
    """Quartiles by linear interpolation, whiskers by Tukey's rule."""
    ordered_values = sorted(values)
    first, median, third = (quantile(ordered_values, part) for part in (0.25, 0.5, 0.75))
    reach = 1.5 * (third - first)
    inside = [value for value in ordered_values if first - reach <= value <= third + reach]
    return Box(
        x=x,
        where=where,
        lower=min(inside[0], first),
        quartiles=(first, median, third),
        upper=max(inside[-1], third),
        mean=mean(ordered_values),
        count=len(ordered_values),
        outliers=tuple(v for v in ordered_values if not first - reach <= v <= third + reach),
        values=tuple(ordered_values) if len(ordered_values) <= FEW else (),
    )


def _extent(series: Sequence[BoxSeries], chosen: Selection) -> list[float]:
    found = [
        end
        for each in series
        for box in each.boxes
        for end in (box.lower, box.upper, *box.outliers[:1], *box.outliers[-1:])
    ]
    for reference in chosen.references:
        spread = min(reference.deviation, 0.5 * (max(found) - min(found)))
        found += [reference.mean - spread, reference.mean + spread]
    return found
