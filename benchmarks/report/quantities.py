"""What a row's key measures, by its name: its permitted range, and how people read its values.

Terminal, figures and page write numbers alike.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import floor, inf, log10
from typing import Any

from impresslearn.errors import InputError

ABSENT = "–"
UNITS = ("B", "kB", "MB", "GB")


@dataclass(frozen=True)
class Quantity:
    """A kind of value: its range, and how one, and a mean ± half an interval, are written.

    `label` is the Vega expression of an axis label from `datum.value`; `unit` is that of `value`.
    """

    says: str
    lowest: float
    highest: float
    text: Callable[[float], str]
    interval: Callable[[float, float], str]
    label: str = "format(datum.value, ',.6~g')"
    unit: str = ""


@cache
def quantity_of(key: str) -> Quantity:
    """The quantity that a key of this name measures."""
    return next((of for pattern, of in NAMES.items() if re.fullmatch(pattern, key)), NUMBER)


def quantity_in(rows: Sequence[Mapping[str, Any]], key: str) -> Quantity:
    """What a key of these rows measures; truth values are averaged to shares."""
    first = next((row[key] for row in rows if key in row), None)
    return SHARE if isinstance(first, bool) else quantity_of(key)


def percent(fraction: float | None) -> str:
    """0.9312 -> "93.1%"."""
    return ABSENT if fraction is None else f"{fraction:.1%}"


def size(count: float) -> str:
    """Decimal units, as storage is sold: 120 -> "120 B", 33275 -> "33.3 kB"."""
    scaled, whole = count, float(count).is_integer()
    for unit in UNITS:
        places = 1 if (scaled < 100 and unit != "B") or (unit == "B" and not whole) else 0
        shown = f"{scaled:.{places}f}"
        if float(shown) < 1000 or unit == UNITS[-1]:
            break
        scaled /= 1000
    return f"{shown} {unit}"


def size_of(text: str) -> int:
    """ "2 kB" -> 2000. Raises InputError for no number of bytes."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([kMG]?B?)\s*", text)
    units = {unit.rstrip("B"): 1000**exponent for exponent, unit in enumerate(UNITS)}
    try:
        count = int(float(found[1]) * units[found[2].rstrip("B")]) if found else 0
    except ValueError:
        count = 0
    if count < 1:
        raise InputError(f"a number of bytes is written as 500, 2kB or 1.5MB, got {text!r}")
    return count


def duration(seconds: float) -> str:
    """41.3 -> "41 s", 135 -> "2 min 15 s", 8100 -> "2 h 15 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def said(value: Any) -> str:
    """A plain value of settings as words; mappings and lists on one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{spaced(str(name))} {said(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(said, value))
    return word(value) if isinstance(value, bool) else "none" if value is None else str(value)


def spaced(name: str) -> str:
    """A key as words: "bytes_per_task" -> "bytes per task"."""
    return name.replace("_", " ")


def number(value: float) -> str:
    """Up to four significant digits, integers whole."""
    whole = float(value).is_integer() and abs(value) < 1e15
    return f"{value:.0f}" if whole else f"{value:.4g}"


def signed(value: float) -> str:
    """A difference with its sign: 1.23 -> "+1.2"; exactly zero is said plainly."""
    text = f"{value:+.1f}" if value else "0"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def probability(value: float) -> str:
    """A p-value; small ones as a bound."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def word(value: object) -> str:
    """A plain value of a row as a name on an axis, in a legend or in a table."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, (int, float)) else str(value)


def named(value: object, key: str) -> str:
    """A value of a key as a name: sizes and times with their unit, all else as it is."""
    quantity = quantity_of(key)
    with_unit = quantity in (BYTES, SECONDS) and isinstance(value, (int, float))
    return quantity.text(value) if with_unit else word(value)  # type: ignore[arg-type]


def _number_interval(mean: float, half: float) -> str:
    if half <= 0:
        return number(mean)
    digits = min(max(-floor(log10(half) + 1e-9), 0) + (half < 1), 8)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def _percent_interval(mean: float, half: float) -> str:
    digits = 2 if 0 < half < 0.0005 else 1
    return f"{100 * mean:.{digits}f} ± {100 * half:.{digits}f}%"


def _size_interval(mean: float, half: float) -> str:
    exact = size(half) == size(0) or half < 0.0005 * mean
    return size(mean) if exact else f"{size(mean)} ± {size(half)}"


def _differences(says: str, limit: float) -> Quantity:
    """Differences of accuracies in [-limit, limit], shown in percentage points."""
    points = 100 / limit
    return Quantity(
        f"{says} in [{-limit:g}, {limit:g}]", -limit, limit,
        lambda value: f"{signed(points * value)} points",
        lambda mean, half: f"{signed(points * mean)} ± {points * half:.1f} points",
        f"format({points:g} * datum.value, '.4~g')",
        "fraction" if limit == 1 else "percentage points",
    )  # fmt: skip


_PERCENT = (percent, _percent_interval, "format(datum.value, '.4~%')", "fraction")
FRACTION = Quantity("a fraction in [0, 1]", 0, 1, *_PERCENT)
SHARE = Quantity("true or false", 0, 1, *_PERCENT)
DIFFERENCE = _differences("a difference in percentage points,", 100)
HALF_WIDTH = Quantity(
    "half an interval in percentage points, at least 0", 0, inf,
    lambda value: f"± {value:.1f} points", lambda mean, half: f"± {mean:.1f} points",
    "format(datum.value, '.4~g')", "percentage points",
)  # fmt: skip
LOSS = _differences("a difference of fractions", 1)
BYTES = Quantity(
    "a number of at least 0", 0, inf, size, _size_interval,
    "replace(format(datum.value, '.3~s'), /([kMGT]?)$/, ' $1B')", "bytes",
)  # fmt: skip
SECONDS = Quantity(
    "a number of at least 0", 0, inf, duration,
    lambda mean, half: f"{_number_interval(mean, half)} s", "format(datum.value, '~g') + ' s'", "s",
)  # fmt: skip
PROBABILITY = Quantity("a probability in [0, 1]", 0, 1, probability, _number_interval)
NUMBER = Quantity("a finite number", -inf, inf, number, _number_interval)
NAMES = {
    "(.*_)?accuracy(_learned)?|rejected": FRACTION,
    "(.*_)?difference": DIFFERENCE,
    "half_width": HALF_WIDTH,
    "forgetting|(backward|forward)_transfer": LOSS,
    "bytes(_.*)?|.*_bytes": BYTES,
    "seconds(_.*)?|.*_seconds": SECONDS,
    "(.*_)?p_value": PROBABILITY,
}
"""Patterns of keys; any other key is a number (or, for a text or a truth value, its words)."""
