"""What a target is: a plan of jobs, the rows that they become, and how those are shown.

Much of it is said in the TOML files beside this one, where a table changes what it says of those
that it is `like`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.jobs import Job

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCALES = ("smoke", "small", "paper")
VALUES = ("task", "accuracy", "bytes_per_task", "prediction_bytes")
Row = dict[str, Any]
Table = dict[str, Any]


@dataclass(frozen=True)
class Planned:
    """A job, and what its rows say beside its outcome.

    - values: which of the outcome's values go into the row
    """

    job: Job
    columns: Mapping[str, Any]
    values: Sequence[str] = VALUES

    def rows(self, outcome: Mapping[str, Any]) -> list[Row]:
        """The finished row, or a row for each of the outcome's rows, where it has several."""
        if "rows" in outcome:
            return [{**self.columns, **row} for row in outcome["rows"]]
        values = {name: outcome[name] for name in self.values if name in outcome}
        return [{**self.columns, **values}]


@dataclass(frozen=True)
class Plan:
    """What a target does at one scale.

    - data: the data set in words
    - settings: what differs from the defaults, as plain values
    - figures, tables: see `benchmarks.report`
    - derive: makes the final rows (with differences, tests) from the measured ones
    """

    planned: Sequence[Planned]
    data: str
    settings: Mapping[str, Any]
    seeds: Sequence[int] = ()
    figures: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[Mapping[str, Any]] = ()
    derive: Callable[[list[Row]], list[Row]] | None = None

    def finish(self, rows: list[Row]) -> list[Row]:
        """The rows of the record; undefined values, such as a test of constants, are left out."""
        if self.derive is None:
            return rows
        finished = []
        for row in self.derive(rows):
            defined = [(key, value) for key, value in row.items() if value == value]  # not NaN
            finished.append(dict(defined))
        return finished


@dataclass(frozen=True)
class Target:
    """A figure or table.

    - claim: of the paper
    - expects: what to see, in words
    - cost: in words, for two cores at scale `small`
    """

    name: str
    title: str
    claim: str
    expects: str
    cost: str
    plan: Callable[[str], Plan] = field(repr=False)


@lru_cache
def read_tables(file: str) -> Table:
    """What a TOML file beside this one holds."""
    return tomllib.loads((Path(__file__).parent / file).read_text("utf-8"))


def table_of(file: str, path: str) -> Table:
    """The table of a path with dots in a TOML file, `like` resolved."""
    table: Any = read_tables(file)
    for key in path.split("."):
        table = table[key]
    return resolved(file, table)


def resolved(file: str, table: Table) -> Table:
    """The table on top of those that `like` names, which are paths with dots."""
    changes = dict(table)
    like = changes.pop("like", [])
    merged: Table = {}
    for path in [like] if isinstance(like, str) else like:
        merged = _changed(merged, table_of(file, path))
    return _changed(merged, changes)


def _changed(table: Table, changes: Table) -> Table:
    """The table with entries replaced, inner tables entry by entry."""
    merged = dict(table)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            value = _changed(merged[key], value)
        merged[key] = value
    return merged
