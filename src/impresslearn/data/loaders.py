"""A user's `DataLoader` or `IterableDataset`.

A loader that only selects and batches is as good as its data set, or as the part that it draws.
What puts batches together in its own way, or gives items only in a row, is read once and held;
where such a reading draws at random, holding it would freeze an augmentation, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from itertools import chain, islice
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    default_collate,
    default_convert,
)

from impresslearn.data import draws
from impresslearn.data.datasets import (
    PROBED,
    Items,
    form_line,
    form_of,
    from_dataset,
    pair,
    same,
)
from impresslearn.data.examples import Examples, StreamedExamples, raw
from impresslearn.data.labels import label_array
from impresslearn.errors import ImpressLearnError, InputError

Batches = Callable[[], Iterator[Any]]
"""Begins a reading of pairs (inputs, labels), each a batch."""


def from_loader(loader: DataLoader, memory_limit: int) -> Examples | StreamedExamples:
    """The examples of a loader; its batch size and order are not used, its sampler is drawn once.

    Raises InputError as `from_dataset` and `from_iterable` do.
    """
    collate = loader.collate_fn
    plain = collate in (default_collate, default_convert)
    if type(loader).__iter__ is not DataLoader.__iter__:  # whose own draws are not the data's
        return _held(lambda: iter(loader), memory_limit, watched=False)
    if isinstance(loader.dataset, IterableDataset):
        if plain and loader.batch_size is not None:
            return from_iterable(loader.dataset, memory_limit)
        flow, size = loader.dataset, loader.batch_size
        return _held(lambda: _chunks(iter(flow), size, collate), memory_limit)
    asked = _asked(loader)
    single = loader.batch_sampler is None
    keys = asked if single else list(chain.from_iterable(asked))
    if plain and not any(isinstance(key, (list, tuple)) for key in keys):
        dataset = loader.dataset if _takes_all(loader) else Subset(loader.dataset, keys)
        return from_dataset(dataset, memory_limit, loader.num_workers, loader.num_workers)
    read = Items(loader.dataset).read
    make = read if single else lambda batch: list(map(read, batch))
    return _held(lambda: (collate(make(each)) for each in asked), memory_limit)


def from_iterable(dataset: IterableDataset, memory_limit: int) -> Examples:
    """The examples of a data set that gives single (input, label) pairs in a row.

    Raises InputError for one that draws at random, that takes more memory than the limit, or whose
    inputs differ in shape.
    """
    return _held(lambda: map(_batch_of_one, dataset), memory_limit)


def _held(begin: Batches, memory_limit: int, watched: bool = True) -> Examples:
    """All batches of one reading. watched: whether only the data draw from global generators."""
    before, size = draws.state(), 0
    inputs: list[Tensor] = []
    labels: list[Any] = []
    opening = []
    for number, (values, targets) in enumerate(_read(begin)):
        if number < PROBED:
            opening.append((values, targets))
        if inputs and form_of(values[0]) != form_of(inputs[0][0]):
            forms = " and ".join(form_line(form_of(each[0])) for each in (inputs[0], values))
            raise InputError(
                f"the inputs of a DataLoader must share one shape and type, got {forms}"
            )
        size += 4 * values.numel()
        if size > memory_limit:
            raise InputError(
                f"the data take more memory than the limit of {memory_limit:,} bytes and give "
                "items only in a row; give a Dataset with __getitem__, which can be streamed"
            )
        inputs.append(values)
        labels += targets
    if not inputs:
        raise InputError("the data hold no example")
    drew = watched and draws.state() != before
    if drew or not all(map(same, opening, _again(begin))):
        raise InputError(
            "reading the data again gives other values (an augmentation, or a shuffle), but what "
            "an IterableDataset or a collate function gives is read only once; draw in the "
            "__getitem__ of a Dataset, or give Examples with augment"
        )
    return pair(torch.cat(inputs), labels)


def _read(begin: Batches) -> Iterator[tuple[Tensor, list[Any]]]:
    """The batches of a reading: tensors of any type, and as many labels."""
    number = 0
    try:
        for number, batch in enumerate(begin()):
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise InputError("a DataLoader must give pairs (inputs, labels)")
            values, targets = raw(batch[0]).clone(), batch[1]  # a flow may reuse its memory
            if isinstance(targets, (str, bytes)) or not getattr(targets, "ndim", 1):  # no batch
                values, targets = values[None], [targets]
            labels = label_array(targets).tolist()
            if not labels:
                continue
            if not values.dim() or len(values) != len(labels):
                raise InputError(
                    f"batch {number} has inputs of shape {tuple(values.shape)} and "
                    f"{len(labels)} labels; every input needs one label"
                )
            yield values, labels
    except ImpressLearnError:
        raise
    except Exception as error:  # whatever a user's own code raises
        line = str(error).split("\n", 1)[0]
        raise InputError(
            f"the data cannot be read after batch {number}: {type(error).__name__}: {line}"
        ) from error


def _again(begin: Batches) -> Iterator[tuple[Tensor, list[Any]]]:
    """The first batches of another reading; none of what can be read only once."""
    try:
        yield from islice(_read(begin), PROBED)
    except InputError:
        return


def _batch_of_one(item: Any) -> Any:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        return item
    return raw(item[0])[None], [item[1]]


def _chunks(items: Iterator[Any], size: int | None, collate: Callable[[Any], Any]) -> Iterator[Any]:
    """Items put together as a loader of this batch size does, which takes None for no batches."""
    if size is None:
        yield from map(collate, items)
        return
    while chunk := list(islice(items, size)):
        yield collate(chunk)


def _asked(loader: DataLoader) -> list[Any]:
    """What a loader asks its data set for: lists of keys, or keys where it makes no batches."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return list(map(list, batches))
    size, sampler = loader.batch_size, loader.sampler
    if batches is not None:  # the loader itself does not know them where it was given the batches
        size, sampler = batches.batch_size, batches.sampler
    keys = iter(range(len(Items(loader.dataset))) if _takes_all(loader) else sampler)
    return list(_chunks(keys, size, list) if batches is not None else keys)


def _takes_all(loader: DataLoader) -> bool:
    """Whether a loader draws every item once, in whatever order."""
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        return False
    sampler = loader.sampler if batches is None else batches.sampler
    if type(sampler) is RandomSampler and sampler.replacement:
        return False
    known = type(sampler) in (SequentialSampler, RandomSampler)
    return known and len(cast(Sized, sampler)) == len(Items(loader.dataset))
