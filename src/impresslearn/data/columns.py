"""A `datasets.Dataset` of Hugging Face: which of its columns are inputs and which is the label."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from impresslearn.data.datasets import from_dataset
from impresslearn.data.examples import Examples, StreamedExamples, pair
from impresslearn.data.paths import users_code
from impresslearn.errors import InputError

LABELS = ("label", "labels")


def has_columns(data: Any) -> bool:
    """Whether it is a `datasets.Dataset`; the package is asked only where it is imported."""
    kind = getattr(sys.modules.get("datasets"), "Dataset", None)
    return isinstance(kind, type) and isinstance(data, kind) and hasattr(data, "column_names")


def from_columns(data: Any, memory_limit: int, workers: int) -> Examples | StreamedExamples:
    """The examples of a data set with columns.

    The label is the column "label" or "labels", or else the only one that is a `ClassLabel`; it
    stays an integer where it is one. All other columns are inputs: one as a tensor, held or
    streamed as any data set's (images channels first), several as `Inputs` by their names, which
    are held. A format or transform of the data set's own is used, otherwise numpy's. Raises
    InputError for no label column, no other one, text, rows of unequal lengths, and several columns
    beyond `memory_limit` bytes.
    """
    if not len(data):
        raise InputError("the data hold no example")
    plain = data.format["type"] is None
    rows = data.with_format("numpy") if plain else data
    first = _row(rows, 0)
    label = _label_of(data, list(first))
    names = [name for name in first if name != label]
    if not names:
        raise InputError(f"the data have only the label column {label!r}; inputs are missing")
    for name in names:
        if np.asarray(first[name]).dtype.kind in "USO":
            raise InputError(
                f"column {name!r} holds text or rows of unequal lengths; make numbers of it (map, "
                "a tokenizer with padding, TextEncoder) or leave it out (remove_columns)"
            )
    if len(names) == 1:
        feature = (data.features or {}).get(names[0])
        image = plain and type(feature).__name__ == "Image"
        pixels = _dtype_of(feature) == "uint8"
        return from_dataset(_Rows(rows, names[0], label, image, pixels), memory_limit, workers)
    size = len(data) * sum(np.asarray(first[name]).nbytes for name in names)
    if size > memory_limit:
        raise InputError(
            f"the columns {', '.join(names)} take {size:,} bytes, more than the limit of "
            f"{memory_limit:,}; several inputs are held in memory, select fewer rows"
        )
    read = [_row(rows, place) for place in range(len(data))]
    for name in names:
        shapes = {np.shape(row[name]) for row in read}
        if len(shapes) > 1:
            shown = " and ".join(map(str, sorted(shapes)[:2]))
            raise InputError(f"column {name!r} has rows of shapes {shown}; pad them to one")
    values = {name: np.stack([np.asarray(row[name]) for row in read]) for name in names}
    return pair(values, [_plain(row[label]) for row in read])


class _Rows(Dataset):
    """One column and the label as pairs.

    image: whether it holds pictures, which come channels first; pixels: whether it is kept as
    uint8, of which the formats of `datasets` make int64.
    """

    def __init__(self, rows: Any, name: str, label: str, image: bool, pixels: bool) -> None:
        self._rows, self._name, self._label = rows, name, label
        self._image, self._pixels = image, pixels

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        row = self._rows[int(place)]
        value = row[self._name]
        if self._image:
            value = np.array(value)  # a writable copy, which torch wants
            value = np.moveaxis(value, -1, 0) if value.ndim == 3 else value[None]
        elif self._pixels and np.asarray(value).dtype == np.int64:
            value = np.asarray(value).astype(np.uint8)
        return value, _plain(row[self._label])


def _row(rows: Any, place: int) -> Mapping[str, Any]:
    with users_code(lambda: f"row {place} of the data cannot be read"):
        return rows[place]


def _dtype_of(feature: Any) -> str | None:
    """The type of a column's numbers, also where it holds lists of them."""
    while feature is not None and not hasattr(feature, "dtype"):
        feature = getattr(feature, "feature", None)
    return getattr(feature, "dtype", None)


def _plain(label: Any) -> Any:
    return label.item() if hasattr(label, "item") else label


def _label_of(data: Any, names: list[str]) -> str:
    found = [name for name in LABELS if name in names]
    features = data.features or {}
    found = found or [n for n in names if type(features.get(n)).__name__ == "ClassLabel"]
    if len(found) != 1:
        raise InputError(
            f"the data need one column named label or labels, they have {', '.join(names)}; rename "
            "it (rename_column)"
        )
    return found[0]
