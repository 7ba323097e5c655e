"""A record's tables, and the record in text: Markdown, LaTeX, or for the terminal by rich."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.report.cells import Cells, escaped
from benchmarks.report.quantities import ABSENT, duration, named, quantity_in, spaced, word
from benchmarks.report.records import Record
from benchmarks.report.specification import Table, is_number, naming
from benchmarks.report.statistics import (
    Row,
    choose,
    grouped,
    matches,
    no_rows,
    ordered,
    summarise,
)
from impresslearn.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group


def tables_of(record: Record) -> list[Cells]:
    """The record's tables, in its order. Raises InputError for one without rows."""
    made = []
    for position, table in enumerate(record.tables):
        with naming(f"{record.target}: tables[{position}]"):
            verbatim = table.rows_verbatim is not None
            made.append(_verbatim(table) if verbatim else _means(table, record.rows))
    return made


def highlights_of(record: Record) -> list[tuple[str, str, str]]:
    """Title, mean and caption of each highlight. Raises InputError for one without rows."""
    made = []
    for position, each in enumerate(record.highlights):
        with naming(f"{record.target}: highlights[{position}]"):
            mean = summarise(choose(record.rows, (each.value,), each.where), each.value).mean
            text = quantity_in(record.rows, each.value).text(mean)
            made.append((each.title or spaced(each.value), text, each.caption))
    return made


def told(record: Record) -> dict[str, str]:
    """What is said about a record, by heading: the paper's claim and what was found."""
    about = {"The paper": record.claim} if record.claim else {}
    return about | ({"Found here": record.finding} if record.finding else {})


def plain_of(record: Record) -> dict[str, Any]:
    """What a report shows of a record, as JSON values: its tables as those of words."""
    return {
        "target": record.target,
        "scale": record.scale,
        "title": record.title,
        **{heading.lower().replace(" ", "_"): text for heading, text in told(record).items()},
        "highlights": {title: value for title, value, _ in highlights_of(record)},
        "tables": [
            {"title": each.title, "header": list(each.header), "rows": list(map(list, each.rows))}
            for each in tables_of(record)
        ],
    }


def markdown_of(record: Record) -> str:
    """The record in Markdown. Raises InputError for a table without rows."""
    title, *lines = map(escaped, _lines(record))
    return "\n\n".join([f"## {title}", *lines, *(each.markdown() for each in tables_of(record))])


def latex_of(record: Record) -> str:
    """The record's tables in LaTeX. Raises InputError for a table without rows."""
    return "\n\n".join(table.latex() for table in tables_of(record))


def printable_of(record: Record) -> "Group":
    """The record for rich to print. Raises InputError for a table without rows."""
    from rich.console import Group
    from rich.text import Text

    title, *lines = map(Text, _lines(record))
    title.stylize("bold underline")
    tables = [part for table in tables_of(record) for part in (Text(), table.printable())]
    return Group(title, *lines, *tables, Text())


def _lines(record: Record) -> list[str]:
    scale = "" if record.is_custom else f"Scale {record.scale}; "
    rows = f"{len(record.rows):,} rows; {duration(record.seconds)}."
    about = [f"{heading}: {text}" for heading, text in told(record).items()]
    numbers = " · ".join(f"{title} {value}" for title, value, _ in highlights_of(record))
    return [record.title, *about, f"{scale}{record.data}; {rows}", *([numbers] if numbers else [])]


def _verbatim(table: Table) -> Cells:
    rows = table.rows_verbatim or ()
    numeric = (
        all(is_number(row[place]) for row in rows if row[place])
        for place in range(len(table.header))
    )
    cells = tuple(tuple(map(word, row)) for row in rows)
    return Cells(table.title, "", table.header, cells, tuple(numeric))


def means_of(record: Record) -> list[dict[str, Any]]:
    """The means behind the record's tables: mean, unit, half_width and what it is over, and n.

    half_width: None for one row. over: like "5 tasks". n: rows; seeds of a difference.
    """
    found: list[dict[str, Any]] = []
    for table in record.tables:
        groups = {} if table.rows_verbatim is not None else _groups(table, record.rows)
        for place, of in groups.items():
            labels = {"table": table.title, **dict(zip(table.columns, place, strict=True))}
            measured = {key: [row for row in of if key in row] for key in table.values}
            means = {key: _mean_of(rows, key) for key, rows in measured.items() if rows}
            if {"half_width", "difference"} <= means.keys():  # no means over rows, but one row
                told = {key: each["mean"] for key, each in means.items() if key != "difference"}
                seeds = labels.pop("seeds", None)
                told |= {"over": f"{seeds} seeds", "n": seeds} if seeds else {}
                means = {"difference": means["difference"] | told}
            found += [labels | each for each in means.values()]
    return found


def _mean_of(rows: Sequence[Row], key: str) -> dict[str, Any]:
    told, unit = summarise(rows, key), quantity_in(rows, key).unit
    over = None if told.half_width is None else told.over
    interval = {"mean": told.mean, "half_width": told.half_width, "over": over}
    return {"measure": key, "unit": unit, **interval, "n": told.count}


def _groups(table: Table, rows: Sequence[Row]) -> dict[tuple[Any, ...], list[Row]]:
    """The rows of a table by their columns, in its order. Raises InputError where there is none."""
    chosen = [
        row for row in rows if matches(row, table.where) and any(key in row for key in table.values)
    ]
    if not chosen:
        raise InputError(no_rows(table.values, table.where))
    ranks = [  # what lacks a column comes first
        [None, *ordered(row[key] for row in chosen if key in row)] for key in table.columns
    ]
    groups = grouped(chosen, lambda row: tuple(map(row.get, table.columns)))
    places = sorted(groups, key=lambda place: [*map(list.index, ranks, place)])
    return {place: groups[place] for place in places}


def _means(table: Table, rows: Sequence[Row]) -> Cells:
    groups = _groups(table, rows)
    chosen = [row for of in groups.values() for row in of]
    lines, over = [], set()
    for place, of in groups.items():
        cells, counts = [], []
        for key in table.values:
            having = [row for row in of if key in row]
            counts += [str(len(having))] if having else []
            found = summarise(having, key) if having else None
            over |= {found.over} if found and found.half_width is not None else set()
            cells.append(found.text(quantity_in(rows, key)) if found else ABSENT)
        labels = map(named, place, table.columns)
        lines.append((*labels, *cells, counts[0] if len(set(counts)) == 1 else ", ".join(counts)))
    single = all(len(of) == 1 for of in groups.values())  # then every count is 1 or 0
    numeric = [all(not isinstance(row.get(key), str) for row in chosen) for key in table.columns]
    units = " or ".join(sorted(over))
    note = f"mean ± half a 95% t interval over the means of {units}" if over else "mean"
    return Cells(
        title=table.title,
        note="" if single else f"{note}; n: rows",
        header=(*map(spaced, (*table.columns, *table.values)), *([] if single else ["n"])),
        rows=tuple(line[:-1] if single else line for line in lines),
        numeric=(*numeric, *[True] * (len(table.values) + (not single))),
    )
