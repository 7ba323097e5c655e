"""What a target is: a plan of jobs, the rows that they become, and how those are shown.

Much of it is said in the TOML files beside this one, where a table changes what it says of those
that it is `like`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from importlib.resources import files
from typing import Any

from benchmarks.jobs import Job
from impresslearn.checks import check_choice

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCALES = ("smoke", "small", "paper")
ROW_VALUES = ("task", "accuracy", "bytes_per_task", "prediction_bytes")
Row = dict[str, Any]
Table = dict[str, Any]


@dataclass(frozen=True)
class Planned:
    """A job and what its row says besides the outcome.

    values: which of the outcome's values go into the row.
    """

    job: Job
    columns: Mapping[str, Any]
    values: Sequence[str] = ROW_VALUES

    def row(self, outcome: Mapping[str, Any]) -> Row:
        """The finished row."""
        found = {name: outcome[name] for name in self.values if name in outcome}
        return {**self.columns, **found}


@dataclass(frozen=True)
class Plan:
    """What a target does at one scale.

    data: what it is measured on; settings: what differs from the defaults, as plain values; finish:
    makes derived rows (tests, differences) from the measured ones; figures, tables: see
    `benchmarks.report`. optional: keys that all rows may lack, and figures and tables then.
    """

    planned: Sequence[Planned]
    data: str
    settings: Mapping[str, Any]
    seeds: Sequence[int]
    figures: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[Mapping[str, Any]] = ()
    finish: Callable[[list[Row]], list[Row]] | None = None
    optional: Collection[str] = ()

    def shown(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The figures and tables of these rows."""
        lacking = set(self.optional).difference(*rows)
        figures = [dict(each) for each in self.figures if each.get("y") not in lacking]
        tables = [
            {**each, "values": [key for key in each["values"] if key not in lacking]}
            if "values" in each
            else dict(each)
            for each in self.tables
            if not lacking.intersection(each.get("columns", ()))
        ]
        return figures, [each for each in tables if each.get("values", True)]


@dataclass(frozen=True)
class Target:
    """A figure or table. claim: what the paper says; expects: what to expect here; cost: in words,
    for two cores at scale `small`.
    """

    name: str
    title: str
    claim: str
    expects: str
    cost: str
    plan: Callable[[str], Plan] = field(repr=False)


def check_scale(scale: str) -> str:
    """Raises InputError unless it is a scale."""
    return str(check_choice("scale", scale, SCALES))


@lru_cache
def read_tables(file: str) -> Table:
    """What a TOML file beside this one holds."""
    return tomllib.loads(files(__package__).joinpath(file).read_text("utf-8"))


def table_of(tables: Table, path: str) -> Table:
    """The table of a path with dots, `like` resolved."""
    return resolved(tables, reduce(lambda table, key: table[key], path.split("."), tables))


def resolved(tables: Table, table: Table) -> Table:
    """The table on top of those that `like` names, which are paths with dots."""
    own = dict(table)
    like = own.pop("like", [])
    paths = [like] if isinstance(like, str) else like
    return reduce(_changed, [*(table_of(tables, path) for path in paths), own], {})


def _changed(table: Table, change: Table) -> Table:
    """The table with entries replaced, those of inner tables one by one."""
    found = dict(table)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _changed(found[key], value) if both else value
    return found


def filled(value: Any, word: str, name: str) -> Any:
    """The value with a name for "{word}" in its texts."""
    if isinstance(value, dict):
        return {key: filled(inner, word, name) for key, inner in value.items()}
    return value.replace(f"{{{word}}}", name) if isinstance(value, str) else value
