"""Formats numbers and tables for people, as text and HTML.

The name of a column decides how its values are printed: `format_value("bytes_per_task", 33275)`
gives "33.3 kB". This module does not import torch, so that commands start quickly.
"""

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from impresslearn.errors import visible

ABSENT = "–"
WIDTH = 80  # columns of a terminal
SHOWN = 50  # rows of a long table in a notebook
UNITS = ("B", "kB", "MB", "GB")
# Kind of a column -> pattern of its name. Numbers in other columns have four significant digits.
KINDS = {
    "fraction": r"(.*_)?accuracy(_.*)?|rejected|share|density|found|unknown|(class|task)_il",
    "points": r"(.*_)?difference|forgetting|(backward|forward)_transfer",
    "bytes": r"bytes(_.*)?|.*_bytes",
    "seconds": r"seconds(_.*)?|.*_seconds",
    "probability": r"(.*_)?p_value|p_holm",
}


def percent(fraction: float | None) -> str:
    """0.9312 -> "93.1%"."""
    return ABSENT if fraction is None else f"{fraction:.1%}"


def size(count: float) -> str:
    """Bytes in decimal units: 120 -> "120 B", 33275 -> "33.3 kB"."""
    scaled, whole = count, float(count).is_integer()
    for unit in UNITS:
        places = 1 if (scaled < 100 and unit != "B") or (unit == "B" and not whole) else 0
        text = f"{scaled:.{places}f}"
        if float(text) < 1000 or unit == UNITS[-1]:
            break
        scaled /= 1000
    return f"{text} {unit}"


def duration(seconds: float) -> str:
    """41.3 -> "41 s", 135 -> "2 min 15 s", 8100 -> "2 h 15 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def signed(value: float) -> str:
    """A difference in percentage points, with its sign: 1.23 -> "+1.2", -0.5 -> "−0.5"."""
    text = f"{value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def number(value: float) -> str:
    """A number with up to four significant digits; integers with all digits."""
    whole = float(value).is_integer() and abs(value) < 1e15
    return f"{value:.0f}" if whole else f"{value:.4g}"


def kind_of(key: str) -> str:
    """The kind of a column, by its name: a key of `KINDS`, or "number"."""
    return next((kind for kind, names in KINDS.items() if re.fullmatch(names, key)), "number")


FORMATS: dict[str, Callable[[float], str]] = {
    "fraction": percent,
    "points": lambda value: signed(100 * value),  # fractions, shown as percentage points
    "bytes": size,
    "seconds": duration,
    "probability": lambda value: "< 0.001" if value < 0.001 else f"{value:.3f}",
    "number": number,
}


def format_value(key: str, value: Any) -> str:
    """A value of the column `key` as text; a dash for None."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return visible(str(value))
    return FORMATS[kind_of(key)](value)


def texts_of(key: str, values: Iterable[Any]) -> dict[Any, str]:
    """Value -> its text, as `format_value` makes it if no two values then have the same text."""
    texts = {value: format_value(key, value) for value in values}
    is_clear = len(set(texts.values())) == len(texts)
    return texts if is_clear else {value: repr(value) for value in texts}


def format_interval(key: str, mean: float, half_width: float) -> str:
    """A mean ± half the width of its interval, as text in the format of the column `key`."""
    kind = kind_of(key)
    if kind == "fraction":
        return f"{100 * mean:.1f} ± {100 * half_width:.1f}%"
    if kind == "points":
        return f"{signed(100 * mean)} ± {100 * half_width:.1f}"
    return f"{format_value(key, mean)} ± {format_value(key, half_width)}"


@dataclass(frozen=True)
class Table:
    """A table of texts.

    - header: one heading per column
    - rows: each with one text per column
    - numeric: for each column, whether it is aligned to the right
    - title, note: lines above and below the table
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]
    title: str = ""
    note: str = ""

    def text(self) -> str:
        """The table in aligned columns, with title and note; headings wrap between words."""
        headings, limits = [], []
        for place, heading in enumerate(self.header):
            limit = max(map(len, [*heading.split(), *(row[place] for row in self.rows)]), default=1)
            headings.append(textwrap.wrap(heading, limit) or [""])
            limits.append(limit)
        depth = max(map(len, headings), default=0)
        # Headings with fewer lines are at the bottom, next to their column.
        padded = [[""] * (depth - len(lines)) + lines for lines in headings]
        lines = [textwrap.fill(self.title, WIDTH)] if self.title else []
        lines += [self._line(row, limits) for row in zip(*padded, strict=True)]
        lines.append("-" * (sum(limits) + 2 * (len(limits) - 1)))
        lines += [self._line(row, limits) for row in self.rows]
        return "\n".join([*lines, textwrap.fill(self.note, WIDTH)] if self.note else lines)

    def _line(self, row: Sequence[str], limits: Sequence[int]) -> str:
        cells = []
        for text, limit, right in zip(row, limits, self.numeric, strict=True):
            cells.append(text.rjust(limit) if right else text.ljust(limit))
        return "  ".join(cells).rstrip()

    def html(self) -> str:
        """The table as an HTML element, with title and note as paragraphs."""
        lines = []
        for tag, row in [("th", self.header), *(("td", row) for row in self.rows)]:
            cells = []
            for text, right in zip(row, self.numeric, strict=True):
                cells.append(f"<{tag}{' class=right' if right else ''}>{escape(text)}</{tag}>")
            lines.append(f"<tr>{''.join(cells)}</tr>")
        body = "\n".join(lines[1:])
        title = f"<p><b>{escape(self.title)}</b></p>" if self.title else ""
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"{title}<table><thead>{lines[0]}</thead>\n<tbody>{body}</tbody></table>{note}"


def table_of(rows: Sequence[Mapping[str, Any]], title: str = "", note: str = "") -> Table:
    """A `Table` of dictionaries with the same keys; `format_value` makes the cells."""
    keys = list(rows[0]) if rows else []
    return Table(
        header=tuple(key.replace("_", " ") for key in keys),
        rows=tuple(tuple(format_value(key, row[key]) for key in keys) for row in rows),
        numeric=tuple(not any(isinstance(row[key], str) for row in rows) for key in keys),
        title=title,
        note=note,
    )


def remaining(rows: int) -> str:
    """A note below the first `SHOWN` of a number of rows."""
    return f"and {rows - SHOWN:,} more" if rows > SHOWN else ""
