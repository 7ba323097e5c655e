"""Text from data or files, made safe to show: what steers a terminal becomes backslash escapes.

A label or a file's name may hold anything: tabs and newlines that forge rows, escape sequences that
a terminal obeys, marks that turn the reading direction, bytes that are no text. `cli.output` shows
every line through here, `progress` its titles, `report` the texts of a record.
"""

from typing import Any
from unicodedata import category

JOINERS = "\u200c\u200d"
"""Between letters of some scripts and parts of some emoji: the only format characters that stay."""


def visible(text: str) -> str:
    """The text with controls, line breaks and the like as in Python: \\t, \\x1b, \\u202e."""
    if text.isprintable():
        return text
    return "".join(
        each if _is_shown(each) else each.encode("unicode_escape").decode() for each in text
    )


def visible_within(value: Any) -> Any:
    """Plain data with every text in it, keys too, made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_within(key): visible_within(part) for key, part in value.items()}
    return [visible_within(part) for part in value] if isinstance(value, list) else value


def _is_shown(each: str) -> bool:
    return each.isprintable() or each in JOINERS or category(each) == "Zs"
