"""Turns labelled data of any accepted form into `Examples` or `StreamedExamples`.

Data that fit in memory are read once and held. Data that do not fit, or that a `Dataset` draws at
random, are streamed: holding one random crop of an image would freeze the augmentation.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    default_collate,
    default_convert,
)

from impresslearn.data.batches import loaded
from impresslearn.data.examples import (
    MEMORY_LIMIT,
    Examples,
    Inputs,
    StreamedExamples,
    as_network_inputs,
    drawing,
    generator_states,
    raw,
    to_tensor_and_dtype_kind,
)
from impresslearn.data.images import ImageFiles, class_images, image_files
from impresslearn.data.labels import label_array
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.files import reason_of

PROBED = 16
"""Items of a data set that are read twice to see whether it draws at random."""


def as_examples(
    data: Any, *, memory_limit: int = MEMORY_LIMIT, workers: int = 2
) -> Examples | StreamedExamples:
    """Labelled examples from any of the usual forms.

    - `data`: a pair (inputs, labels) of tensors, arrays or lists; a `Dataset` of (input, label); a
      `DataLoader`, of which only the data set is used; a `datasets.Dataset` of Hugging Face with a
      column label or labels; the path of an image folder with one sub-folder per class (extra
      `vision`); or `Examples`.
    - `memory_limit`: bytes, as float32, up to which a data set is held (4 GiB); lower it if memory
      is short. A data set that draws at random while it is read is streamed at any size.
    - `workers`: processes that read streamed data (2); a `DataLoader` brings its own number.

    Raises InputError for empty data, unequal lengths, NaN or infinite inputs, labels that are
    neither integers nor strings, items that cannot be read, and loaders with their own sampler or
    collate function; MissingDataError for a path that does not exist.
    """
    examples = _converted(data, memory_limit, workers)
    if len(examples) == 0:
        raise InputError("the data hold no example")
    if isinstance(examples, Examples) and len(examples.inputs) != len(examples.labels):
        raise InputError(
            f"{len(examples.inputs)} inputs came with {len(examples.labels)} labels; "
            "every input needs one label"
        )
    return examples


def _converted(data: Any, memory_limit: int, workers: int) -> Examples | StreamedExamples:
    if isinstance(data, Examples):
        checked = pair(data.inputs, data.labels)
        pixels, integers = data.pixels or checked.pixels, data.integers or checked.integers
        return replace(checked, augment=data.augment, pixels=pixels, integers=integers)
    if isinstance(data, StreamedExamples):
        return replace(data, labels=label_array(data.labels))
    if isinstance(data, (str, Path)):
        files = [file for images in class_images(Path(data)).values() for file in images]
        return _from_dataset(image_files(files), memory_limit, workers)
    if isinstance(data, DataLoader):
        _check_plain(data)
        return _from_dataset(data.dataset, memory_limit, data.num_workers, data.num_workers)
    if isinstance(data, IterableDataset):
        raise InputError(
            "an IterableDataset can be read in one order only; give a Dataset with __getitem__, or "
            "collect its items into tensors"
        )
    if isinstance(data, Dataset):
        return _from_dataset(data, memory_limit, workers)
    if _has_columns(data):
        return _from_columns(data, memory_limit, workers)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return pair(*data)
    if isinstance(data, Mapping) and data and all(map(_has_columns, data.values())):
        raise InputError(f"the data are several splits; choose one of {', '.join(data)}")
    hint = "; did you mean its .train?" if hasattr(data, "train") and hasattr(data, "test") else ""
    raise InputError(
        "data must be a pair (inputs, labels), a Dataset, a DataLoader, the path of an image "
        f"folder or Examples, got {type(data).__name__}{hint}"
    )


def pair(inputs: Any, labels: Any) -> Examples:
    """Inputs and labels that belong together by their positions."""
    if isinstance(inputs, (Mapping, Inputs)):
        return Examples(as_network_inputs(inputs), label_array(labels))
    values, pixels, integers = to_tensor_and_dtype_kind(inputs)
    return Examples(values, label_array(labels), None, pixels, integers)


@contextmanager
def users_code(what: Callable[[], str]) -> Iterator[None]:
    """Turns an exception of a user's data set into one line; `what` says what cannot be read."""
    try:
        yield
    except ImpressLearnError:
        raise
    except Exception as error:
        raise InputError(f"{what()}: {type(error).__name__}: {reason_of(error)}") from error


@dataclass(frozen=True, eq=False)
class _Items(Dataset):
    """The items of a data set as pairs (tensor, label), each checked against the first.

    form: what all must have, None before the first is known.
    """

    dataset: Any
    form: str | None = None

    def __len__(self) -> int:
        with users_code(lambda: "a Dataset must know its length"):
            return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        kind = type(self.dataset).__name__
        with users_code(lambda: f"item {index} of {len(self)} in the {kind} cannot be read"):
            item = self.dataset[index]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise InputError(
                f"a Dataset must give pairs (input, label), item {index} is a {type(item).__name__}"
            )
        value = raw(item[0])
        if self.form not in (None, _form_of(value)):
            raise InputError(
                f"the inputs of a Dataset must share one shape and type, item {index} has "
                f"{_form_of(value)}, the first {self.form}"
            )
        return value, item[1]


def _from_dataset(
    dataset: Dataset, memory_limit: int, workers: int, small_workers: int = 0
) -> Examples | StreamedExamples:
    """small_workers: processes that read data at random which would fit in memory."""
    items = _Items(dataset)
    count = len(items)
    if count == 0:
        raise InputError("the data hold no example")
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return pair(*dataset.tensors)
    first, _ = items[0]
    items = replace(items, form=_form_of(first))
    images = isinstance(dataset, ImageFiles)
    pixels = images or first.dtype == torch.uint8
    fits = 4 * first.numel() * count <= memory_limit
    if fits and (images or not _draws_at_random(items)):
        values, labels = [], []
        for index in range(count):
            value, label = items[index]
            values.append(value.clone())  # a data set may give the same memory again and again
            labels.append(label)
        return replace(pair(values, labels), pixels=pixels)
    workers = small_workers if fits else workers
    known = _known_labels(dataset)
    if known is None:
        labels = []
        read = loaded(items, workers, torch.Generator().manual_seed(0), batch_size=64)
        for _, batch_labels in read:
            labels.extend(batch_labels)
        known = label_array(labels)
    return StreamedExamples(items, known, workers, pixels=pixels)


def _form_of(value: Tensor) -> str:
    return f"{tuple(value.shape)}{' of uint8' if value.dtype == torch.uint8 else ''}"


def _draws_at_random(items: _Items) -> bool:
    """Whether some items differ when they are read again, or draw from the global generators."""
    with drawing(0):
        before = generator_states()
        for index in np.linspace(0, len(items) - 1, PROBED).astype(int):
            value, _ = items[int(index)]
            value = value.clone()  # the second reading may use the same memory
            if not torch.equal(value, items[int(index)][0]):
                return True
        return generator_states() != before


def _known_labels(dataset: Any) -> np.ndarray | None:
    """The labels that spare a reading of all images; None if the items themselves must be read."""
    torchvision = type(dataset).__module__.startswith("torchvision.datasets.")
    changed = getattr(dataset, "target_transform", None) is not None
    targets = getattr(dataset, "targets", None)
    if isinstance(dataset, ImageFiles) or (torchvision and not changed and targets is not None):
        return label_array(targets)
    return None


def _check_plain(loader: DataLoader) -> None:
    """Raises InputError for a loader that gives anything else than each item of its data set."""
    if isinstance(loader.dataset, IterableDataset):
        _converted(loader.dataset, 0, 0)  # which raises
    batches = loader.batch_sampler
    sampler: Any = loader.sampler if batches is None else getattr(batches, "sampler", None)
    every = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement
    )
    plain = (
        type(loader).__iter__ is DataLoader.__iter__
        and loader.collate_fn in (default_collate, default_convert)
        and type(batches) in (BatchSampler, type(None))
    )
    if not plain or not every or len(sampler) != len(_Items(loader.dataset)):
        raise InputError(
            "a DataLoader with its own sampler or collate function cannot be used; give its "
            "Dataset, a Subset of it for some of the items, or tensors"
        )


def _has_columns(data: Any) -> bool:
    """Whether it is a `datasets.Dataset` of Hugging Face, which need not be imported for this."""
    names = ("column_names", "with_format", "features", "__getitem__")
    return not isinstance(data, Mapping) and all(hasattr(data, name) for name in names)


def _from_columns(data: Any, memory_limit: int, workers: int) -> Examples | StreamedExamples:
    """The examples of a `datasets.Dataset`.

    The label is the column label or labels. One other column becomes a tensor, held or streamed
    (images channels first); several become `Inputs` by name and are held.
    """
    names = [name for name in data.column_names if name not in ("label", "labels")]
    if len(names) != len(data.column_names) - 1 or not names:
        raise InputError(
            "the data need inputs and one column named label or labels, they have "
            f"{', '.join(data.column_names)}; rename or remove columns"
        )
    (label,) = set(data.column_names) - set(names)
    image = type(data.features[names[0]]).__name__ == "Image"
    rows = data.with_format("numpy") if data.format["type"] is None else data
    if len(names) == 1:
        return _from_dataset(_Rows(rows, names[0], label, image), memory_limit, workers)
    with users_code(lambda: "the data cannot be read"):
        columns = data.with_format("numpy")[:]
    for name in names:
        if np.asarray(columns[name]).dtype.kind in "USO":
            raise InputError(
                f"column {name!r} holds text or rows of unequal lengths; make numbers of it (map, "
                "a tokenizer with padding, TextEncoder) or leave it out (remove_columns)"
            )
    return pair({name: columns[name] for name in names}, columns[label])


@dataclass(frozen=True, eq=False)
class _Rows(Dataset):
    """One column of a `datasets.Dataset`, which may hold images, and its label as pairs."""

    rows: Any
    name: str
    label: str
    image: bool

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        row = self.rows[int(place)]
        value = row[self.name]
        if self.image:
            value = np.array(value)  # a writable copy, which torch asks for
            value = np.moveaxis(value, -1, 0) if value.ndim == 3 else value[None]
        return value, row[self.label]
