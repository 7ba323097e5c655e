"""A record in text: what the paper says, what was found, and the tables; Markdown or terminal."""

from typing import TYPE_CHECKING

from impresslearn.report.results import Record
from impresslearn.report.tables import as_markdown, escaped, printable, tables_of
from impresslearn.report.wording import duration

if TYPE_CHECKING:
    from rich.console import Group


def markdown_of(record: Record) -> str:
    """The record in Markdown. Raises InputError for a table without rows."""
    parts = [
        f"## {escaped(record.title)}",
        f"The paper: {escaped(record.claim)}",
        f"Found here: {escaped(record.finding)}" if record.finding else "",
        escaped(_circumstances(record)),
        *map(as_markdown, tables_of(record)),
    ]
    return "\n\n".join(part for part in parts if part)


def printable_of(record: Record) -> "Group":
    """The record for rich to print. Raises InputError for a table without rows."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines = [
        Text(record.title, style="bold underline"),
        Text(f"The paper: {record.claim}"),
        *([Text(f"Found here: {record.finding}")] if record.finding else []),
        Text(_circumstances(record), style="dim"),
    ]
    tables = (Padding(printable(table), (1, 0, 0, 2)) for table in tables_of(record))
    return Group(*lines, *tables, Text())


def _circumstances(record: Record) -> str:
    rows = f"{len(record.rows):,} rows"
    return f"Scale {record.scale}; {record.data}; {rows}; {duration(record.seconds)}."
