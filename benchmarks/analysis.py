"""Rows of records as tables of means, by pandas.

A mean has an interval from five independent draws on: `impresslearn.statistics` has the rule. Where
rows are of several seeds, a draw is a seed; else a task.
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
    """The rows whose columns have one of the values wanted.

    - where: column -> a value or a list of values
    - keys: columns in which a row must have a value

    Raises InputError where no row is left.
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
    """Mean and interval of a column over the seeds or tasks, and what n counts: "5 seeds"."""
    measured = frame.dropna(subset=[key])
    values, draws, unit = measured[key].astype(float), None, "row"
    # Rows of one seed share a network: with several seeds, a seed is a draw.
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
    """The rows by their values in some columns: numbers ascend, texts keep their order."""
    keyed = frame.copy()
    for column in columns:
        if not pd.api.types.is_numeric_dtype(keyed[column]):
            # As categories, texts are sorted by when they first come.
            known = keyed[column].dropna().unique()
            keyed[column] = pd.Categorical(keyed[column], categories=known)
    grouped = keyed.groupby(list(columns), sort=True, dropna=False, observed=True)
    return [(place, frame.loc[group.index]) for place, group in grouped]


def tables_of(record: Record) -> list[Table]:
    """The tables that a record asks for, ready to be printed.

    Raises InputError for one without rows.
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
    """A mean as a cell, with its interval or, where they are few, its draws."""
    if kind_of(key) == "points":  # the rows have points already, not fractions
        return f"{summary.mean:+.1f} points"
    if kind_of(key) == "fraction" and summary.half_width is not None:
        return format_interval(key, summary.mean, summary.half_width)
    text = format_value(key, summary.mean)
    if kind_of(key) != "fraction" or len(set(summary.draws)) == 1:
        return text
    return f"{text} [{', '.join(format_value(key, draw) for draw in summary.draws)}]"


def _label(value: Any) -> str:
    """The value of a column that names a row."""
    return format_value("", None if pd.isna(value) else value)
