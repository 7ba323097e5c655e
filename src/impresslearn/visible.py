"""Text from data or files, made safe to show: what is not printable becomes backslash escapes.

A label or a file's name may hold anything: tabs and newlines that forge rows, escape sequences that
a terminal obeys, marks that turn the reading direction, bytes that are no text. `cli.output` shows
every line through here, `progress` its titles, `report` the texts of a record.
"""

from typing import Any


def visible(text: str) -> str:
    """The text with what is not `str.isprintable` as Python writes it in a literal: \\t, \\x1b."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def visible_within(value: Any) -> Any:
    """Plain data with every text in it, keys too, made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible_within(key): visible_within(part) for key, part in value.items()}
    return [visible_within(part) for part in value] if isinstance(value, list) else value
