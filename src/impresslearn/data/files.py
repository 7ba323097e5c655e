"""Files as examples: arrays, tables and images become labelled data, or inputs with names.

The suffix decides how a file is read. Its values follow the rules of `impresslearn.data`: uint8 is
scaled to [0, 1], other numbers are taken as they are. Nothing is unpickled.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.data.conversion import as_examples
from impresslearn.data.examples import (
    MEMORY_LIMIT,
    Examples,
    StreamedExamples,
    as_inputs,
    one_tensor,
    raw,
)
from impresslearn.data.images import (
    SUFFIXES,
    class_images,
    existing,
    flat_images,
    image_files,
    naming,
)
from impresslearn.data.labels import label_array, shorten, some
from impresslearn.data.preprocessing import Numbers, Preprocessing
from impresslearn.errors import InputError, MissingDependencyError

TABLES = (".csv", ".parquet")
PAIRS = (
    ("inputs", "labels"),
    ("images", "labels"),
    ("data", "targets"),
    ("X", "y"),
    ("x", "y"),
    ("x_train", "y_train"),
)
"""Names of inputs and labels in .npz and .pt, in the order in which they are looked for."""
LABEL_NAMES = ("label", "target", "class", "y")
"""Names of the label column if none is given, in upper or lower case."""
WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0*)?")  # at most 18 digits always fit int64


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

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class FileReader:
    """Reads files of data.

    - `label_column`: the label column of a table (of the file of labels, if there is one): a name,
      or a position from 0, -1 for the last. None: the column label, target, class or y.
    - `header`: whether the first row of .csv names the columns; None decides by its cells.
    - `shape`, `size`, `mean`, `std`, `columns`: as in `Preprocessing`. Images are read as grey if
      `shape` has one number per pixel, else as RGB.
    - `memory_limit`: bytes above which image folders are streamed (4 GiB).
    - `workers`: processes that read streamed images (2).

    Each method raises MissingDataError if a path does not exist, MissingDependencyError for images
    without Pillow and tables without pandas, and InputError for a file that cannot be used.
    """

    label_column: str | int | None = None
    header: bool | None = None
    shape: Sequence[int] | None = None
    size: int | None = None
    mean: Numbers | None = None
    std: Numbers | None = None
    columns: Sequence[str] | None = None
    memory_limit: int = MEMORY_LIMIT
    workers: int = 2

    def examples(
        self, path: str | Path, labels: str | Path | None = None
    ) -> Examples | StreamedExamples:
        """Labelled examples from a file or folder.

        - `path`: an image folder PATH/CLASS/IMAGE; .npz or .pt with two arrays named as in `PAIRS`;
          .csv or .parquet with a label column; or inputs alone, with `labels`.
        - `labels`: a file of labels, as the method `labels` reads it.
        """
        path = existing(path)
        if path.is_dir():
            files = [file for images in class_images(path).values() for file in images]
            with naming(path):
                return self._images(files)
        targets = None if labels is None else self.labels(labels)
        with naming(path):
            reader = self if targets is None else replace(self, label_column=None)
            inputs, own = reader._arrays(path, labelled=targets is None)
            examples = as_examples((inputs, own if targets is None else targets))
            assert isinstance(examples, Examples)
            arranged = self._preprocessing().arranged(one_tensor(examples.inputs))
            return replace(examples, inputs=as_inputs(arranged))

    def inputs(self, path: str | Path) -> NamedInputs:
        """Inputs without labels, and a name for each.

        - `path`: an image; a folder of images; .npy; .npz or .pt with an array named as in `PAIRS`,
          or with a single one; .csv or .parquet, whose label column is left out.
        """
        path = existing(path)
        with naming(path):
            if not holds_images(path):
                array, _ = self._arrays(path, labelled=False)
                inputs = as_inputs(self._preprocessing().arranged(as_inputs(array)))
                if len(inputs) == 0:
                    raise InputError(f"{path} holds no input")
                names = tuple(map(str, range(1, len(inputs) + 1)))
                return NamedInputs(inputs, names, raw(array).dtype == torch.uint8)
            files = flat_images(path) if path.is_dir() else [path]
            examples = self._images(files)
            if isinstance(examples, StreamedExamples):
                raise InputError(
                    f"the {len(files)} images of {path} take more memory than the limit of "
                    f"{self.memory_limit:,} bytes; give a part of them at a time"
                )
            names = tuple(file.name for file in files)
            return NamedInputs(one_tensor(examples.inputs), names, True)

    def column_names(
        self, path: str | Path, labels: str | Path | None = None
    ) -> tuple[str, ...] | None:
        """The names of a table's input columns; None for other files and without unique names."""
        path = existing(path)
        if path.suffix.lower() not in TABLES or path.is_dir():
            return None
        with naming(path):
            label_column = self.label_column if labels is None else None
            _, names, label = _read_table(path, label_column, self.header, False)
        inputs = [name for place, name in enumerate(names) if place != label]
        return tuple(inputs) if inputs and len(set(inputs)) == len(inputs) else None

    def labels(self, path: str | Path) -> np.ndarray:
        """(n,) labels of a file: .npy, .txt with a label per line, or a table.

        In .txt and .csv they are integers if all are whole numbers, else strings.
        """
        path = existing(path)
        suffix = path.suffix.lower()
        if path.is_dir() or suffix not in (".npy", ".txt", *TABLES):
            raise InputError(
                f"cannot read labels from {path}; expected a .npy, .txt or .csv file with one "
                "label an example"
            )
        with naming(path):
            if suffix == ".npy":
                labels = label_array(np.load(path, allow_pickle=False))
            elif suffix == ".txt":
                lines = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
                labels = _text_labels([line.strip() for line in lines])
            else:
                frame, _, label = _read_table(path, self.label_column, self.header, True, True)
                labels = _labels_of(frame, label)
            if not len(labels):
                raise InputError(f"{path} holds no label")
            return labels

    def _preprocessing(self) -> Preprocessing:
        mean, std = 0.0 if self.mean is None else self.mean, 1.0 if self.std is None else self.std
        return Preprocessing(self.shape, mean, std, self.size)

    def _images(self, files: Sequence[Path]) -> Examples | StreamedExamples:
        images = image_files(files, self._preprocessing())
        return as_examples(images, memory_limit=self.memory_limit, workers=self.workers)

    def _arrays(self, path: Path, labelled: bool) -> tuple[Any, Any]:
        """Inputs and, if `labelled`, the labels that the same file holds."""
        suffix = path.suffix.lower()
        if suffix in TABLES:
            frame, names, label = _read_table(path, self.label_column, self.header, labelled)
            labels = _labels_of(frame, label) if labelled else None
            return _numbers(frame, names, label, self.columns), labels
        if self.size is not None:
            raise InputError(f"size means nothing for {suffix} files, got {self.size}")
        if suffix == ".npy" and labelled:
            raise InputError(f"{path} holds inputs only; give the file of their labels as `labels`")
        if suffix == ".npy":
            # Mapped, because NumPy would first allocate all that a damaged header declares.
            return np.array(np.load(path, mmap_mode="r", allow_pickle=False)), None
        if suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return _chosen(archive, path, labelled)
        if suffix == ".pt":
            held = torch.load(path, map_location="cpu", weights_only=True)
            if isinstance(held, Tensor):
                held = {"inputs": held}
            elif isinstance(held, (tuple, list)):
                held = dict(zip(PAIRS[0], held, strict=True))
            return _chosen(held, path, labelled)
        images = "an image folder PATH/CLASS/IMAGE" if labelled else "an image, a folder of images"
        raise InputError(
            f"cannot read {path}; expected {images}, .npy, .npz, .pt, .csv or .parquet"
        )


def holds_images(path: Path) -> bool:
    """Whether a path is an image or a folder, which is read as images."""
    return path.is_dir() or path.suffix.lower() in SUFFIXES


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


def _read_table(
    path: Path,
    label_column: str | int | None,
    header: bool | None,
    labelled: bool,
    only_labels: bool = False,
) -> tuple[Any, list[str], int | None]:
    """A DataFrame with columns 0, 1, ..., their names ([] without a header), the label's position.

    labelled: whether there must be a label column; only_labels: a single column needs no name.
    """
    try:
        import pandas
    except ImportError:
        raise MissingDependencyError(
            "reading tables needs pandas: pip install 'impresslearn[pandas]'"
        ) from None
    if isinstance(label_column, str) and re.fullmatch("-?[0-9]{1,9}", label_column):
        label_column = int(label_column)
    if path.suffix.lower() == ".parquet":
        frame = pandas.read_parquet(path)
        names = [str(name) for name in frame.columns]
        label = _label_position(names, len(names), label_column, labelled)
        return frame.set_axis(range(len(names)), axis=1), names, label
    cells, delimiter = _first_line(path)
    if only_labels and len(cells) == 1 and label_column is None:
        label_column = 0
    if header is None:
        others = [cell for place, cell in enumerate(cells) if place != label_column]
        if label_column == -1:
            others.pop()
        named = label_column in cells or (not others and cells[0].casefold() in LABEL_NAMES)
        header = named or not all(map(_is_number, others))
    if header and "" in cells:
        raise InputError("a column has no name in the header; leave it out if it counts the rows")
    names = cells if header else []
    label = _label_position(names, len(cells), label_column, labelled)
    frame = pandas.read_csv(
        path,
        sep=delimiter,
        header=0 if header else None,
        names=range(len(cells)),
        dtype={} if label is None else {label: str},
        keep_default_na=False,  # "nan" may be the name of a class
        low_memory=False,
        encoding="utf-8-sig",
    )
    if not isinstance(frame.index, pandas.RangeIndex):  # pandas takes spare cells for row names
        raise InputError(f"rows have more cells than the {len(cells)} of the first line")
    if not len(frame):
        raise InputError("the table holds a header and no row below it")
    return frame, names, label


def _first_line(path: Path) -> tuple[list[str], str]:
    """The cells of the first line that is not empty, and the sign between them."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        line = next(filter(str.strip, stream), "")
    if not line:
        raise InputError(f"{path} is empty")
    unquoted = re.sub('"[^"]*"', "", line)
    delimiter = next((sign for sign in ",;\t" if sign in unquoted), ",")
    cells = next(csv.reader([line], delimiter=delimiter))
    return [cell.strip() for cell in cells], delimiter


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _label_position(
    names: list[str], width: int, wanted: str | int | None, needed: bool
) -> int | None:
    if isinstance(wanted, int):
        if not -width <= wanted < width:
            raise InputError(f"the table has {width} columns, there is no column {wanted}")
        return wanted % width
    places = []
    for place, name in enumerate(names):
        if name == wanted or (wanted is None and name.casefold() in LABEL_NAMES):
            places.append(place)
    if len(places) > 1 or (needed and not places):
        expected = "label, target, class or y" if wanted is None else repr(wanted)
        raise InputError(
            f"expected one column {expected}, the table has {some(names) or 'no header'}; say with "
            "label_column which one holds the labels, by name or position (-1 for the last)"
        )
    return places[0] if places else None


def _labels_of(frame: Any, label: int | None) -> np.ndarray:
    values = frame[label].tolist()
    for row, value in enumerate(values, 1):
        if value != value or not str(value).strip():  # only NaN differs from itself
            raise InputError(f"row {row} has no label")
    return _text_labels([str(value).strip() for value in values])


def _text_labels(texts: Sequence[str]) -> np.ndarray:
    """(n,) int64 if all texts are whole numbers ("7", "7.0"), else strings."""
    if "" in texts:
        raise InputError(f"line {texts.index('') + 1} is empty; expected a label")
    if all(map(WHOLE.fullmatch, texts)):
        return np.array([int(text.split(".")[0]) for text in texts], dtype=np.int64)
    if all(map(_is_number, texts)) and any("." in text for text in texts):
        raise InputError(f"labels must be integers or names, got {some(list(texts))}")
    return label_array(list(texts))


def _numbers(
    frame: Any, names: list[str], label: int | None, order: Sequence[str] | None
) -> np.ndarray:
    """(n, columns) float32 without the label, in the order of these names if the table has some."""
    import pandas

    places = [place for place in frame.columns if place != label]
    if not places:
        raise InputError("there is no column besides the label")
    if names and order is not None:
        place_of = {names[place]: place for place in places}
        odd = sorted(set(order) ^ set(place_of))
        if odd or len(places) != len(order):
            raise InputError(
                f"the columns must be {some(list(order))}, got {some(list(place_of))}; if one "
                "holds the labels, say so with label_column"
            )
        places = [place_of[name] for name in order]
    columns = []
    for place in places:
        with np.errstate(over="ignore"):
            numbers = pandas.to_numeric(frame[place], errors="coerce").to_numpy(np.float32)
        columns.append(numbers)
        finite = np.isfinite(numbers)
        if not finite.all():
            row = int(finite.argmin())
            name = shorten(names[place]) if names else place + 1
            raise InputError(
                f"row {row + 1}, column {name!r} holds {shorten(str(frame[place].iloc[row]))!r}, "
                "expected a finite number; pandas.get_dummies makes numbers of words"
            )
    return np.stack(columns, axis=1)
