"""Labelled examples, whatever form they come in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

from impresslearn.data.datasets import from_dataset, pair
from impresslearn.data.examples import MEMORY_LIMIT, Examples, StreamedExamples
from impresslearn.data.images import class_images, image_files
from impresslearn.data.labels import label_array
from impresslearn.data.loaders import from_iterable, from_loader
from impresslearn.errors import InputError


def as_examples(
    data: Any, *, memory_limit: int = MEMORY_LIMIT, workers: int = 2
) -> Examples | StreamedExamples:
    """Labelled examples from any of the usual forms.

    data: `Examples`; a pair (inputs, labels) of tensors, arrays or lists; a map-style `Dataset` of
    (input, label); a `DataLoader` (its data set is read, its batch size and order are not used, a
    sampler of its own is drawn once); an `IterableDataset`; the path of an image folder (one
    sub-folder a class; needs the extra `vision`).
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
        examples = pair(data.inputs, data.labels)
        pixels, integers = data.pixels or examples.pixels, data.integers or examples.integers
        return replace(examples, augment=data.augment, pixels=pixels, integers=integers)
    if isinstance(data, StreamedExamples):
        return replace(data, labels=label_array(data.labels))
    if isinstance(data, (str, Path)):
        pictures = class_images(Path(data))
        files = [file for files in pictures.values() for file in files]
        return from_dataset(image_files(files), memory_limit, workers)
    if isinstance(data, DataLoader):
        return from_loader(data, memory_limit)
    if isinstance(data, IterableDataset):
        return from_iterable(data, memory_limit)
    if isinstance(data, Dataset):
        return from_dataset(data, memory_limit, workers)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return pair(*data)
    raise InputError(
        "data must be a pair (inputs, labels), a Dataset, a DataLoader, the path of an image "
        f"folder or Examples, got {type(data).__name__}"
    )
