"""Numbers as people read them, the same in the terminal, the figures and the page."""

from collections.abc import Mapping
from math import log10
from typing import Any

ABSENT = "–"
UNITS = ("B", "kB", "MB", "GB")


def percent(fraction: float | None, digits: int = 1) -> str:
    """0.9312 -> "93.1%"."""
    return ABSENT if fraction is None else f"{fraction:.{digits}%}"


def size(count: float | None) -> str:
    """Decimal units, as storage is sold: 120 -> "120 B", 33275 -> "33.3 kB"."""
    if count is None:
        return ABSENT
    if count < 1000:
        return f"{count:.0f} B" if float(count).is_integer() else f"{count:.1f} B"
    exponent = min(int(log10(count)) // 3, len(UNITS) - 1)
    scaled = count / 1000**exponent
    return f"{scaled:.{1 if scaled < 100 else 0}f} {UNITS[exponent]}"


def duration(seconds: float | None) -> str:
    """41.3 -> "41 s", 135 -> "2 min 15 s", 8100 -> "2 h 15 min"."""
    if seconds is None:
        return ABSENT
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
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def spaced(name: str) -> str:
    """A key as words: "bytes_per_task" -> "bytes per task"."""
    return name.replace("_", " ")
