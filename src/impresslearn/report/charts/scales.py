"""Vertical axes: linear, from zero, or for accuracies near 1 logarithmic in the error.

On the last, 90%, 99% and 99.9% are equally far apart: where all methods are good, a linear axis
shows dashes. A value is its error there, so the axis runs downwards and is labelled with accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from impresslearn.report.quantities import FRACTION, SHARE, Quantity

ERRORS = (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01)
SMALLEST = 0.0005
MARGIN = 0.05


@dataclass(frozen=True)
class ValueScale:
    """The axis of a quantity, from low to high; `errors`: logarithmic in 1 - value."""

    quantity: Quantity
    low: float
    high: float
    errors: bool = False

    def place(self, value: float) -> float:
        """Where a value is on the axis, kept within it."""
        value = min(max(value, self.low), self.high)
        return 1 - value if self.errors else value

    def encoding(self, field: str, title: str) -> alt.Y:
        """The channel of a field that holds places."""
        if not self.errors:
            scale = alt.Scale(domain=[self.low, self.high], nice=False, zero=False)
            axis = alt.Axis(labelExpr=self.quantity.label, tickCount=6)
            return alt.Y(field, type="quantitative", scale=scale, axis=axis, title=title)
        lowest, highest = 1 - self.high, 1 - self.low
        ticks = [e for e in (*ERRORS, 0.005, 0.002, 0.001) if lowest <= e <= highest]
        axis = alt.Axis(
            values=ticks,
            labelExpr="format(1 - datum.value, '.3~%')",
            labelOverlap="greedy",
            labelSeparation=4,
        )
        scale = alt.Scale(type="log", domain=[highest, lowest], nice=False)
        return alt.Y(
            field,
            type="quantitative",
            scale=scale,
            axis=axis,
            title=f"{title} (log scale of the error)",
        )


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
    spread = (max(means) - min(means) or float("inf")) / 2 if capped else float("inf")
    low = max(min((*means, *ends)), min(means) - spread)
    high = min(max((*means, *ends)), max(means) + spread)
    if quantity is FRACTION and not from_zero and max(means) > 0.8 and high - low > 0.1:
        nearest = max(1 - high, (1 - max(means)) / 4, SMALLEST)
        room = max((1 - low) / nearest, 2) ** MARGIN
        return ValueScale(quantity, max(1 - (1 - low) * room, 0), 1 - nearest / room, errors=True)
    room = MARGIN * (high - low) or 0.05 * abs(high) or 0.05
    bottom, top = low - room, high + room
    if from_zero:
        bottom = bottom if min(means) < 0 else 0.0
        top = top if max(means) > 0 or bottom == 0 else 0.0
    elif low >= 0:
        bottom = max(bottom, 0.0)
    if quantity in (FRACTION, SHARE):
        top = min(top, 1.0)
    return ValueScale(quantity, bottom, top)
