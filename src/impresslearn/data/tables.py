"""Reads tables of comma-separated values: one row an example, one column the label, if any.

Semicolons or tabs separate them in a file whose first line has no comma.

A row becomes float32 as soon as it is read, so that a table takes no more memory than its numbers,
and whatever is wrong is told by row, line and column.
"""

import csv
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from impresslearn.data.labels import label_array
from impresslearn.data.paths import shorten, some
from impresslearn.errors import InputError

LABEL_NAMES = ("label", "target", "class", "y")
"""Column names that mean the label where none is given; upper or lower case."""
LABELLED = "; if it holds the labels, say so with label_column"
WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")  # at most 18 digits always fit int64


def read_table(
    path: Path,
    label_column: str | int | None,
    header: bool | None,
    *,
    labelled: bool,
    order: Sequence[str] | None = None,
) -> tuple[np.ndarray, list[str]]:
    """(n, columns) finite float32 inputs, and n texts of labels, if there is a column of them.

    label_column: a name, or a position from 0 (-1: the last), as a number or in digits; by default
    the one column that bears one of `LABEL_NAMES`. header: whether the first row names the columns;
    by default it does if none of its cells is a number, or if one is named like a label and the
    others are numbered consecutively. labelled: whether there must be a label column.
    order: names of columns; a table that names its own comes back in this order.
    Raises InputError for an empty file, where it is undecided what the columns are, for a label
    column that is not there, columns without a name or other than in `order`, a row of another
    length and a cell that is no finite number.
    """
    columns, label, rows, names = _opened(path, label_column, header, labelled)
    others = [column for i, column in enumerate(columns) if i != label]
    if not others:
        raise InputError("there is no column besides that of the labels")
    if not names or order is None or tuple(names) == tuple(order):
        order = names
    else:
        _check_names(names, order, labelled)
    numbers = array("f")
    labels: list[str] = []
    for place, cells in rows:
        if len(cells) != len(columns):
            raise InputError(f"{place} has {len(cells)} cells, expected {len(columns)}")
        if label is not None:
            labels.append(_label_in(place, cells, label, columns))
            del cells[label]
        row = _float32(cells)
        if row is None:
            faults = zip(others, map(_fault, cells), strict=True)
            column, fault = next(each for each in faults if each[1])
            raise InputError(f"{place}, column {column} {fault}")
        numbers.extend(row)
    if not numbers:
        raise InputError("the table holds a header and no row below it")
    found = np.frombuffer(numbers, dtype=np.float32).reshape(-1, len(others))
    if order is not names:
        found = found[:, [names.index(name) for name in order]]
    return found, labels


def _check_names(names: Sequence[str], order: Sequence[str], labelled: bool) -> None:
    """Raises InputError unless these are the columns of `order`, once each."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several columns are called {shorten(twice[0])!r}; name each by itself")
    if odd := sorted(set(order) ^ set(names)):
        there = "is missing" if odd[0] in order else "is new"
        raise InputError(
            f"column {shorten(odd[0])!r} {there}: those of the first table that was learned from "
            f"are {some(order)}{'' if labelled or odd[0] in order else LABELLED}"
        )


def column_names(
    path: Path, label_column: str | int | None, header: bool | None
) -> tuple[str, ...] | None:
    """The names of a table's columns but the label's; None where they have none of their own."""
    names = _opened(path, label_column, header, labelled=False)[3]
    return tuple(names) if names and len(set(names)) == len(names) else None


def read_labels(path: Path, label_column: str | int | None, header: bool | None) -> list[str]:
    """The texts of the label column alone, or of the only column; settings as of `read_table`."""
    columns, label, rows, _ = _opened(path, label_column, header, True, only_labels=True)
    return [_label_in(place, cells, label or 0, columns) for place, cells in rows]


def _opened(
    path: Path,
    label_column: str | int | None,
    header: bool | None,
    labelled: bool,
    only_labels: bool = False,
) -> tuple[list[str], int | None, Iterator[tuple[str, list[str]]], list[str]]:
    """Columns by name or number, the label's position, rows (where each stands, its cells), names.

    The names are those of the header but the label's; empty without one.
    """
    if not isinstance(label_column, (str, type(None))) and type(label_column) is not int:
        raise InputError(f"label_column must be a name or a position, got {label_column!r}")
    lines = _lines(path, "," if only_labels else ",;\t")
    number, first = next(lines, (0, []))
    if not first:
        raise InputError(f"{path} is empty")
    cells = [cell.strip() for cell in first]
    if only_labels and len(cells) == 1 and label_column is None:
        label_column = 0
    digits = str(label_column).removeprefix("-")
    position = int(str(label_column)) if digits.isdecimal() and len(digits) < 10 else None
    if header is None:
        header = _is_header(cells, label_column, position)
    if header and "" in cells:
        raise InputError(
            f"column {cells.index('') + 1} of the header has no name; name it, "
            "or leave out the column if it only counts the rows"
        )
    label = _find_label(cells if header else [], label_column, labelled and position is None)
    if label is None and position is not None:
        if not -len(cells) <= position < len(cells):
            raise InputError(f"{path} has {len(cells)} columns, there is no column {position}")
        label = position % len(cells)
    columns = [repr(shorten(cell)) if header else str(i) for i, cell in enumerate(cells, 1)]
    data = lines if header else chain([(number, first)], lines)
    rows = ((f"row {row} (line {line})", cells) for row, (line, cells) in enumerate(data, 1))
    named = [cell for i, cell in enumerate(cells) if i != label] if header else []
    return columns, label, rows, named


def _label_in(place: str, cells: list[str], label: int, columns: list[str]) -> str:
    text = cells[label].strip() if label < len(cells) else ""
    if not text:
        raise InputError(f"{place}, column {columns[label]} is empty, expected a label")
    return text


def text_labels(texts: Sequence[str]) -> np.ndarray:
    """(n,) int64 if all texts are whole numbers ("7", "7.0"), strings otherwise.

    Raises InputError if all are numbers and some not whole: those are measurements, no classes.
    """
    known = set(texts)
    if all(WHOLE.fullmatch(text) for text in known):
        value_of = {text: int(text.split(".")[0]) for text in known}
        return np.array([value_of[text] for text in texts], dtype=np.int64)
    values = {text: _number(text) for text in known}
    odd = [text for text, value in values.items() if value is None or not value.is_integer()]
    if odd and None not in values.values():
        raise InputError(f"labels must be integers or names, got {shorten(min(odd))!r}")
    return label_array(texts)


def _lines(path: Path, delimiters: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the cells of each line that is not empty.

    They are separated by the first of these delimiters that the first line has.
    """
    with path.open(encoding="utf-8-sig", newline="") as stream:
        first = re.sub('"[^"]*"', "", next(filter(str.strip, stream), ""))
        stream.seek(0)
        delimiter = next((each for each in delimiters if each in first), ",")
        reader = csv.reader(stream, delimiter=delimiter)
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
    return row if math.isfinite(sum(row)) and "_" not in "".join(cells) else None


def _fault(text: str) -> str:
    """Why a cell cannot be used; empty where it can."""
    value, fault = _number(text), f"holds {shorten(text)!r}, "
    if not text.strip():
        return "is empty"
    if value is None:
        return fault + "expected a number"
    if not math.isfinite(value):
        return fault + "expected a finite number"
    return "" if _float32([text]) else fault + "too large for float32"


def _is_header(cells: list[str], label_column: str | int | None, position: int | None) -> bool:
    if label_column in cells and position is None:
        return True
    others = cells.copy()
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
        "say so with header (--header or --no-header)"
    )


def _find_label(names: list[str], wanted: str | int | None, needed: bool) -> int | None:
    """The position of the label column among those that a header names."""
    if wanted is None:
        found = [i for i, name in enumerate(names) if name.casefold() in LABEL_NAMES]
    else:
        found = [i for i, name in enumerate(names) if name == wanted]
    if len(found) > 1:
        raise InputError(
            f"several columns could hold the label, {some([names[i] for i in found])}; "
            "say which with label_column, by its position from 0 if the names are the same"
        )
    if not found and needed:
        column = ", ".join(LABEL_NAMES) if wanted is None else repr(wanted)
        held = some(names)
        if len(names) > 8:
            held = f"{some(names[:6])}, … and {names[-1]!r}"
        missing = f"no column {column}; it has {held}" if names else "no header"
        raise InputError(
            f"the table has {missing}; say with label_column which column holds the labels, "
            "0 for the first, -1 for the last"
        )
    return found[0] if found else None
