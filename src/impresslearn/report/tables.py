"""A record's tables, and the record in text: Markdown, or for the terminal by rich."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from impresslearn.errors import InputError
from impresslearn.report.checking import is_number, naming
from impresslearn.report.quantities import Quantity, named, quantity_in, word
from impresslearn.report.records import Record
from impresslearn.report.selection import Row, grouped, no_rows, ordered
from impresslearn.report.specification import Table as Specified
from impresslearn.report.specification import matches
from impresslearn.report.statistics import Summary, summarise
from impresslearn.report.wording import ABSENT, duration, spaced

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


@dataclass(frozen=True)
class Cells:
    """A table as it is read: numeric tells which columns are aligned to the right."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[bool, ...]


def tables_of(record: Record) -> list[Cells]:
    """The record's tables, in its order. Raises InputError for one without rows."""
    made = []
    for position, table in enumerate(record.tables):
        with naming(f"{record.target}: tables[{position}]"):
            if table.rows_verbatim is None:
                made.append(_means(table, record.rows))
                continue
            numeric = tuple(
                all(is_number(row[place]) for row in table.rows_verbatim if row[place])
                for place in range(len(table.header))
            )
            rows = tuple(tuple(map(word, row)) for row in table.rows_verbatim)
            made.append(Cells(table.title, "", table.header, rows, numeric))
    return made


def told(record: Record) -> dict[str, str]:
    """What is said about a record, by heading: the paper's claim, unless it is a custom run's."""
    if record.is_custom:
        about = {"Your run": "a configuration of your own; the paper says nothing about it"}
    else:
        about = {"The paper": record.claim} if record.claim else {}
    return about | ({"Found here": record.finding} if record.finding else {})


def markdown(table: Cells) -> str:
    """The table in Markdown, with its title and note."""
    marks = ("---:" if right else "---" for right in table.numeric)
    lines = [map(_escaped, table.header), marks, *(map(_escaped, row) for row in table.rows)]
    title = [f"**{_escaped(table.title)}**", ""] if table.title else []
    note = ["", f"*{_escaped(table.note)}*"] if table.note else []
    return "\n".join([*title, *(f"| {' | '.join(line)} |" for line in lines), *note])


def printable(table: Cells) -> "Table":
    """The table for rich to print."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title, note = (Text(part) if part else None for part in (table.title, table.note))
    left: Any = {"title_justify": "left", "caption_justify": "left", "title_style": "bold"}
    made = Table(title=title, caption=note, box=box.SIMPLE_HEAD, **left)
    for heading, right in zip(table.header, table.numeric, strict=True):
        made.add_column(Text(heading), justify="right" if right else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*map(Text, row))  # Text, not str: brackets in a name are no markup
    return made


def markdown_of(record: Record) -> str:
    """The record in Markdown. Raises InputError for a table without rows."""
    title, *lines = map(_escaped, _lines(record))
    return "\n\n".join([f"## {title}", *lines, *map(markdown, tables_of(record))])


def printable_of(record: Record) -> "Group":
    """The record for rich to print. Raises InputError for a table without rows."""
    from rich.console import Group
    from rich.text import Text

    title, *lines = map(Text, _lines(record))
    title.stylize("bold underline")
    tables = [part for table in tables_of(record) for part in (Text(), printable(table))]
    return Group(title, *lines, *tables, Text())


def _lines(record: Record) -> list[str]:
    scale = "" if record.is_custom else f"Scale {record.scale}; "
    rows = f"{len(record.rows):,} rows; {duration(record.seconds)}."
    about = (f"{heading}: {text}" for heading, text in told(record).items())
    return [record.title, *about, f"{scale}{record.data}; {rows}"]


def _means(table: Specified, rows: Sequence[Row]) -> Cells:
    chosen = [
        row for row in rows if matches(row, table.where) and any(key in row for key in table.values)
    ]
    if not chosen:
        raise InputError(no_rows(table.values, table.where))
    ranks = {key: {None: -1} for key in table.columns}  # what lacks a column comes first
    for key in table.columns:
        values = ordered(row[key] for row in chosen if key in row)
        ranks[key] |= {value: rank for rank, value in enumerate(values)}
    groups = grouped(chosen, lambda row: tuple(ranks[key][row.get(key)] for key in table.columns))
    lines, over = [], set()
    for place in sorted(groups):
        cells, counts = [], []
        for key in table.values:
            having = [row for row in groups[place] if key in row]
            counts.append(str(len(having)))
            found = summarise(having, key) if having else None
            over |= {found.over} if found and found.half_width is not None else set()
            cells.append(_cell(found, quantity_in(rows, key)))
        labels = [named(groups[place][0].get(key), key) for key in table.columns]
        lines.append((*labels, *cells, counts[0] if len(set(counts)) == 1 else ", ".join(counts)))
    numeric = [all(not isinstance(row.get(key), str) for row in chosen) for key in table.columns]
    note = f"mean ± 95% interval over {' or '.join(sorted(over))}" if over else "mean"
    return Cells(
        title=table.title,
        note=f"{note}; n: rows",
        header=(*map(spaced, (*table.columns, *table.values)), "n"),
        rows=tuple(lines),
        numeric=(*numeric, *[True] * (len(table.values) + 1)),
    )


def _cell(found: Summary | None, quantity: Quantity) -> str:
    if found is None:
        return ABSENT
    if found.half_width is None:
        return quantity.text(found.mean)
    return quantity.interval(found.mean, found.half_width)


def _escaped(cell: str) -> str:
    """Text that Markdown shows as it is, inside a table's cell."""
    flat = " ".join(cell.split())
    for sign in "\\`*_[]<>|~&":
        flat = flat.replace(sign, f"\\{sign}")
    return flat
