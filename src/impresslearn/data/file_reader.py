"""Reads files of arrays, tables and images as labelled examples, or as inputs with names.

The suffix decides how a file is read. Nothing is unpickled.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from impresslearn.checks import composed, imported
from impresslearn.data.conversion import as_examples, label_and_others
from impresslearn.data.examples import Examples, Inputs, StreamedExamples, is_number, raw
from impresslearn.data.images import SUFFIXES, ImageFiles, flat_images, image_folder, reading
from impresslearn.data.labels import label_array, some
from impresslearn.data.preprocessing import Preprocessing, names_of
from impresslearn.errors import InputError

# Names of inputs and labels in .npz files; the first pair that a file has is used.
PAIRS = (
    *(("inputs", "labels"), ("images", "labels"), ("data", "targets")),
    *(("X", "y"), ("x", "y"), ("x_train", "y_train")),
)
# An integer as Python writes it, or as pandas does if a value of the column is missing: 1.0. Other
# texts such as "01" and "+1" are names. 18 digits always fit int64.
WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0+)?")


@dataclass
class FileReader:
    """Reads files as raw data, without preprocessing.

    - `label_column`: the name of a table's label column. None (the default) for the column label,
      target, class or y.
    - `layout`: gives the size of images, the columns of tables, and the shape of inputs. Images are
      grey if the shape has one number per pixel, else RGB.
    """

    label_column: str | None = None
    layout: Preprocessing = field(default_factory=Preprocessing)

    def examples(self, path: str | Path) -> Examples | StreamedExamples:
        """Labelled examples from a file or folder.

        - `path`: an image folder PATH/CLASS/IMAGE; .npz with arrays as `_chosen` takes them; .csv
          or .parquet with a label column.
        """
        with reading(path) as path:
            if path.is_dir():
                return as_examples(image_folder(path, self.layout))
            return as_examples(self._arrays(path, labelled=True), layout=self.layout)

    def inputs(self, path: str | Path) -> Examples:
        """Inputs without labels. In place of a label each has its file name, or its row from 1.

        - `path`: an image; a folder of images; .npy; .npz with arrays as `_chosen` takes them; .csv
          or .parquet, whose label column is left out.
        """
        with reading(path) as path:
            if path.is_dir() or path.suffix.lower() in SUFFIXES:
                files = flat_images(path) if path.is_dir() else [path]
                examples = as_examples(ImageFiles(files, self.layout))
                names = [file.name for file in files]
            else:
                array, _ = self._arrays(path, labelled=False)
                names = [str(row) for row in range(1, len(array) + 1)]
                examples = as_examples((array, names), layout=self.layout)
        if isinstance(examples, StreamedExamples):
            raise InputError(f"the {len(files)} images do not fit in memory; give some at a time")
        return replace(examples, labels=np.array(names))

    def _arrays(self, path: Path, labelled: bool) -> tuple[Any, Any]:
        """The inputs in a file and, if `labelled`, its labels."""
        suffix = path.suffix.lower()
        if suffix in (".csv", ".parquet"):
            return self._table(path, labelled)
        if suffix == ".npy" and not labelled:
            # Without mapping, NumPy would allocate as much as a damaged header declares.
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False)), None
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return _chosen(archive, path, labelled)
        others = "an image, a folder of images, .npy"
        others = "an image folder PATH/CLASS/IMAGE" if labelled else others
        raise InputError(f"cannot read {path}; expected {others}, .npz, .csv or .parquet")

    def _table(self, path: Path, labelled: bool) -> tuple[Any, Any]:
        """The input columns of a table, in the order of `layout.columns`, and its label column."""
        pandas = imported("pandas", "reading tables needs pandas", "pandas")
        if path.suffix.lower() == ".parquet":
            frame = pandas.read_parquet(path).rename(columns=lambda name: composed(str(name)))
            label, others = label_and_others(frame.columns, self.label_column, labelled)
        else:
            with path.open(encoding="utf-8-sig") as stream:
                line = next(filter(str.strip, stream), "")
            layout: dict[str, Any] = {"sep": max(",;\t", key=line.count), "encoding": "utf-8-sig"}
            header = pandas.read_csv(path, nrows=0, **layout).columns
            names = [composed(name.strip()) for name in header]
            label, others = label_and_others(names, self.label_column, labelled)
            # Read labels as text: as numbers, 1e5 and 100000 would be one class. "nan" is a name.
            texts: Any = {label: str} if self.layout.tokenizer is None else str
            layout |= {"dtype": texts, "keep_default_na": False, "low_memory": False}
            frame = pandas.read_csv(path, names=names, header=0, **layout)
            if not isinstance(frame.index, pandas.RangeIndex):  # made from spare cells
                raise InputError(f"rows have more cells than the {len(names)} of the first line")
            if any(name.startswith("Unnamed: ") for name in names):
                line = "a column has no name in the header; leave it out if it counts rows"
                raise InputError(line)
        if self.layout.columns is None and label is None and all(map(is_number, others)):
            raise InputError(f"the first line must name the columns, it has {some(others)}")
        inputs = self.layout.ordered(frame[others])
        if self.layout.tokenizer is None:
            values = raw(inputs)  # integers stay: a learner of pixels scales them
            values = values.float() if values.is_floating_point() else values.long()
            inputs = pandas.DataFrame(values.numpy(), columns=names_of(inputs))
        return inputs, None if label is None else _labels_of(frame[label])


def _chosen(arrays: Any, path: Path, labelled: bool) -> tuple[Any, Any]:
    """Inputs and labels by the first of `PAIRS` in the file; else labels, and all other arrays.

    If these are several arrays, they are a network's inputs by name.
    """
    names = list(arrays.keys())
    for inputs, labels in PAIRS:
        if inputs in names and (labels in names or not labelled):
            return arrays[inputs], arrays[labels] if labelled else None
    label = next((labels for _, labels in PAIRS if labels in names), None)
    named = {name: arrays[name] for name in names if name != label}
    if named and (label or not labelled):
        chosen = Inputs(**named) if len(named) > 1 else next(iter(named.values()))
        return chosen, label and arrays[label]
    expected = ", ".join("/".join(pair) for pair in PAIRS)
    raise InputError(f"{path} holds {some(names) or 'no array'}; expected one of {expected}")


def _labels_of(column: Any) -> np.ndarray:
    """Labels (n,) of a column of pandas: int64 if all of them match `WHOLE`, else strings."""
    texts = []
    for row, (value, missing) in enumerate(zip(column.tolist(), column.isna(), strict=True), 1):
        # In a .parquet file, a column of integers with a missing value holds floats.
        is_whole = isinstance(value, (bool, float)) and float(value).is_integer()
        text = str(int(value) if is_whole else value).strip()
        if missing or not text:
            raise InputError(f"row {row} has no label")
        if not isinstance(value, (str, int, float)):
            label_array([value])  # raises for values without a unique text, such as bytes
        texts.append(text)
    if all(map(WHOLE.fullmatch, texts)):
        return np.array([int(text.partition(".")[0]) for text in texts], dtype=np.int64)
    if all(map(is_number, texts)) and not all(float(text).is_integer() for text in texts):
        raise InputError(f"labels must be integers or names, got {some(texts)}")
    return label_array(texts)
