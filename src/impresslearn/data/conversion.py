"""Turns whatever form labelled data come in into `Examples` or `StreamedExamples`.

A `DataLoader` that only selects and batches is as good as its data set, or as the part that it
draws. What puts batches together in its own way, or gives items only in a row, is read once and
held, and refused where it draws at random: holding it would freeze an augmentation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    default_collate,
    default_convert,
)

from impresslearn.data import random_state
from impresslearn.data.columns import from_columns, has_columns
from impresslearn.data.datasets import PROBED, Items, form_of, from_dataset, same
from impresslearn.data.examples import MEMORY_LIMIT, Examples, StreamedExamples, pair, raw
from impresslearn.data.images import class_images, image_files
from impresslearn.data.labels import label_array
from impresslearn.data.paths import users_code
from impresslearn.errors import InputError


def as_examples(
    data: Any, *, memory_limit: int = MEMORY_LIMIT, workers: int = 2
) -> Examples | StreamedExamples:
    """Labelled examples from any of the usual forms.

    data: `Examples`; a pair (inputs, labels) of tensors, arrays or lists; a map-style `Dataset` of
    (input, label); a `DataLoader` (its data set is read, its batch size and order are not used, a
    sampler that selects is drawn once); an `IterableDataset`; a `datasets.Dataset` with a column of
    labels (see `from_columns`); the path of an image folder (one sub-folder a class; needs the
    extra `vision`).
    A `Dataset` is held in memory up to `memory_limit` bytes, and streamed beyond by `workers`
    processes. One that draws at random while it is read is always streamed, so that each epoch
    draws anew: from torch's, numpy's and Python's global generators as the training seed says, or
    from its own, in this process. An `IterableDataset`, or a loader with a collate function of its
    own, is read once and held; one that draws at random is refused.
    Raises InputError for empty data, unequal lengths, NaN or infinite inputs, labels that are
    neither integers nor strings, and items that cannot be read; MissingDataError for a path where
    nothing is.
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
        files = list(chain.from_iterable(class_images(Path(data)).values()))
        return from_dataset(image_files(files), memory_limit, workers)
    if isinstance(data, DataLoader):
        return _from_loader(data, memory_limit)
    if isinstance(data, IterableDataset):
        return _held(lambda: map(_batch_of_one, data), memory_limit)
    if isinstance(data, Dataset):
        return from_dataset(data, memory_limit, workers)
    if has_columns(data):
        return from_columns(data, memory_limit, workers)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return pair(*data)
    if isinstance(data, dict) and data and all(map(has_columns, data.values())):
        raise InputError(f"the data are several splits; choose one of {', '.join(data)}")
    hint = "; did you mean its .train?" if hasattr(data, "train") and hasattr(data, "test") else ""
    raise InputError(
        "data must be a pair (inputs, labels), a Dataset, a DataLoader, the path of an image "
        f"folder or Examples, got {type(data).__name__}{hint}"
    )


def _from_loader(loader: DataLoader, memory_limit: int) -> Examples | StreamedExamples:
    collate, plain = loader.collate_fn, loader.collate_fn in (default_collate, default_convert)
    if type(loader).__iter__ is not DataLoader.__iter__:  # whose own draws are not the data's
        return _held(lambda: iter(loader), memory_limit, watched=False)
    if isinstance(loader.dataset, IterableDataset):
        flow, size = loader.dataset, loader.batch_size
        if plain and size is not None:
            return _held(lambda: map(_batch_of_one, flow), memory_limit)
        return _held(lambda: map(collate, _chunks(flow, size) if size else flow), memory_limit)
    keys, batches = _keys(loader)
    if plain and not any(isinstance(key, (list, tuple)) for key in keys):
        dataset = loader.dataset if isinstance(keys, range) else Subset(loader.dataset, keys)
        return from_dataset(dataset, memory_limit, loader.num_workers, loader.num_workers)
    read = Items(loader.dataset).read
    if batches is None:
        return _held(lambda: map(collate, map(read, keys)), memory_limit)
    return _held(lambda: (collate(list(map(read, batch))) for batch in batches), memory_limit)


def _keys(loader: DataLoader) -> tuple[Sequence[Any], list[list[Any]] | None]:
    """The keys that a loader asks its data set for, and its batches of them, if it makes any.

    A sampler that draws every item once, in whatever order, gives the range of all keys.
    """
    batches = loader.batch_sampler
    if batches is not None and type(batches) is not BatchSampler:
        chosen = list(map(list, batches))
        return list(chain.from_iterable(chosen)), chosen
    before = random_state.state()
    keys: Sequence[Any] = list(loader.sampler if batches is None else batches.sampler)
    every = range(len(Items(loader.dataset)))
    if all(type(key) is int for key in keys) and sorted(keys) == list(every):
        random_state.restore(before)
        keys = every
    # The loader itself does not know the size where it was given the batches.
    return keys, None if batches is None else list(_chunks(keys, batches.batch_size))


def _held(begin: Callable[[], Iterator[Any]], limit: int, watched: bool = True) -> Examples:
    """All batches of one reading, which `begin` begins; watched: whether only the data draw."""
    before, size = random_state.state(), 0
    batches: list[tuple[Tensor, list[Any]]] = []
    for values, labels in _read(begin):
        batches.append((values, labels))
        if form_of(values[0]) != form_of(batches[0][0][0]):
            raise InputError(
                "the inputs of a DataLoader must share one shape and type, got "
                f"{form_of(batches[0][0][0])} and {form_of(values[0])}"
            )
        size += 4 * values.numel()
        if size > limit:
            raise InputError(
                f"the data take more memory than the limit of {limit:,} bytes and give "
                "items only in a row; give a Dataset with __getitem__, which can be streamed"
            )
    if not batches:
        raise InputError("the data hold no example")
    drew = watched and random_state.state() != before
    if drew or not all(map(same, batches, _again(begin))):
        raise InputError(
            "reading the data again gives other values (an augmentation, or a shuffle), but what "
            "an IterableDataset or a collate function gives is read only once; draw in the "
            "__getitem__ of a Dataset, or give Examples with augment"
        )
    inputs, labels_of = zip(*batches, strict=True)
    return pair(torch.cat(inputs), list(chain.from_iterable(labels_of)))


def _read(begin: Callable[[], Iterator[Any]]) -> Iterator[tuple[Tensor, list[Any]]]:
    """The batches of a reading: tensors of any type, and as many labels."""
    number = 0
    with users_code(lambda: f"the data cannot be read after batch {number}"):
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


def _again(begin: Callable[[], Iterator[Any]]) -> Iterator[tuple[Tensor, list[Any]]]:
    """The first batches of another reading; none of what can be read only once."""
    with suppress(InputError):
        yield from islice(_read(begin), PROBED)


def _batch_of_one(item: Any) -> Any:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        return item
    return raw(item[0])[None], [item[1]]


def _chunks(items: Any, size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk
