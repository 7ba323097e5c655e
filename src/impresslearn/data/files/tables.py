"""Reads tables of comma-separated values: one row an example, one column the label, if any.

Python's csv reader splits the lines; a row becomes float32 as soon as it is read, so that a table
takes no more memory than its numbers, and whatever is wrong is told by row, line and column.
"""

from __future__ import annotations

import csv
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from impresslearn.data.labels import label_array
from impresslearn.data.paths import naming, shorten, some
from impresslearn.errors import InputError

LABEL_NAMES = ("label", "target", "class", "y")
"""Column names that mean the label where none is given; upper or lower case."""
WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")  # at most 18 digits always fit int64


@dataclass(frozen=True)
class Table:
    """The columns of a .csv file, by name or number, and its rows of data, read one by one.

    label: the position of the label column; rows: where each stands, and its cells.
    """

    path: Path
    names: list[str]
    label: int | None
    rows: Iterator[tuple[str, list[str]]]

    def read(self) -> tuple[np.ndarray, list[str]]:
        """(n, columns) finite float32 inputs, and n texts of labels, if there is a column of them.

        Raises InputError for a row of another length and a cell that is no finite number.
        """
        values, labels = array("f"), []
        label, width = self.label, len(self.names) - (self.label is not None)
        if not width:
            raise InputError(f"{self.path} has no column besides that of the labels")
        for place, cells in self.rows:
            if len(cells) != len(self.names):
                raise InputError(f"{place} has {len(cells)} cells, expected {len(self.names)}")
            if label is not None:
                labels.append(cells.pop(label).strip())
            row = _float32(cells)
            if row is None or (label is not None and not labels[-1]):
                if label is not None:
                    cells.insert(label, labels[-1])
                raise InputError(f"{place}, column {self._fault(cells)}")
            values.extend(row)
        if not values:
            raise InputError(f"{self.path} holds a header and no row below it")
        return np.frombuffer(values, dtype=np.float32).reshape(-1, width), labels

    def labels(self) -> list[str]:
        """The texts of the label column alone."""
        assert self.label is not None
        texts = []
        for place, cells in self.rows:
            if len(cells) <= self.label or not cells[self.label].strip():
                raise InputError(f"{place} has no label")
            texts.append(cells[self.label].strip())
        return texts

    def _fault(self, cells: Sequence[str]) -> str:
        """The first column whose cell cannot be used, and why."""
        for position, (name, text) in enumerate(zip(self.names, cells, strict=True)):
            if not text.strip():
                return f"{name} is empty"
            if position == self.label or _float32([text]):
                continue
            value = _number(text)
            wanted = "expected a number" if value is None else "expected a finite number"
            large = value is not None and math.isfinite(value)
            return f"{name} holds {shorten(text)!r}, {'too large for float32' if large else wanted}"
        raise AssertionError("every cell can be used")


def open_table(
    path: Path,
    label_column: str | int | None,
    header: bool | None,
    limit: int,
    *,
    labelled: bool,
    only_labels: bool = False,
) -> Table:
    """A .csv file whose first row is read.

    label_column: a name, or a position from 0 (-1: the last), as a number or in digits; by default
    the one column that bears one of `LABEL_NAMES`, or the single one of a file of `only_labels`.
    header: whether the first row names the columns; by default it does if none of its cells is a
    number, or if one is named like a label and the others are numbered consecutively. labelled:
    whether there must be a label column.
    Raises InputError for a file above the limit or without rows, where it is undecided what the
    columns are, for a label column that is not there, and for columns without a name.
    """
    check_size(path, limit)
    lines = _lines(path)
    number, first = next(lines, (0, []))
    if not first:
        raise InputError(f"{path} is empty")
    cells = [cell.strip() for cell in first]
    if only_labels and len(cells) == 1 and label_column is None:
        label_column = 0
    position = _position(label_column)
    if header is None:
        header = _is_header(cells, label_column, position)
    if header and "" in cells:
        raise InputError(
            f"column {cells.index('') + 1} of the header has no name; name it, "
            "or leave out the column if it only counts the rows"
        )
    label = _find_label(path, cells, header, label_column, position)
    if label is None and labelled:
        raise _no_label(path, cells, header, label_column)
    names = [repr(shorten(cell)) if header else str(i) for i, cell in enumerate(cells, 1)]
    data = lines if header else chain([(number, first)], lines)
    rows = ((f"row {row} (line {line})", cells) for row, (line, cells) in enumerate(data, 1))
    return Table(path, names, label, rows)


def text_labels(path: Path, texts: Sequence[str]) -> np.ndarray:
    """(n,) int64 if all texts are whole numbers ("7", "7.0"), strings otherwise.

    Raises InputError if all are numbers and some not whole: those are measurements, no classes.
    """
    with naming(path):
        known = set(texts)
        if all(WHOLE.fullmatch(text) for text in known):
            value_of = {text: int(text.split(".")[0]) for text in known}
            return np.array([value_of[text] for text in texts], dtype=np.int64)
        values = {text: _number(text) for text in known}
        odd = [text for text, value in values.items() if value is None or not value.is_integer()]
        if odd and None not in values.values():
            raise InputError(f"labels must be integers or names, got {shorten(min(odd))!r}")
        return label_array(texts)


def check_size(path: Path, limit: int) -> None:
    """Raises InputError for a text file above the limit."""
    size = path.stat().st_size
    if size > limit:
        raise InputError(f"{path} has {size:,} bytes, more than the limit of {limit:,}")


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line that is not empty."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream)
        yield from ((reader.line_num, cells) for cells in reader if cells)


def _number(text: str) -> float | None:
    """The number that a text is; NaN and infinity are numbers here, 1_000 is none."""
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def _float32(cells: Sequence[str]) -> array | None:
    """The cells as float32, or None where one of them is no finite number."""
    try:
        row = array("f", map(float, cells))
    except ValueError:
        return None
    return row if all(map(math.isfinite, row)) and "_" not in "".join(cells) else None


def _position(label_column: str | int | None) -> int | None:
    """The position that a label column was given by, if it was."""
    if not isinstance(label_column, (str, type(None))) and type(label_column) is not int:
        raise InputError(f"label_column must be a name or a position, got {label_column!r}")
    digits = str(label_column).removeprefix("-")
    return int(str(label_column)) if digits.isdecimal() and len(digits) < 10 else None


def _is_header(cells: list[str], label_column: str | int | None, position: int | None) -> bool:
    others = cells.copy()
    if label_column in cells and position is None:
        return True
    if position is not None and -len(cells) <= position < len(cells):
        others.pop(position)
    values = [_number(cell) for cell in others]
    numbers = [value for value in values if value is not None]
    texts = any(cell and value is None for cell, value in zip(others, values, strict=True))
    numbered = len(numbers) > 1 and numbers == [numbers[0] + step for step in range(len(numbers))]
    if any(cell.casefold() in LABEL_NAMES for cell in cells) and (numbered or not numbers):
        return True
    if not texts and not (numbered and len(numbers) > 2):
        return False
    if not numbers:
        return True
    raise InputError(
        f"cannot tell whether the first line names the columns, it has {some(cells)}; "
        "say so with header"
    )


def _find_label(
    path: Path, cells: list[str], header: bool, wanted: str | int | None, position: int | None
) -> int | None:
    """The position of the label column."""
    names = cells if header else []
    if wanted is None:
        found = [i for i, name in enumerate(names) if name.casefold() in LABEL_NAMES]
    else:
        found = [i for i, name in enumerate(names) if name == wanted]
    if len(found) > 1:
        raise InputError(
            f"several columns could hold the label, {some([names[i] for i in found])}; "
            "say which with label_column, by its position from 0 if the names are the same"
        )
    if found or position is None:
        return found[0] if found else None
    if not -len(cells) <= position < len(cells):
        raise InputError(f"{path} has {len(cells)} columns, there is no column {position}")
    return position % len(cells)


def _no_label(path: Path, cells: list[str], header: bool, wanted: str | int | None) -> InputError:
    if not header:
        return InputError(
            f"{path} has no header; say with label_column which column holds the labels, "
            "0 for the first, -1 for the last"
        )
    column = ", ".join(LABEL_NAMES) if wanted is None else repr(wanted)
    return InputError(
        f"{path} has no column {column}; it has {some(cells)}; say with label_column "
        "which holds the labels"
    )
