"""A record's tables as rows of words, and those as Markdown or for the terminal.

A mean is shown with its 95% interval (see `statistics` for what is averaged over what), `n` is the
number of rows behind it. `summary` puts the tables of a record together.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from impresslearn.errors import InputError
from impresslearn.report.charts.axes import named, ordered
from impresslearn.report.charts.means import units
from impresslearn.report.charts.selection import no_rows, quantity_in
from impresslearn.report.checks import naming
from impresslearn.report.quantities import Quantity, word
from impresslearn.report.results import Record
from impresslearn.report.specification import MeanTable, TableOf, VerbatimTable, matches
from impresslearn.report.statistics import Summary, summarise
from impresslearn.report.wording import ABSENT, spaced

if TYPE_CHECKING:
    import rich.table

Row = Mapping[str, Any]


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
            made.append(cells_of(table, record))
    return made


def cells_of(table: TableOf, record: Record) -> Cells:
    """One table of the record's rows."""
    if isinstance(table, VerbatimTable):
        columns = list(zip(*table.rows_verbatim, strict=True)) or [()] * len(table.header)
        return Cells(
            title=table.title,
            note="",
            header=table.header,
            rows=tuple(tuple(map(word, row)) for row in table.rows_verbatim),
            numeric=tuple(_is_numeric(column) for column in columns),
        )
    return _means(table, record.rows)


def as_markdown(table: Cells) -> str:
    """The table in Markdown, with its title and note."""
    marks = ("---:" if right else "---" for right in table.numeric)
    lines = [table.header, tuple(marks), *table.rows]
    body = [
        "| " + " | ".join(cell if line is lines[1] else escaped(cell) for cell in line) + " |"
        for line in lines
    ]
    title = [f"**{escaped(table.title)}**", ""] if table.title else []
    note = ["", f"*{escaped(table.note)}*"] if table.note else []
    return "\n".join([*title, *body, *note])


def printable(table: Cells) -> "rich.table.Table":
    """The table for rich to print."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(
        title=Text(table.title) if table.title else None,
        caption=Text(table.note) if table.note else None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
        title_style="bold",
    )
    for heading, right in zip(table.header, table.numeric, strict=True):
        made.add_column(Text(heading), justify="right" if right else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*map(Text, row))  # Text, not str: brackets in a name are no markup
    return made


def _means(table: MeanTable, rows: Sequence[Row]) -> Cells:
    chosen = [
        row for row in rows if matches(row, table.where) and any(key in row for key in table.values)
    ]
    if not chosen:
        raise InputError(no_rows(table.values, table.where))
    quantities = [quantity_in(rows, key) for key in table.values]
    lines, kinds = [], set()
    for group in _grouped(chosen, table.columns):
        found = [_summary(group, key) for key in table.values]
        kinds |= {units(each) for each in found if each and each.half_width is not None}
        shown = [_cell(summary, of) for summary, of in zip(found, quantities, strict=True)]
        labels = [named(group[0][key], key) if key in group[0] else ABSENT for key in table.columns]
        lines.append((*labels, *shown, _counted(found)))
    heads = (*map(spaced, (*table.columns, *table.values)), "n")
    numeric = [all(not isinstance(row.get(key), str) for row in chosen) for key in table.columns]
    note = f"mean ± 95% interval over {' or '.join(sorted(kinds))}" if kinds else "mean"
    return Cells(
        title=table.title,
        note=f"{note}; n: rows",
        header=heads,
        rows=tuple(lines),
        numeric=(*numeric, *[True] * (len(table.values) + 1)),
    )


def _grouped(rows: Sequence[Row], columns: Sequence[str]) -> list[list[Row]]:
    """Rows that agree in the columns, sorted by them; what lacks a column comes first."""
    ranks: list[dict[Any, int]] = []
    for key in columns:
        values = ordered(row[key] for row in rows if key in row)
        ranks.append({value: rank for rank, value in enumerate(values)})
    groups: dict[tuple[Hashable, ...], list[Row]] = {}
    for row in rows:
        place = tuple(rank.get(row.get(key), -1) for key, rank in zip(columns, ranks, strict=True))
        groups.setdefault(place, []).append(row)
    return [groups[place] for place in sorted(groups)]


def _summary(rows: Sequence[Row], key: str) -> Summary | None:
    having = [row for row in rows if key in row]
    return summarise(having, key) if having else None


def _cell(summary: Summary | None, quantity: Quantity) -> str:
    if summary is None:
        return ABSENT
    if summary.half_width is None:
        return quantity.text(summary.mean)
    return quantity.interval(summary.mean, summary.half_width)


def _counted(found: Sequence[Summary | None]) -> str:
    """The number of rows, or of each value's where they differ."""
    counts = [str(summary.count) if summary else "0" for summary in found]
    return counts[0] if len(set(counts)) == 1 else ", ".join(counts)


def _is_numeric(column: Sequence[Any]) -> bool:
    given = [cell for cell in column if cell is not None and cell != ""]
    return bool(given) and all(
        isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in given
    )


def escaped(cell: str) -> str:
    """Text that Markdown shows as it is, inside a table's cell."""
    flat = " ".join(cell.split())
    for sign in "\\`*_[]<>|":
        flat = flat.replace(sign, f"\\{sign}")
    return flat
