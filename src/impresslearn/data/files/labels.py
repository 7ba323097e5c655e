"""Labels as they are written in text: one a line, or one a cell of a column.

Integers where all of them are whole numbers, strings otherwise, as everywhere in the library.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from impresslearn.data import label_array
from impresslearn.data.files.arrays import read_npy
from impresslearn.data.files.columns import number_or_none
from impresslearn.data.files.paths import existing_file, reading, shorten
from impresslearn.data.files.tables import check_size, read_column
from impresslearn.errors import InputError

FORMS = "a .npy, .txt or .csv file with one label an example"
WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")  # at most 18 digits always fit int64


def read_labels(
    path: str | Path, label_column: str | int | None, header: bool | None, limit: int
) -> np.ndarray:
    """(n,) labels of a file; `label_column` and `header` are for .csv files with several columns.

    Raises MissingDataError for no file, InputError for one of another form, for empty lines
    between the labels and for labels that are neither integers nor strings.
    """
    path = existing_file(path, FORMS)
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".txt", ".csv"):
        raise InputError(f"cannot read labels from {path}; expected {FORMS}")
    if suffix != ".csv" and label_column is not None:
        raise InputError(f"label_column means nothing for {path}, got {label_column!r}")
    if suffix == ".npy":
        labels = array_labels(path, read_npy(path, limit))
    elif suffix == ".csv":
        labels = text_labels(path, read_column(path, label_column, header, limit))
    else:
        labels = text_labels(path, _read_lines(path, limit))
    if not len(labels):
        raise InputError(f"{path} holds no label")
    return labels


def array_labels(path: Path, array: np.ndarray) -> np.ndarray:
    """Labels of an array that was read from a file."""
    with reading(path):
        return label_array(array)


def text_labels(path: Path, texts: Sequence[str]) -> np.ndarray:
    """(n,) int64 if all texts are whole numbers ("7", "7.0"), strings otherwise.

    Raises InputError if all are numbers and some not whole: those are measurements, no classes.
    """
    known = set(texts)
    if all(WHOLE.fullmatch(text) for text in known):
        value_of = {text: int(text.split(".")[0]) for text in known}
        return np.array([value_of[text] for text in texts], dtype=np.int64)
    values = {text: number_or_none(text) for text in known}
    odd = [text for text, value in values.items() if value is None or not value.is_integer()]
    if odd and None not in values.values():
        raise InputError(f"{path}: labels must be integers or names, got {shorten(min(odd))!r}")
    with reading(path):
        return label_array(texts)


def _read_lines(path: Path, limit: int) -> list[str]:
    with reading(path), path.open(encoding="utf-8-sig") as stream:
        check_size(path, limit)
        lines = [line.strip() for line in stream]
        while lines and not lines[-1]:
            lines.pop()
        if "" in lines:
            raise InputError(f"{path}: line {lines.index('') + 1} is empty; expected a label")
        return lines
