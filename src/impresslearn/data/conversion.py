"""Turns labelled data of any accepted form into `Examples` or `StreamedExamples`.

Data that fit in memory are read once and held. Data that do not fit are streamed. So are the items
of a `Dataset` that applies random transforms: holding them would repeat the first random draw.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import data as torch_data

from impresslearn.checks import check_kind, composed
from impresslearn.data.batches import loaded
from impresslearn.data.examples import (
    MEMORY_LIMIT,
    Examples,
    StreamedExamples,
    drawing,
    draws,
    raw,
    to_tensor_and_dtype_kind,
)
from impresslearn.data.images import ImageFiles, image_folder
from impresslearn.data.labels import label_array, some
from impresslearn.data.preprocessing import Preprocessing, names_of
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.files import reason_of

# Names that a label column may have, in upper or lower case.
LABEL_NAMES = ("label", "labels", "target", "class", "y")
NO_EXAMPLE = "the data hold no example"


def as_examples(
    data: Any,
    *,
    memory_limit: int = MEMORY_LIMIT,
    workers: int = 2,
    layout: Preprocessing | None = None,
) -> Examples | StreamedExamples:
    """Labelled examples from any of the usual forms.

    - `data`: a pair (inputs, labels) of tensors, arrays or lists; a `Dataset` of (input, label) or,
      for several inputs, of dictionaries with a label, which are read once, into memory; a
      `DataLoader`, of which only the data set is used, not its batch size and order; a Hugging Face
      data set with a label column named as in `LABEL_NAMES`; the path of an image folder with one
      sub-folder per class (extra `vision`); or `Examples`.
    - `memory_limit`: the most bytes of inputs, as float32, that are held in memory; default 4 GiB.
      A data set with random transforms is streamed whatever its size.
    - `workers`: the number of processes that read streamed data; default 2.
    - `layout`: gives the size and shape of images, and the columns of tables; by default unchanged.
    """
    if layout is not None:
        check_kind("preprocessing", layout, Preprocessing)
    if isinstance(data, (str, Path)):
        data = image_folder(Path(data), layout)
    if isinstance(data, Examples):
        if layout is not None and data.columns:
            data = layout.ordered(data)
        # The inputs are floats by now; the flags record which type they had.
        checked = pair(data.inputs, data.labels, layout)
        kinds = data.pixels or checked.pixels, data.integers or checked.integers
        return Examples(checked.inputs, checked.labels, data.augment, *kinds, data.columns)
    if isinstance(data, StreamedExamples):
        return replace(data, labels=label_array(data.labels))
    if isinstance(data, torch_data.DataLoader):
        data = _dataset_of(data)
    of_rows = hasattr(data, "column_names") and hasattr(data, "with_format")
    if of_rows and not isinstance(data, Mapping):
        return _of_rows(list(data.with_format(None)), layout)
    if isinstance(data, torch_data.Dataset) and not isinstance(data, torch_data.IterableDataset):
        return _from_dataset(data, memory_limit, workers, layout)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return pair(data[0], data[1], layout)
    size = f" of {len(data)} parts" if isinstance(data, (tuple, list)) else ""
    raise InputError(
        "data must be a pair (inputs, labels), a Dataset, the path of an image folder or "
        f"Examples, got {type(data).__name__}{size}; take a pair of arrays out of it, or one part, "
        "such as data['train'] or task.train"
    )


def _of_rows(rows: Sequence[Any], layout: Preprocessing | None) -> Examples:
    """Examples from rows that are dictionaries with a label, or pairs (dictionary, label)."""
    if not rows:
        raise InputError(NO_EXAMPLE)
    rows = [row if isinstance(row, Mapping) else {**row[0], "label": row[1]} for row in rows]
    label, others = label_and_others(rows[0])
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in others}
    inputs = columns[others[0]]
    if len(others) > 1:
        inputs = {}
        for name in others:
            with users_code(partial("the column {!r} is not numbers of one shape".format, name)):
                inputs[name] = torch.stack([torch.as_tensor(cell) for cell in columns[name]])
    return pair(inputs, [row[label] for row in rows], layout)


def label_and_others(
    names: Iterable[Any], label_column: str | None = None, needed: bool = True
) -> tuple[Any, list[Any]]:
    """(label column, other columns). The label column may be None unless it is `needed`."""
    known = LABEL_NAMES if label_column is None else (composed(label_column),)
    labels: list[Any] = []
    others: list[Any] = []
    for name in names:
        text = str(name).casefold() if label_column is None else name
        (labels if text in known else others).append(name)
    if len(labels) > 1 or not others or (needed and not labels):
        # The error shows only some names. Labels are often in the last column, so show it first.
        columns = some([*labels, *others[-1:], *others[:-1]])
        raise InputError(
            f"expected one column of labels ({', '.join(known)}) and others, got {columns}; rename "
            "one, or choose one by --label-column or, in Python, by a pair (data['x'], data['y'])"
        )
    return labels[0] if labels else None, others


def _dataset_of(loader: torch_data.DataLoader) -> Any:
    """The data set of a loader, which may only batch and shuffle."""
    # Any other sampler may select or repeat examples, and a collate function may change them.
    data: Any = loader.dataset
    batches: Any = loader.batch_sampler
    sampler: Any = batches.sampler if type(batches) is torch_data.BatchSampler else None
    # Iterable data sets are refused later.
    plain = isinstance(data, torch_data.IterableDataset) or not hasattr(data, "__getitem__")
    if not plain and type(sampler) in (torch_data.SequentialSampler, torch_data.RandomSampler):
        plain = len(sampler) == len(data) and not getattr(sampler, "replacement", False)
    if not plain or loader.collate_fn is not torch_data.default_collate:
        line = "the DataLoader has its own sampler or collate_fn, which are not used here"
        raise InputError(f"{line}; give a Dataset (a Subset of it to select examples) or tensors")
    return data


def pair(inputs: Any, labels: Any, layout: Preprocessing | None = None) -> Examples:
    """Examples from inputs and labels; input i has label i."""
    index: Any = getattr(inputs, "index", None)
    other: Any = getattr(labels, "index", None)
    indexed = hasattr(index, "equals") and hasattr(other, "equals")  # pandas has such indices
    if indexed and not index.equals(other) and set(index) == set(other):
        line = "inputs and labels have one index in two orders; give labels.loc[inputs.index]"
        raise InputError(f"{line}, or both as arrays if their rows belong together")
    inputs = inputs if layout is None else layout.ordered(inputs)
    values, pixels, integers = to_tensor_and_dtype_kind(inputs)
    known = label_array(labels)
    if len(values) != len(known):
        line = f"{len(values)} inputs came with {len(known)} labels; every input needs one label"
        raise InputError(line + "; several inputs are il.Inputs(a, b)" * isinstance(inputs, tuple))
    if not len(known):
        raise InputError(NO_EXAMPLE)
    return Examples(values, known, None, pixels, integers, names_of(inputs))


@contextmanager
def users_code(what: Callable[[], str]) -> Iterator[None]:
    """Turns an exception of a user's code into one line; `what` returns what failed."""
    try:
        yield
    except ImpressLearnError:
        raise
    except Exception as error:
        raise InputError(f"{what()}: {type(error).__name__}: {reason_of(error)}") from error


@dataclass(frozen=True, eq=False)
class _Items(torch_data.Dataset):
    """The items of a data set as pairs (tensor, label), all with the form of the first item."""

    dataset: Any
    layout: Preprocessing | None = None  # for Pillow images
    form: tuple[Any, ...] | None = None  # shape and type of the first item, if known

    def __len__(self) -> int:
        with users_code(lambda: "a Dataset must know its length"):
            return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, Any]:
        kind = type(self.dataset).__name__
        what = f"item {index} of {len(self)} in the {kind} is not a readable pair (input, label)"
        with users_code(lambda: what):
            item = self.dataset[index]
            if isinstance(item, Mapping):
                label, others = label_and_others(item)
                item = (*(item[name] for name in others), item[label])
            value, label = item
            if self.layout is not None and hasattr(value, "getbands"):
                value = self.layout.ordered(value)[0]
            value = raw(value)
        if self.form not in (None, _form_of(value)):
            line = "the inputs of a Dataset must share one shape and type"
            raise InputError(f"{line}, item {index} has {_form_of(value)}, the first {self.form}")
        return value, label


def _from_dataset(
    dataset: torch_data.Dataset, memory_limit: int, workers: int, layout: Preprocessing | None
) -> Examples | StreamedExamples:
    if type(dataset) is torch_data.TensorDataset and len(dataset.tensors) == 2:
        return pair(*dataset.tensors)
    items = _Items(dataset, layout)
    count = len(items)
    if count == 0:
        raise InputError(NO_EXAMPLE)
    with drawing(0), users_code(lambda: f"items of the {type(dataset).__name__} cannot be read"):
        item: Any = dataset[0]
        value = item[0] if isinstance(item, (tuple, list)) and len(item) == 2 else item
        if isinstance(value, Mapping) and (value is not item or len(value) > 2):
            # Copied, because a data set may reuse the memory of an item.
            return _of_rows([deepcopy(dataset[index]) for index in range(count)], layout)
        first, _ = items[0]
    items = replace(items, form=_form_of(first))
    pixels, images = first.dtype == torch.uint8, isinstance(dataset, ImageFiles)
    # Count 4 bytes per number: every type except half precision becomes float32.
    fits = 4 * first.numel() * count <= memory_limit
    if fits and (images or not _draws_at_random(items)):
        values, labels = [], []
        for index in range(count):
            value, label = items[index]
            values.append(value.clone())  # a data set may reuse the memory of an item
            labels.append(label)
        return replace(pair(values, labels), pixels=pixels)
    workers = 0 if fits else workers  # for few data, starting processes takes longer than reading
    # These data sets have all labels in `targets`, so the images need not be read for labels.
    torchvision = type(dataset).__module__.startswith("torchvision.datasets.")
    changed = getattr(dataset, "target_transform", None) is not None
    trusted = images or (torchvision and not changed)
    known: Any = getattr(dataset, "targets", None) if trusted else None
    if known is None:
        known = []
        generator = torch.Generator().manual_seed(0)
        for _, batch_labels in loaded(items, workers, generator, batch_size=64):
            known.extend(batch_labels)
    return StreamedExamples(items, label_array(known), workers, pixels=pixels)


def _form_of(value: Tensor) -> tuple[Any, ...]:
    # Only uint8 is scaled, so a batch may mix all other types.
    return (*value.shape, "uint8") if value.dtype == torch.uint8 else tuple(value.shape)


def _draws_at_random(items: _Items) -> bool:
    """Whether 16 items differ when they are read again, or reading draws from global generators."""
    with drawing(0):
        untouched = draws()
    with drawing(0):
        for index in np.linspace(0, len(items) - 1, 16).astype(int):
            value, _ = items[int(index)]
            value = value.clone()  # the second reading may use the same memory
            if not torch.equal(value, items[int(index)][0]):
                return True
        return draws() != untouched
