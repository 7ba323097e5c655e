"""Files as examples: .npz, .npy, .csv and images become labelled data, or inputs with names.

The suffix says which reader is asked; what it gives becomes a float tensor by the rules of
`impresslearn.data` (uint8 is scaled to [0, 1], other numbers are taken as they are), is arranged,
and checked. Nothing is unpickled, and no header is trusted with more memory than a limit: NumPy
allocates what it declares, but touches only what the file holds, and the file is measured first.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
from torch import Tensor

from impresslearn.data.conversion import as_examples
from impresslearn.data.examples import MEMORY_LIMIT, Examples, StreamedExamples, as_inputs
from impresslearn.data.images import SUFFIXES, class_images, flat_images, image_files
from impresslearn.data.inputs import one_tensor
from impresslearn.data.labels import label_array
from impresslearn.data.paths import existing, naming, shorten, some
from impresslearn.data.preprocessing import Numbers, Preprocessing
from impresslearn.data.tables import column_names, read_labels, read_table, text_labels
from impresslearn.errors import InputError

EXAMPLE_FORMS = (
    "an image folder with a sub-folder a class, .npz, .csv, or .npy with a file of labels"
)
INPUT_FORMS = "an image, a folder of images, .npy, .npz or .csv"
LABEL_FORMS = "a .npy, .txt or .csv file with one label an example"
PAIRS = (
    ("inputs", "labels"),
    ("images", "labels"),
    ("data", "targets"),
    ("X", "y"),
    ("x", "y"),
    ("x_train", "y_train"),
)
"""Names of inputs and labels in an archive, in the order in which they are looked for."""

LONGEST_HEADER = 2**16


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


@dataclass(frozen=True)
class FileReader:
    """Reads files; the settings say how they are laid out and how inputs are arranged.

    label_column: of .csv (of the file of labels, where there is one): a name, or a position from 0;
    by default the column label, target, class or y. header: whether the first row of .csv names the
    columns; by default what it looks like.
    shape, size, mean, std, columns: as of `Preprocessing`; images are read as grey if `shape` has
    one number a pixel, as RGB otherwise.
    Image folders above `memory_limit` bytes are streamed by `workers` processes, other files above
    it refused.
    Each verb raises MissingDataError where there is no such path, MissingDependencyError for images
    without Pillow, and InputError for other forms, files cut short, pickled objects, empty data,
    unequal lengths, values that are no finite numbers, and settings that mean nothing to the form.
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

        path: an image folder PATH/CLASS/IMAGE (its labels are the names of the sub-folders); .npz
        with inputs/labels, images/labels, data/targets, X/y, x/y or x_train/y_train, looked for in
        this order; .csv with a row an example and a label column; .npy with `labels`.
        labels: a file of labels for .npy, .npz or .csv inputs, as `labels` reads it.
        """
        path, preprocessing = existing(path), self._preprocessing()
        targets = None if labels is None or path.is_dir() else self.labels(labels)
        with naming(path):
            if path.is_dir():
                _refuse(path, labels=labels, label_column=self.label_column, header=self.header)
                return self._images(list(chain.from_iterable(class_images(path).values())))
            if targets is None:
                inputs, targets = self._arrays(path, labelled=True)
            else:
                inputs, _ = replace(self, label_column=None)._arrays(path, labelled=False)
            examples = as_examples((inputs, targets))
            assert isinstance(examples, Examples)
            return replace(
                examples, inputs=as_inputs(preprocessing.arranged(one_tensor(examples.inputs)))
            )

    def inputs(self, path: str | Path) -> NamedInputs:
        """Inputs without labels, and what to call each.

        path: an image; a folder of images, taken in the order of their names; .npy; .npz with an
        array named as for `examples`, or with a single one; .csv, whose label column is left out
        where there is one. Images above `memory_limit` are refused.
        """
        path, preprocessing = existing(path), self._preprocessing()
        with naming(path):
            if not holds_images(path):
                array, _ = self._arrays(path, labelled=False)
                inputs = as_inputs(array)
                if len(inputs) == 0:
                    raise InputError(f"{path} holds no input")
                inputs = as_inputs(preprocessing.arranged(inputs))
                names = tuple(map(str, range(1, len(inputs) + 1)))
                return NamedInputs(inputs, names, array.dtype == np.uint8)
            _refuse(path, label_column=self.label_column, header=self.header)
            files = flat_images(path) if path.is_dir() else [path]
            examples = self._images(files)
            if isinstance(examples, StreamedExamples):
                raise InputError(
                    f"the {len(files)} images of {path} take more memory than the limit of "
                    f"{self.memory_limit:,} bytes; give a part of them at a time"
                )
            return NamedInputs(
                one_tensor(examples.inputs), tuple(file.name for file in files), True
            )

    def column_names(
        self, path: str | Path, labels: str | Path | None = None
    ) -> tuple[str, ...] | None:
        """The names of the input columns of a .csv whose header has them, each once; else None."""
        path, label_column = existing(path), None if labels is not None else self.label_column
        if path.suffix.lower() != ".csv" or path.is_dir():
            return None
        with naming(path):
            return column_names(path, label_column, self.header)

    def labels(self, path: str | Path) -> np.ndarray:
        """(n,) labels of a file: .npy, .txt with a label a line, or .csv.

        In .txt and .csv they are integers if all are whole numbers, strings otherwise.
        """
        path = existing(path)
        suffix = path.suffix.lower()
        if path.is_dir() or suffix not in (".npy", ".txt", ".csv"):
            raise InputError(f"cannot read labels from {path}; expected {LABEL_FORMS}")
        if suffix != ".csv" and self.label_column is not None:
            raise InputError(f"label_column means nothing for {path}, got {self.label_column!r}")
        with naming(path):
            if suffix == ".npy":
                labels = label_array(_read_npy(path, self.memory_limit))
            else:
                labels = text_labels(self._label_texts(path))
            if not len(labels):
                raise InputError(f"{path} holds no label")
            return labels

    def _preprocessing(self) -> Preprocessing:
        mean, std = 0.0 if self.mean is None else self.mean, 1.0 if self.std is None else self.std
        return Preprocessing(self.shape, mean, std, self.size)

    def _images(self, files: Sequence[Path]) -> Examples | StreamedExamples:
        images = image_files(files, self._preprocessing())
        return as_examples(images, memory_limit=self.memory_limit, workers=self.workers)

    def _arrays(self, path: Path, labelled: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """Inputs and, if `labelled`, the labels that the same file holds."""
        suffix = path.suffix.lower()
        _refuse(path, size=self.size)
        if suffix == ".csv":
            self._check_size(path)
            how = self.label_column, self.header
            inputs, texts = read_table(path, *how, labelled=labelled, order=self.columns)
            return inputs, text_labels(texts) if labelled else None
        if labelled:
            _refuse(path, label_column=self.label_column, header=self.header)
        if suffix == ".npz":
            inputs, *labels = _read_npz(path, self.memory_limit, labelled)
            return inputs, label_array(*labels) if labelled else None
        if suffix != ".npy":
            expected = EXAMPLE_FORMS if labelled else INPUT_FORMS
            raise InputError(f"cannot read {path}; expected {expected}")
        if labelled:
            raise InputError(f"{path} holds inputs only; give the file of their labels as `labels`")
        return _read_npy(path, self.memory_limit), None

    def _label_texts(self, path: Path) -> list[str]:
        self._check_size(path)
        if path.suffix.lower() == ".csv":
            return read_labels(path, self.label_column, self.header)
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").split("\n")]
        while lines and not lines[-1]:
            lines.pop()
        if "" in lines:
            raise InputError(f"line {lines.index('') + 1} is empty; expected a label")
        return lines

    def _check_size(self, path: Path) -> None:
        size, limit = path.stat().st_size, self.memory_limit
        if size > limit:
            raise InputError(f"{size:,} bytes of text, more than the limit of {limit:,}")


def holds_images(path: Path) -> bool:
    """Whether a path is an image or a folder, which is read as images."""
    return path.is_dir() or path.suffix.lower() in SUFFIXES


def _refuse(path: Path, **settings: object) -> None:
    """Raises InputError for settings that mean nothing to a file of this form."""
    for name, value in settings.items():
        if value is not None:
            form = "an image folder" if path.is_dir() else f"{path.suffix or 'this'} files"
            raise InputError(f"{name} means nothing for {form}, got {value!r} with {path}")


def _read_npy(path: Path, limit: int) -> np.ndarray:
    """The array of a .npy file, in C order and the machine's byte order."""
    with naming(path), path.open("rb") as stream:
        _check_size(os.fstat(stream.fileno()).st_size - LONGEST_HEADER, limit)
        return _plain(np.lib.format.read_array(stream, allow_pickle=False), limit)


def _read_npz(path: Path, limit: int, labelled: bool) -> list[np.ndarray]:
    """Inputs and labels of a .npz archive, by the first of `PAIRS` that it holds.

    Without labels the inputs alone: by the names in `PAIRS`, or the only array.
    """
    wanted: Sequence[tuple[str, ...]] = PAIRS if labelled else [(name,) for name, _ in PAIRS]
    with naming(path), ZipFile(path) as archive:
        files = {info.filename: info for info in archive.infolist()}
        held = [name.removesuffix(".npy") for name in files if name.endswith(".npy")]
        names = next((names for names in wanted if set(names) <= set(held)), None)
        if names is None and not labelled and len(held) == 1:
            names = tuple(held)
        if names is None:
            raise InputError(
                f"{path} holds {some(held) or 'no array'}; expected "
                f"{'a pair' if labelled else 'one of'} {', '.join(map('/'.join, wanted))}"
            )
        arrays = []
        for member in (files[f"{name}.npy"] for name in names):
            # numpy writes no other; the decoders of the others hand out a whole block at once.
            if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise InputError(
                    "only archives written by numpy's savez or savez_compressed can be read"
                )
            _check_size(member.file_size - LONGEST_HEADER, limit)
            with archive.open(member) as stream:
                arrays.append(_plain(np.lib.format.read_array(stream, allow_pickle=False), limit))
        return arrays


def _plain(array: np.ndarray, limit: int) -> np.ndarray:
    if array.dtype.kind not in "biufcUS":
        given = shorten(str(array.dtype))
        raise InputError(f"expected an array of numbers or strings, got {given}")
    _check_size(array.size * max(array.dtype.itemsize, 4), limit)
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise InputError(f"the array takes more memory than the limit of {limit:,} bytes")
