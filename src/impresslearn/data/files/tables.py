"""Tables of comma-separated values: one row an example, one column a number or the label.

numpy's compiled reader takes the whole table in one pass. Only where it fails, or finds a number
that is not finite, is the file read again, cell by cell, to say which cell is at fault.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from impresslearn.data.files.columns import Layout, lay_out, number_or_none
from impresslearn.data.files.paths import reading, shorten
from impresslearn.errors import InputError

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Table:
    """inputs: (n, columns) float32, finite; labels: n texts, or None where no column holds them."""

    inputs: np.ndarray
    labels: list[str] | None


def read_table(
    path: Path, label_column: str | int | None, header: bool | None, labelled: bool, limit: int
) -> Table:
    """A .csv file. The label column is set apart, and must be there if `labelled`.

    Raises InputError for a file above the limit, without rows, or not UTF-8, for columns that
    `lay_out` refuses, and for a row of another length or a cell that is no finite number, with
    its row (counted from 1, without the header), its line and its column.
    """
    with reading(path):
        check_size(path, limit)
        layout = lay_out(path, _first_row(path), label_column, header, labelled)
        if len(layout.columns) == 1 and layout.label == 0:
            raise InputError(f"{path} has no column besides that of the labels")
        try:
            values, labels = _load(path, layout)
        except (InputError, UnicodeDecodeError):
            raise
        except ValueError as error:
            reason = _find_fault(path, layout) or str(error).split("\n", 1)[0]
            raise InputError(f"{path}: {reason}") from None
        if not np.isfinite(values.sum()) and not np.isfinite(values).all():
            raise InputError(f"{path}: {_find_fault(path, layout) or 'not all numbers are finite'}")
        if layout.label is None:
            return Table(values, None)
        return Table(np.delete(values, layout.label, axis=1), labels)


def read_column(
    path: Path, label_column: str | int | None, header: bool | None, limit: int
) -> list[str]:
    """The label column of a .csv file, which may be its only one; then it needs no header."""
    with reading(path):
        check_size(path, limit)
        first = _first_row(path)
        if len(first) == 1 and label_column is None:
            label_column = 0
        layout = lay_out(path, first, label_column, header, True)
        assert layout.label is not None
        texts = []
        for place, cells in _rows(path, layout):
            if len(cells) <= layout.label or not cells[layout.label].strip():
                raise InputError(f"{path}: {place} has no label")
            texts.append(cells[layout.label].strip())
        return texts


def check_size(path: Path, limit: int) -> None:
    """Raises InputError for a text file above the limit."""
    size = path.stat().st_size
    if size > limit:
        raise InputError(f"{path} has {size:,} bytes, more than the limit of {limit:,}")


def _load(path: Path, layout: Layout) -> tuple[np.ndarray, list[str]]:
    """All columns as float32, zeros for the label's, and the labels."""
    labels: list[str] = []

    def keep(text: str) -> float:
        if not text.strip():
            raise ValueError("empty label")
        labels.append(text.strip())
        return 0.0

    with path.open(encoding="utf-8-sig", newline="") as stream:
        if layout.header:
            next(filter(None, csv.reader(stream)))
        first = next((line for line in stream if line.strip("\r\n")), None)
        if first is None:
            raise InputError(f"{path} holds a header and no row below it")
        values = np.loadtxt(
            chain([first], stream),
            dtype=np.float32,
            delimiter=",",
            quotechar='"',
            comments=None,
            ndmin=2,
            converters=None if layout.label is None else {layout.label: keep},
        )
    if values.shape[1] != len(layout.columns):
        raise ValueError(f"rows have {values.shape[1]} cells")
    return values, labels


def _first_row(path: Path) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        for cells in csv.reader(stream):
            if cells:
                return cells
    raise InputError(f"{path} is empty")


def _rows(path: Path, layout: Layout) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row, and where it stands; empty lines are left out."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream)
        number = -1 if layout.header else 0
        for cells in reader:
            number += bool(cells)
            if cells and number:
                yield f"row {number} (line {reader.line_num})", cells


def _find_fault(path: Path, layout: Layout) -> str | None:
    """What is wrong with the first cell that is no finite number, and where it is."""
    for place, cells in _rows(path, layout):
        if len(cells) != len(layout.columns):
            return f"{place} has {len(cells)} cells, expected {len(layout.columns)}"
        for position, text in enumerate(cells):
            fault = _fault(text, position == layout.label)
            if fault:
                return f"{place}, column {layout.columns[position]} {fault}"
    return None


def _fault(text: str, is_label: bool) -> str | None:
    if not text.strip():
        return "is empty"
    if is_label:
        return None
    value = number_or_none(text)
    if value is None:
        return f"holds {shorten(text)!r}, expected a number"
    if not math.isfinite(value):
        return f"holds {shorten(text)!r}, expected a finite number"
    return f"holds {shorten(text)!r}, too large for float32" if abs(value) > LARGEST else None
