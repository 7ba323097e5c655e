"""From a path to examples or inputs, whatever the form of the file.

The suffix says which reader is asked; what it gives becomes a float tensor by the rules of
`impresslearn.data` (uint8 is scaled to [0, 1], other numbers are taken as they are), is arranged,
and checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from impresslearn.data import (
    MEMORY_LIMIT,
    Examples,
    StreamedExamples,
    as_examples,
    as_inputs,
)
from impresslearn.data.files.arrays import read_labelled_npz, read_npy, read_npz_inputs
from impresslearn.data.files.images import image_dataset
from impresslearn.data.files.labels import array_labels, read_labels, text_labels
from impresslearn.data.files.paths import existing, reading
from impresslearn.data.files.tables import read_table
from impresslearn.data.images import SUFFIXES, class_images, flat_images
from impresslearn.data.preprocessing import Numbers, Preprocessing
from impresslearn.errors import InputError

EXAMPLE_FORMS = (
    "an image folder with a sub-folder a class, .npz, .csv, or .npy with a file of labels"
)
INPUT_FORMS = "an image, a folder of images, .npy, .npz or .csv"


@dataclass(frozen=True)
class NamedInputs:
    """Inputs without labels: (n, ...) float, and n names: of files, or row numbers from 1.

    pixels: whether they were uint8 or images, which were scaled to [0, 1].
    """

    inputs: Tensor
    names: tuple[str, ...]
    pixels: bool = False

    def __len__(self) -> int:
        return len(self.names)


def read_examples(
    path: str | Path,
    labels: str | Path | None = None,
    *,
    label_column: str | int | None = None,
    header: bool | None = None,
    shape: Sequence[int] | None = None,
    size: int | None = None,
    mean: Numbers | None = None,
    std: Numbers | None = None,
    memory_limit: int = MEMORY_LIMIT,
    workers: int = 2,
) -> Examples | StreamedExamples:
    """Labelled examples from a file or folder.

    path: an image folder PATH/CLASS/IMAGE (its labels are the names of the sub-folders); .npz with
    inputs/labels, images/labels, data/targets, X/y, x/y or x_train/y_train, looked for in this
    order; .csv with a row an example and a label column; .npy with `labels`.
    labels: a file of labels for .npy, .npz or .csv inputs: .npy, .txt with a label a line, .csv.
    label_column: of .csv (of `labels`, where that is given): a name, or a position from 0; by
    default the column label, target, class or y. header: whether the first row of .csv names the
    columns; by default what it looks like.
    shape: of one input: rows are folded to it, (h, w, c) becomes (c, h, w), and images are read as
    grey if it has one number a pixel, as RGB otherwise. size: of images: the shorter side is
    resized to it, then the centre square kept. mean, std: numbers, one a channel or one for all,
    taken off and divided by last.
    Inputs: uint8 arrays and images are scaled to [0, 1]; other numbers, those of .csv too, become
    float32 as they are (half precision stays). Labels: integers or strings, in .csv and .txt
    integers if all are whole numbers. Image folders above `memory_limit` bytes are streamed by
    `workers` processes, other files above it refused.
    Raises MissingDataError where there is no such path, MissingDependencyError for images without
    Pillow, InputError for other forms, files cut short, pickled objects, empty data, unequal
    lengths, and values that are no finite numbers.
    """
    path = existing(path)
    arrangement = _arrangement(shape, mean, std)
    if path.is_dir():
        _refuse(path, labels=labels, label_column=label_column, header=header)
        files = [file for images in class_images(path).values() for file in images]
        dataset = image_dataset(files, arrangement, size)
        with reading(path):
            return as_examples(dataset, memory_limit=memory_limit, workers=workers)
    _refuse(path, size=size)
    if labels is not None:
        targets = read_labels(labels, label_column, header, memory_limit)
        inputs = _unlabelled(path, None, header, memory_limit)
    else:
        inputs, targets = _labelled(path, label_column, header, memory_limit)
    with reading(path):
        examples = as_examples((inputs, targets))
        assert isinstance(examples, Examples)
        return replace(examples, inputs=as_inputs(arrangement.arranged(examples.inputs)))


def read_inputs(
    path: str | Path,
    *,
    label_column: str | int | None = None,
    header: bool | None = None,
    shape: Sequence[int] | None = None,
    size: int | None = None,
    mean: Numbers | None = None,
    std: Numbers | None = None,
    memory_limit: int = MEMORY_LIMIT,
) -> NamedInputs:
    """Inputs without labels, and what to call each.

    path: an image; a folder of images, taken in the order of their names; .npy; .npz with an array
    named as for `read_examples`, or with a single one; .csv, whose label column is left out where
    there is one. The settings and errors are those of `read_examples`, but that images above
    `memory_limit` are refused too.
    """
    path = existing(path)
    arrangement = _arrangement(shape, mean, std)
    if holds_images(path):
        _refuse(path, label_column=label_column, header=header)
        files = flat_images(path) if path.is_dir() else [path]
        names = tuple(file.name for file in files)
        dataset = image_dataset(files, arrangement, size)
        with reading(path):
            examples = as_examples(dataset, memory_limit=memory_limit)
        if isinstance(examples, StreamedExamples):
            raise InputError(
                f"the {len(files)} images of {path} take more memory than the limit of "
                f"{memory_limit:,} bytes; give a part of them at a time"
            )
        return NamedInputs(examples.inputs, names, examples.pixels)
    _refuse(path, size=size)
    with reading(path):
        raw = _unlabelled(path, label_column, header, memory_limit)
        inputs = as_inputs(raw)
        if inputs.dim() == 0 or len(inputs) == 0:
            raise InputError(f"{path} holds no input")
        inputs = as_inputs(arrangement.arranged(inputs))
    names = tuple(map(str, range(1, len(inputs) + 1)))
    return NamedInputs(inputs, names, raw.dtype == np.uint8)


def holds_images(path: Path) -> bool:
    """Whether a path is an image or a folder, which is read as images."""
    return path.is_dir() or path.suffix.lower() in SUFFIXES


def _arrangement(
    shape: Sequence[int] | None, mean: Numbers | None, std: Numbers | None
) -> Preprocessing:
    return Preprocessing(shape, 0.0 if mean is None else mean, 1.0 if std is None else std)


def _labelled(
    path: Path, label_column: str | int | None, header: bool | None, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        table = read_table(path, label_column, header, True, limit)
        return table.inputs, text_labels(path, table.labels or [])
    _refuse(path, label_column=label_column, header=header)
    if suffix == ".npz":
        inputs, targets = read_labelled_npz(path, limit)
        return inputs, array_labels(path, targets)
    if suffix == ".npy":
        raise InputError(f"{path} holds inputs only; give the file of their labels with labels")
    raise InputError(f"cannot read examples from {path}; expected {EXAMPLE_FORMS}")


def _unlabelled(
    path: Path, label_column: str | int | None, header: bool | None, limit: int
) -> np.ndarray:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return read_table(path, label_column, header, False, limit).inputs
    if suffix == ".npz":
        return read_npz_inputs(path, limit)
    if suffix == ".npy":
        return read_npy(path, limit)
    raise InputError(f"cannot read inputs from {path}; expected {INPUT_FORMS}")


def _refuse(path: Path, **settings: object) -> None:
    """Raises InputError for settings that mean nothing to a file of this form."""
    for name, value in settings.items():
        if value is not None:
            form = "an image folder" if path.is_dir() else f"{path.suffix or 'this'} files"
            raise InputError(f"{name} means nothing for {form}, got {value!r} with {path}")
