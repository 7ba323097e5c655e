"""Vertical axes: linear, from zero, or for accuracies near 1 logarithmic in the error.

On the last, 90%, 99% and 99.9% are equally far apart: where all methods are good, a linear axis
shows dashes. A value is its error there, so the axis runs downwards and is labelled with accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import altair as alt

from impresslearn.report.quantities import FRACTION, Quantity

TICKS = (
    *(1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01),
    *(0.005, 0.002, 0.001),
)
SMALLEST = 0.0005


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
