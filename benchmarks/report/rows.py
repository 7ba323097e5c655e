"""Rows of a record as its file has them: those that differ in what was measured are one entry.

    {"method": "SVC", "seed": 0, "task": ["a", "b"], "accuracy": [0.91, 0.87]}

stands for two rows. Nothing is lost, and a record of 3,600 rows takes a fifth of its bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from impresslearn.errors import InputError

MEASURED = ("task", "bytes_per_task", "prediction_bytes")
"""What may differ within an entry, beside fractions."""

Row = Mapping[str, Any]


def folded(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Entries for the rows, in their order: neighbours with the same columns and settings join."""
    for _, group in groupby(rows, _settings):
        same = list(group)
        varying = [key for key in same[0] if any(row[key] != same[0][key] for row in same)]
        if not varying:
            yield from map(dict, same)
            continue
        lists = {key: [row[key] for row in same] for key in varying}
        yield {key: lists.get(key, value) for key, value in same[0].items()}


def unfolded(entries: Sequence[Any]) -> Iterator[Any]:
    """The rows of entries; what is no entry stays as it is. Raises InputError for lists of several
    lengths.
    """
    for position, entry in enumerate(entries):
        lists = {
            key: value
            for key, value in (entry.items() if isinstance(entry, Mapping) else ())
            if isinstance(value, list)
        }
        if not lists:
            yield entry
            continue
        lengths = {len(value) for value in lists.values()}
        if len(lengths) > 1:
            raise InputError(f"rows[{position}] has lists of {sorted(lengths)} values, want one")
        for values in zip(*lists.values(), strict=True):
            yield {**entry, **dict(zip(lists, values, strict=True))}


def _settings(row: Row) -> list[tuple[str, Any]]:
    """What rows of one entry have in common, with the names of what they need not."""
    return [
        (key, None if key in MEASURED or isinstance(value, float) else (type(value), value))
        for key, value in row.items()
    ]
