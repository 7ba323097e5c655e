"""Axes: categories in their natural order, and numbers between round ticks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import log10
from typing import Any

from impresslearn.errors import InputError
from impresslearn.report.charts.shapes import Axis
from impresslearn.report.quantities import FRACTION, NUMBER, SHARE, Quantity, quantity_of, word
from impresslearn.report.ticks import linear_ticks, logarithmic_ticks
from impresslearn.report.wording import spaced

MARGIN = 0.05
"""Room beyond the outermost value, as a share of the axis."""


def ordered(values: Iterable[Any]) -> list[Any]:
    """Distinct values: numbers ascending, no before yes, texts as they first come."""
    distinct = list(dict.fromkeys(values))
    return distinct if any(isinstance(value, str) for value in distinct) else sorted(distinct)


def named(value: Any, key: str) -> str:
    """A value of a key as a name: sizes and times with their unit, all else as it is."""
    if isinstance(value, (str, bool)):
        return word(value)
    quantity = quantity_of(key)
    return quantity.text(value) if quantity.name in ("bytes", "seconds") else word(value)


def category_axis(values: Sequence[Any], key: str, title: str) -> Axis:
    """Positions 0, 1, 2, … for the values."""
    return Axis(
        title=title or spaced(key),
        ticks=tuple(map(float, range(len(values)))),
        labels=tuple(named(value, key) for value in values),
        low=-0.6,
        high=len(values) - 0.4,
    )


def value_axis(
    values: Sequence[float], quantity: Quantity, title: str, from_zero: bool = False
) -> Axis:
    """From below the lowest value to above the highest, or from zero; fractions end at 1."""
    low, high = min(values), max(values)
    room = MARGIN * (high - low) or 0.05 * abs(high) or 0.05
    bottom, top = low - room, high + room
    if from_zero:
        bottom, top = bottom if low < 0 else 0.0, top if high > 0 or low == 0 else 0.0
    if quantity in (FRACTION, SHARE):
        bottom, top = max(bottom, 0.0 if from_zero else -0.02), min(top, 1.02)
    elif low >= 0:
        bottom = max(bottom, -room if low == 0 and not from_zero else 0.0)
    ticks, step = linear_ticks(bottom, top)
    labels = tuple(quantity.tick(tick, step) for tick in ticks)
    return Axis(title, tuple(ticks), labels, bottom, top)


def number_axis(values: Sequence[float], key: str, title: str, log: bool) -> Axis:
    """The horizontal axis of a line; logarithmic where it is asked for."""
    low, high = min(values), max(values)
    if log and low <= 0:
        raise InputError(f"log_x needs values above 0, but {key} is {word(low)} in a row")
    quantity = quantity_of(key)
    title = title or spaced(key)
    if log:
        room = 10 ** (MARGIN * log10(high / low) if high > low else 0.1)
        ticks = logarithmic_ticks(low / room, high * room)
        labels = tuple(quantity.tick(tick, tick) for tick in ticks)
        axis = Axis(title, tuple(ticks), labels, low / room, high * room, log=True)
    else:
        axis = value_axis(values, quantity, title)
    own = sorted(set(values))
    if quantity is NUMBER and _stand_apart(own, log):
        return replace(axis, ticks=tuple(own), labels=tuple(map(word, own)))
    return axis


def _stand_apart(values: Sequence[float], log: bool) -> bool:
    """Whether the measured values themselves can be the ticks."""
    places = [log10(value) for value in values] if log else list(values)
    reach = places[-1] - places[0]
    return all(after - before >= 0.055 * reach for before, after in pairwise(places))


def side_by_side(
    present: Mapping[float, Sequence[str]],
) -> tuple[dict[tuple[float, str], float], float]:
    """Where the groups present at each position stand beside each other, and how wide they are.

    Only those present take room, so that a method that exists at one position leaves no gaps at
    the others.
    """
    most = max(map(len, present.values()))
    step = min(0.84 / most, 0.42)
    centres = {
        (position, name): position + (index - (len(names) - 1) / 2) * step
        for position, names in present.items()
        for index, name in enumerate(names)
    }
    return centres, 0.84 * step
