"""What a target is: a plan of jobs, the rows that they become, and how those are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from impresslearn.errors import InputError
from impresslearn.experiments.jobs import Job

SCALES = ("smoke", "small", "paper")
ROW_VALUES = ("task", "accuracy", "bytes_per_task")
Row = dict[str, Any]


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
    `impresslearn.report`.
    """

    planned: Sequence[Planned]
    data: str
    settings: Mapping[str, Any]
    seeds: Sequence[int]
    figures: Sequence[Mapping[str, Any]] = ()
    tables: Sequence[Mapping[str, Any]] = ()
    finish: Callable[[list[Row]], list[Row]] | None = None


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
    if scale not in SCALES:
        raise InputError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    return scale
