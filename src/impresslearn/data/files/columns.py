"""What the first line of a table says: whether it names the columns, and which holds the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from impresslearn.data.files.paths import shorten, some
from impresslearn.errors import InputError

LABEL_NAMES = ("label", "target", "class", "y")
"""Column names that mean the label where none is given; upper or lower case."""


@dataclass(frozen=True)
class Layout:
    """columns: what to call each in an error; header: whether the first row is no data."""

    columns: tuple[str, ...]
    header: bool
    label: int | None


def lay_out(
    path: Path,
    first: Sequence[str],
    label_column: str | int | None,
    header: bool | None,
    labelled: bool,
) -> Layout:
    """The columns of a table whose first row is given.

    label_column: a name, or a position from 0 (-1: the last), as a number or in digits; by default
    the one column that bears one of `LABEL_NAMES`. header: whether the first row names the
    columns; by default it does if none of its cells is a number, or if one is named like a label
    and the others are numbered consecutively. labelled: whether there must be a label column.
    Raises InputError where this is undecided, for a column that is not there, and for columns
    without a name.
    """
    cells = [cell.strip() for cell in first]
    position = _position(label_column)
    if header is None:
        header = _is_header(path, cells, label_column, position)
    if header and "" in cells:
        raise InputError(
            f"{path}: column {cells.index('') + 1} of the header has no name; name it, "
            "or leave out the column if it only counts the rows"
        )
    label = _label(path, cells if header else [], len(cells), label_column, position, labelled)
    names = (
        [repr(shorten(cell)) for cell in cells] if header else map(str, range(1, len(cells) + 1))
    )
    return Layout(tuple(names), header, label)


def number_or_none(text: str) -> float | None:
    """The number that a text is; NaN and infinity are numbers here, 1_000 is none."""
    try:
        return float(text) if "_" not in text else None
    except ValueError:
        return None


def _position(label_column: str | int | None) -> int | None:
    """The position that a label column was given by, if it was."""
    if label_column is None or isinstance(label_column, str):
        digits = (label_column or "").removeprefix("-")
        return int(str(label_column)) if digits.isdecimal() and len(digits) < 10 else None
    if type(label_column) is int:
        return label_column
    raise InputError(f"label_column must be a name or a position, got {label_column!r}")


def _is_header(
    path: Path, cells: list[str], label_column: str | int | None, position: int | None
) -> bool:
    if label_column in cells and position is None:
        return True
    others = cells.copy()
    if position is not None and -len(cells) <= position < len(cells):
        others.pop(position)
    values = [number_or_none(cell) for cell in others]
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
        f"{path}: cannot tell whether the first line names the columns, it has {some(cells)}; "
        "say so with header"
    )


def _label(
    path: Path,
    names: list[str],
    count: int,
    label_column: str | int | None,
    position: int | None,
    labelled: bool,
) -> int | None:
    """The position of the label column; names: those of the header, or none."""
    if label_column is None:
        found = [i for i, name in enumerate(names) if name.casefold() in LABEL_NAMES]
    else:
        found = [i for i, name in enumerate(names) if name == label_column]
        if not found and position is not None:
            if not -count <= position < count:
                raise InputError(f"{path} has {count} columns, there is no column {position}")
            return position % count
    if len(found) > 1:
        both = some([names[i] for i in found])
        raise InputError(
            f"{path}: several columns could hold the label, {both}; "
            "say which with label_column, by its position from 0 if the names are the same"
        )
    if found or not labelled:
        return found[0] if found else None
    if not names:
        raise InputError(
            f"{path} has no header; say with label_column which column holds the labels, "
            "0 for the first, -1 for the last"
        )
    wanted = repr(label_column) if label_column is not None else ", ".join(LABEL_NAMES)
    raise InputError(
        f"{path} has no column {wanted}; it has {some(names)}; say with label_column "
        "which holds the labels"
    )
