"""What a row's key measures, by its name: its permitted range, and how people read its values.

accuracy, *_accuracy    a fraction, shown in per cent
difference, *_difference    a difference in percentage points
forgetting    a difference of fractions, shown in percentage points
bytes, bytes_*, *_bytes    shown in B, kB, MB
seconds, *_seconds, seconds_*    shown in s, min
p_value, *_p_value    a probability
anything else    a number (or, for a text or a truth value, its words)
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, inf, log10

from impresslearn.report.wording import ABSENT, duration, percent, size


@dataclass(frozen=True)
class Quantity:
    """lowest, highest: the permitted range, in words in `says`; text: a value as people read it.

    tick: the same on an axis whose neighbours differ by `step`; interval: a mean and the half
    width of its interval.
    """

    name: str
    says: str
    lowest: float
    highest: float
    text: Callable[[float], str]
    tick: Callable[[float, float], str]
    interval: Callable[[float, float], str]

    def permits(self, value: float) -> bool:
        """Whether the value lies in the range."""
        return self.lowest <= value <= self.highest


def quantity_of(key: str) -> Quantity:
    """The quantity that a key of this name measures."""
    parts = key.split("_")
    if key == "accuracy" or key.endswith("_accuracy"):
        return FRACTION
    if parts[-1] == "difference":
        return DIFFERENCE
    if key == "forgetting":
        return LOSS
    if "bytes" in (parts[0], parts[-1]):
        return BYTES
    if "seconds" in (parts[0], parts[-1]):
        return SECONDS
    if key == "p_value" or key.endswith("_p_value"):
        return PROBABILITY
    return NUMBER


def number(value: float) -> str:
    """Up to four significant digits, integers whole."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.4g}"


def signed(value: float) -> str:
    """A difference with its sign: 1.23 -> "+1.2"."""
    told = f"{value:+.1f}"
    return "0.0" if told in ("+0.0", "-0.0") else told.replace("-", "−")


def probability(value: float) -> str:
    """A p-value; small ones as a bound."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def _decimals(step: float) -> int:
    return max(0, -floor(log10(step) + 1e-9)) if step > 0 else 0


def _number_tick(value: float, step: float) -> str:
    return f"{value:.{min(_decimals(step), 6)}f}" if 1e-4 <= step < 1e6 else f"{value:g}"


def _number_interval(mean: float, half: float) -> str:
    if half <= 0:
        return number(mean)
    digits = min(max(_decimals(half) + (half < 1), 0), 8)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def _percent_interval(mean: float, half: float) -> str:
    digits = 2 if 0 < half < 0.0005 else 1
    return f"{100 * mean:.{digits}f} ± {100 * half:.{digits}f}%"


def _size_interval(mean: float, half: float) -> str:
    return (
        size(mean)
        if size(half) == size(0) or half < 0.0005 * mean
        else (f"{size(mean)} ± {size(half)}")
    )


FRACTION = Quantity(
    "fraction",
    "a fraction in [0, 1]",
    0,
    1,
    percent,
    lambda value, step: f"{value:.{_decimals(100 * step)}%}",
    _percent_interval,
)
DIFFERENCE = Quantity(
    "difference",
    "a difference in percentage points, in [-100, 100]",
    -100,
    100,
    lambda value: f"{signed(value)} points",
    lambda value, step: f"{value:.{_decimals(step)}f}".replace("-", "−"),
    lambda mean, half: f"{signed(mean)} ± {half:.1f} points",
)
LOSS = Quantity(
    "loss",
    "a difference of fractions in [-1, 1]",
    -1,
    1,
    lambda value: DIFFERENCE.text(100 * value),
    lambda value, step: DIFFERENCE.tick(100 * value, 100 * step),
    lambda mean, half: DIFFERENCE.interval(100 * mean, 100 * half),
)
BYTES = Quantity(
    "bytes",
    "a number of at least 0",
    0,
    inf,
    size,
    lambda value, step: size(value).replace(".0 ", " "),
    _size_interval,
)
SECONDS = Quantity(
    "seconds",
    "a number of at least 0",
    0,
    inf,
    duration,
    lambda value, step: f"{_number_tick(value, step)} s",
    lambda mean, half: f"{_number_interval(mean, half)} s",
)
PROBABILITY = Quantity(
    "probability",
    "a probability in [0, 1]",
    0,
    1,
    probability,
    _number_tick,
    _number_interval,
)
NUMBER = Quantity("number", "a finite number", -inf, inf, number, _number_tick, _number_interval)
SHARE = Quantity("share", "true or false", 0, 1, FRACTION.text, FRACTION.tick, FRACTION.interval)
"""Truth values, averaged."""


def word(value: object) -> str:
    """A plain value of a row as a name on an axis, in a legend or in a table."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, (int, float)) else str(value)
