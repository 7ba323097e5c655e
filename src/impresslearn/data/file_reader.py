"""Files as examples: arrays, tables and images become labelled data, or inputs with names.

The suffix decides how a file is read. Its values follow the rules of `impresslearn.data`: uint8 is
scaled to [0, 1], other numbers are taken as they are. Nothing is unpickled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import composed
from impresslearn.data.conversion import LABEL_NAMES, as_examples
from impresslearn.data.examples import Examples, StreamedExamples, as_inputs, one_tensor, raw
from impresslearn.data.images import (
    SUFFIXES,
    class_images,
    existing,
    flat_images,
    image_files,
    naming,
)
from impresslearn.data.labels import label_array, shorten, some
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TABLES = (".csv", ".parquet")
# Names of inputs and labels in .npz, in the order in which they are looked for.
PAIRS = (
    ("inputs", "labels"),
    ("images", "labels"),
    ("data", "targets"),
    ("X", "y"),
    ("x", "y"),
    ("x_train", "y_train"),
)
# As Python writes an integer: "01" and "+1" are names. At most 18 digits always fit int64.
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class NamedInputs:
    """Inputs without labels.

    - `inputs`: (n, ...) floating point.
    - `names`: n names of files, or row numbers from 1.
    - `pixels`: whether the inputs were uint8 or images, which are scaled to [0, 1].
    """

    inputs: Tensor
    names: tuple[str, ...]
    pixels: bool = False


@dataclass(frozen=True)
class FileReader:
    """Reads files of data.

    - `label_column`: the name of a table's label column. None (the default): the column label,
      target, class or y.
    - `layout`: the shape of inputs, the size of images and the columns of tables. Images are read
      as grey if the shape has one number per pixel, else as RGB.

    Both methods raise MissingDataError if a path does not exist, MissingDependencyError for images
    without Pillow and tables without pandas, and InputError for a file that cannot be used.
    """

    label_column: str | None = None
    layout: Preprocessing = field(default_factory=Preprocessing)

    def examples(self, path: str | Path) -> Examples | StreamedExamples:
        """Labelled examples from a file or folder.

        - `path`: an image folder PATH/CLASS/IMAGE; .npz with two arrays named as in `PAIRS`; .csv
          or .parquet with a label column.
        """
        path = existing(path)
        with naming(path):
            if path.is_dir():
                files = [file for images in class_images(path).values() for file in images]
                return as_examples(image_files(files, self.layout))
            inputs, labels = self._arrays(path, labelled=True)
            examples = as_examples((inputs, labels))
            assert isinstance(examples, Examples)
            return replace(examples, inputs=self.layout.arranged(one_tensor(examples.inputs)))

    def inputs(self, path: str | Path) -> NamedInputs:
        """Inputs without labels, and a name for each.

        - `path`: an image; a folder of images; .npy; .npz with an array named as in `PAIRS`, or
          with a single one; .csv or .parquet, whose label column is left out.
        """
        path = existing(path)
        with naming(path):
            if path.is_dir() or path.suffix.lower() in SUFFIXES:
                return self._images(flat_images(path) if path.is_dir() else [path])
            array, _ = self._arrays(path, labelled=False)
            inputs = self.layout.arranged(as_inputs(array))
            if len(inputs) == 0:
                raise InputError(f"{path} holds no input")
            names = tuple(map(str, range(1, len(inputs) + 1)))
            return NamedInputs(inputs, names, raw(array).dtype == torch.uint8)

    def column_names(self, path: Path) -> tuple[str, ...] | None:
        """The names of a table's input columns; None for other files."""
        if path.suffix.lower() not in TABLES or path.is_dir():
            return None
        with naming(path):
            inputs, _ = self._table(path, labelled=False)
        return tuple(inputs.columns)

    def _is_label(self, name: str) -> bool:
        if self.label_column is None:
            return name.casefold() in LABEL_NAMES
        return name == composed(self.label_column)

    def _images(self, files: Sequence[Path]) -> NamedInputs:
        examples = as_examples(image_files(files, self.layout))
        if isinstance(examples, StreamedExamples):
            raise InputError(f"the {len(files)} images do not fit in memory; give some at a time")
        names = tuple(file.name for file in files)
        return NamedInputs(one_tensor(examples.inputs), names, True)

    def _arrays(self, path: Path, labelled: bool) -> tuple[Any, Any]:
        """Inputs and, if `labelled`, the labels that the same file holds."""
        suffix = path.suffix.lower()
        if suffix in TABLES:
            inputs, labels = self._table(path, labelled)
            return _numbers(inputs), None if labels is None else _labels_of(labels)
        if suffix == ".npy" and labelled:
            raise InputError(f"{path} holds inputs only; write inputs and labels with np.savez")
        if suffix == ".npy":
            # Mapped, because NumPy would first allocate all that a damaged header declares.
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False)), None
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return _chosen(archive, path, labelled)
        images = "an image folder PATH/CLASS/IMAGE" if labelled else "an image, a folder of images"
        raise InputError(f"cannot read {path}; expected {images}, .npy, .npz, .csv or .parquet")

    def _table(self, path: Path, labelled: bool) -> tuple[DataFrame, Series | None]:
        """The input columns of a table, in the order of the layout, and its label column."""
        frame = _read_table(path, self._is_label)
        if not len(frame):
            raise InputError("the table holds a header and no row below it")
        names = list(frame.columns)
        labels = list(filter(self._is_label, names))
        if len(labels) > 1 or (labelled and not labels):
            expected = self.label_column or "label, target, class or y"
            raise InputError(
                f"expected one column {expected}, the first line has {some(names)}; name the "
                "column of the labels with --label-column"
            )
        inputs = frame.drop(columns=labels)
        if self.layout.columns is None and not labels and all(map(_is_number, names)):
            raise InputError(f"the first line must name the columns, it has {some(names)}")
        if not len(inputs.columns):
            raise InputError("there is no column besides the label")
        return self.layout.ordered(inputs), frame[labels[0]] if labels else None


def _chosen(arrays: Any, path: Path, labelled: bool) -> tuple[Any, Any]:
    """Inputs and labels by the first of `PAIRS` that is there; without labels, the only array."""
    names = list(arrays.keys())
    for inputs, labels in PAIRS:
        if inputs in names and not labelled:
            return arrays[inputs], None
        if inputs in names and labels in names:
            return arrays[inputs], arrays[labels]
    if len(names) == 1 and not labelled:
        return arrays[names[0]], None
    expected = ", ".join("/".join(pair) for pair in PAIRS)
    raise InputError(f"{path} holds {some(names) or 'no array'}; expected one of {expected}")


def _read_table(path: Path, is_label: Callable[[str], bool]) -> DataFrame:
    """A table whose first line names the columns."""
    try:
        import pandas
    except ImportError:
        raise MissingDependencyError(
            "reading tables needs pandas: pip install 'impresslearn[pandas]'"
        ) from None
    if path.suffix.lower() == ".parquet":
        return pandas.read_parquet(path).rename(columns=lambda name: composed(str(name)))
    with path.open(encoding="utf-8-sig") as stream:
        line = next(filter(str.strip, stream), "")
    layout: dict[str, Any] = {"sep": max(",;\t", key=line.count), "encoding": "utf-8-sig"}
    header = pandas.read_csv(path, nrows=0, **layout).columns
    # Labels stay texts: as numbers 1e5 and 100000 would be one class. "nan" may be a class as well.
    texts = {name: str for name in header if is_label(composed(name.strip()))}
    frame = pandas.read_csv(path, dtype=texts, keep_default_na=False, low_memory=False, **layout)
    frame = frame.rename(columns=lambda name: composed(name.strip()))
    if not isinstance(frame.index, pandas.RangeIndex):  # pandas takes spare cells for row names
        raise InputError(f"rows have more cells than the {len(frame.columns)} of the first line")
    if any(name.startswith("Unnamed: ") for name in frame.columns):
        raise InputError("a column has no name in the header; leave it out if it counts the rows")
    return frame


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _labels_of(column: Series) -> np.ndarray:
    """(n,) int64 if all labels are integers as Python writes them, else strings."""
    texts = []
    for row, (value, missing) in enumerate(zip(column.tolist(), column.isna(), strict=True), 1):
        # A column of numbers with a missing one holds floats in a .parquet file.
        is_whole = isinstance(value, (bool, float)) and float(value).is_integer()
        text = str(int(value) if is_whole else value).strip()
        if missing or not text:
            raise InputError(f"row {row} has no label")
        if not isinstance(value, (str, int, float)):
            label_array([value])  # raises for what has no one text, such as bytes
        texts.append(text)
    if all(map(WHOLE.fullmatch, texts)):
        return np.array(list(map(int, texts)), dtype=np.int64)
    if all(map(_is_number, texts)) and not all(float(text).is_integer() for text in texts):
        raise InputError(f"labels must be integers or names, got {some(texts)}")
    return label_array(texts)


def _numbers(inputs: DataFrame) -> np.ndarray:
    """(n, columns) float32."""
    import pandas

    with np.errstate(over="ignore"):
        table = inputs.apply(pandas.to_numeric, errors="coerce").to_numpy(np.float32)
    finite = np.isfinite(table)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        name, cell = inputs.columns[column], inputs.iloc[row, column]
        raise InputError(
            f"row {row + 1}, column {shorten(name)!r} holds {shorten(str(cell))!r}, expected a "
            "finite number; fill missing values, and encode words with pandas.get_dummies"
        )
    return table
