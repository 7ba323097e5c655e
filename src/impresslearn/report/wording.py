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
    return f"{scaled:.1f} {UNITS[exponent]}" if scaled < 100 else f"{scaled:.0f} {UNITS[exponent]}"


def times(larger: float | None, smaller: float | None) -> str | None:
    """How many times as large: "132 ×"; None where the ratio has no meaning."""
    if not larger or not smaller:
        return None
    ratio = larger / smaller
    return f"{ratio:,.0f} ×" if ratio >= 10 else f"{ratio:.2g} ×"


def points(fraction: float | None) -> str:
    """A difference of accuracies in percentage points; exactly zero is said plainly."""
    if fraction is None:
        return ABSENT
    return "0" if fraction == 0 else f"{100 * fraction:.2g} points"


def duration(seconds: float | None) -> str:
    """41.3 -> "41 s", 135 -> "2 min 15 s", 8100 -> "2 h 15 min"."""
    if seconds is None:
        return ABSENT
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


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
