"""One figure, found in a record: which rows, which of their values, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from impresslearn.errors import InputError
from impresslearn.experiments.statistics import PairedTest, half_width, holm, paired_test
from impresslearn.report.records import Record, read_record

OWN = ("record", "value", "of", "unit", "against", "among")
"""What a lookup says besides the rows that it wants."""
PAIRED = ("task", "seed", "labels", "masks", "source", "benchmark")
"""What makes two rows a pair, where rows have it; without what tells the two sides apart."""
SCALES = {"%": 100, "points": 100, "kB": 1e-3, "MB": 1e-6, "ms": 1e3, "k": 1e-3, "M": 1e-6}

BARE = ("p", "holm", "count", "ratio")
"""What has no unit."""

Row = Mapping[str, Any]
AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": fmean,
    "min": min,
    "max": max,
    "sum": sum,
    "count": len,
    "interval": half_width,
    "furthest": lambda values: max(map(abs, values)),
}


@dataclass(frozen=True)
class Lookup:
    """Where one figure comes from.

    record: its name; where: column -> value of the rows meant, "" for none; value: a column, or
    "a - b"; of: one of AGGREGATES, or with other rows `against`: "difference" and "difference
    interval" of pairs, "p" of a paired t-test, or "ratio" of means; "holm": p, of that test or in
    the record, corrected for the tests of the rows named `among`; unit: where the text has none.
    """

    record: str
    where: Mapping[str, Any]
    value: str = "accuracy"
    of: str = "mean"
    unit: str = ""
    against: Mapping[str, Any] | None = None
    among: Sequence[Mapping[str, Any]] = ()

    def find(self, records: Path) -> float:
        """The figure in the record's own unit. Raises InputError where rows are missing."""
        record = _record(records / f"{self.record}.json")
        if self.of == "holm":
            tests = [self._p_value(record, each) for each in self.among]
            mine = [each for each in self.among if each.items() <= self.where.items()]
            if len(mine) != 1:
                raise InputError(f"{self}: among must hold it once")
            return holm(tests)[self.among.index(mine[0])]
        if self.against is None:
            if self.of not in AGGREGATES:
                raise InputError(f"{self}: of must be one of {', '.join(AGGREGATES)}")
            values = [_value_of(row, self.value) for row in self._rows(record, self.where)]
            return float(AGGREGATES[self.of](values))
        test = self._test(record, {})
        first = fmean(_value_of(row, self.value) for row in self._rows(record, self.where))
        found = {
            "p": test.p_value,
            "difference": test.difference,
            "difference interval": test.half_width,
            "ratio": first / (first - test.difference),
        }
        if self.of not in found:
            raise InputError(f"{self}: of must be one of {', '.join(found)}")
        return found[self.of]

    def scaled(self, value: float, unit: str) -> float:
        """The figure in the unit that the text shows it in."""
        unit = self.unit or unit
        if not unit and self.value.endswith("accuracy"):
            unit = "%"
        return value * (1 if self.of in BARE else SCALES.get(unit, 1))

    def _p_value(self, record: Record, which: Row) -> float:
        if self.against is not None:
            return self._test(record, which).p_value
        (row,) = self._rows(record, {**self.where, **which})
        return _value_of(row, self.value)

    def _test(self, record: Record, changes: Row) -> PairedTest:
        apart = self.against or {}
        sides: list[dict[tuple[Any, ...], Row]] = []
        for other in ({}, apart):
            rows = self._rows(record, {**self.where, **changes, **other})
            keyed = {tuple(row.get(key) for key in PAIRED if key not in apart): row for row in rows}
            if len(keyed) != len(rows) or (sides and set(keyed) != set(sides[0])):
                raise InputError(f"{self}: the rows are no pairs")
            sides.append(keyed)
        values = [[_value_of(side[key], self.value) for key in sides[0]] for side in sides]
        return paired_test(*values)

    def _rows(self, record: Record, where: Row) -> Sequence[Row]:
        rows = [
            row
            for row in record.rows
            if all(row.get(key, "") == each for key, each in where.items())
        ]
        if not rows:
            raise InputError(f"{self}: no such row")
        return rows

    def __str__(self) -> str:
        told = ", ".join(f"{key} = {value}" for key, value in self.where.items())
        other = ", ".join(f"{key} = {value}" for key, value in (self.against or {}).items())
        return (
            f"{self.record}: {self.of} {self.value}"
            + (f" where {told}" if told else "")
            + (f" against {other}" if other else "")
        )


def lookups(described: Mapping[str, Any]) -> Iterator[Lookup]:
    """One lookup, or one for each of the values where they are given as a list.

    Of several lists the last one changes fastest.
    """
    keys = [key for key, value in described.items() if isinstance(value, list) and key != "among"]
    for chosen in product(*(described[key] for key in keys)):
        one = {**described, **dict(zip(keys, chosen, strict=True))}
        own = {key: one[key] for key in OWN if key in one}
        if "record" not in own:
            raise InputError(f"a source must name its record, got {dict(described)}")
        yield Lookup(where={key: one[key] for key in one if key not in OWN}, **own)


@lru_cache
def _record(path: Path) -> Record:
    return read_record(path)


def _value_of(row: Row, value: str) -> float:
    first, _, second = value.partition(" - ")
    for key in (first, second):
        if key and key not in row:
            raise InputError(f"no {key} in the row {dict(row)}")
    return float(row[first]) - (float(row[second]) if second else 0.0)
