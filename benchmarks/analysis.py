"""Turns the rows of records into tables of means, with pandas.

A mean of at least five independent draws has an interval (see `impresslearn.statistics`). If rows
have several seeds, a draw is a seed; otherwise it is a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.records import Record
from impresslearn.errors import InputError
from impresslearn.statistics import Summary, summarise
from impresslearn.tables import ABSENT, Table, format_interval, format_value, kind_of


def chosen(frame: pd.DataFrame, where: Mapping[str, Any], keys: Sequence[str] = ()) -> pd.DataFrame:
    """The rows whose columns have the given values.

    - where: column -> a value, or a list of values of which a row has one
    - keys: columns in which a row must have any value

    Raises InputError if no row is left.
    """
    selected = frame.reindex(columns=list(dict.fromkeys([*frame.columns, *where, *keys])))
    for column, wanted in where.items():
        values = wanted if isinstance(wanted, (list, tuple)) else [wanted]
        selected = selected[selected[column].isin(values)]
    selected = selected.dropna(subset=list(keys))
    if selected.empty:
        raise InputError(f"no row has {', '.join(keys)} where {dict(where)}")
    return selected


def mean_of(frame: pd.DataFrame, key: str) -> tuple[Summary, str]:
    """The mean and interval of a column, and the number of its draws, such as "5 seeds"."""
    measured = frame.dropna(subset=[key])
    values, draws, unit = measured[key].astype(float), None, "row"
    # Rows of one seed share a network, so with several seeds each seed is one draw.
    for column, fewest in (("task", 1), ("seed", 2)):
        known = column in measured and measured[column].notna().all()
        if known and measured[column].nunique() >= fewest:
            draws, unit = values.groupby(measured[column], sort=False).mean(), column
    summary = summarise((values if draws is None else draws).tolist())
    count = len(summary.draws)
    return summary, f"{count} {unit}{'' if count == 1 else 's'}"


def groups_of(
    frame: pd.DataFrame, columns: Sequence[str]
) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """Groups rows by some columns; numbers in ascending order, texts in order of occurrence."""
    keyed = frame.copy()
    for column in columns:
        if not pd.api.types.is_numeric_dtype(keyed[column]):
            # Categories sort texts in the order in which they first occur.
            known = keyed[column].dropna().unique()
            keyed[column] = pd.Categorical(keyed[column], categories=known)
    grouped = keyed.groupby(list(columns), sort=True, dropna=False, observed=True)
    return [(place, frame.loc[group.index]) for place, group in grouped]


def tables_of(record: Record) -> list[Table]:
    """The tables that a record defines, ready to print.

    Raises InputError for a table without rows.
    """
    return [_table(record, table) for table in record["tables"]]


def _table(record: Record, table: Mapping[str, Any]) -> Table:
    title = table.get("title", "")
    if "rows_verbatim" in table:
        cells = [tuple(map(_label, row)) for row in table["rows_verbatim"]]
        numeric = (False, *[True] * (len(table["header"]) - 1))
        return Table(tuple(table["header"]), tuple(cells), numeric, title)
    columns, values = table["columns"], table["values"]
    frame = chosen(pd.DataFrame(record["rows"]), table.get("where", {}))
    frame = frame.dropna(subset=[key for key in values if key in frame], how="all")
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, *columns, *values])))
    lines, over = [], {}
    for place, group in groups_of(frame, columns):
        cells = []
        for key in values:
            if group[key].isna().all():
                cells.append(ABSENT)
                continue
            summary, n = mean_of(group, key)
            cells.append(summary_text(key, summary))
            over[n] = True
        lines.append((*map(_label, place), *cells))
    header = [name.replace("_", " ") for name in (*columns, *values)]
    numeric = [pd.api.types.is_numeric_dtype(frame[column]) for column in columns]
    numeric += [True] * len(values)
    note = f"means over {' or '.join(over)}; ± half a 95% t interval, from five on"
    return Table(tuple(header), tuple(lines), tuple(numeric), title, note)


def summary_text(key: str, summary: Summary) -> str:
    """A mean as a cell, with its interval or, if there are few draws, the draws."""
    if kind_of(key) == "points":  # the values are percentage points, not fractions
        return f"{summary.mean:+.1f} points"
    if kind_of(key) == "fraction" and summary.half_width is not None:
        return format_interval(key, summary.mean, summary.half_width)
    text = format_value(key, summary.mean)
    if kind_of(key) != "fraction" or len(set(summary.draws)) == 1:
        return text
    return f"{text} [{', '.join(format_value(key, draw) for draw in summary.draws)}]"


def _label(value: Any) -> str:
    """A value of a column that names rows, as text."""
    return format_value("", None if pd.isna(value) else value)
