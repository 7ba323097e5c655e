"""Converts a user's `Dataset`: holds it in memory where that is the same, streams it where not.

Items always come from `__getitem__`, labels too; what spares reading them is known for exact types
only (`TensorDataset`, image files, torchvision's). One that draws at random is never held.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from impresslearn.data import random_state
from impresslearn.data.batches import loaded
from impresslearn.data.examples import Examples, StreamedExamples, pair, raw
from impresslearn.data.images import ImageFiles
from impresslearn.data.labels import label_array
from impresslearn.data.paths import users_code
from impresslearn.errors import InputError

PROBED = 16
"""Items of a data set that are read twice to see whether they stay the same."""


@dataclass(frozen=True, eq=False)
class Items(Dataset):
    """The items of a data set as pairs (tensor, label), each checked against the first.

    form: what all must have, None before the first is known. Raises InputError that names the item:
    one that cannot be read, is no pair, or has another shape or kind of numbers than the first.
    """

    dataset: Dataset
    form: str | None = None

    def __len__(self) -> int:
        with users_code(lambda: "a Dataset must know its length"):
            return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: Any) -> tuple[Tensor, Any]:
        item = self.read(index)
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise InputError(
                f"a Dataset must give pairs (input, label), item {index} is a {type(item).__name__}"
            )
        value = raw(item[0])
        if self.form not in (None, form_of(value)):
            raise InputError(
                f"the inputs of a Dataset must share one shape and type, item {index} has "
                f"{form_of(value)}, the first {self.form}"
            )
        return value, item[1]

    def read(self, index: Any) -> Any:
        """What the data set gives for an index."""
        kind = type(self.dataset).__name__
        with users_code(lambda: f"item {index} of {len(self)} in the {kind} cannot be read"):
            return self.dataset[index]


def from_dataset(
    dataset: Dataset, memory_limit: int, workers: int, live_workers: int = 0
) -> Examples | StreamedExamples:
    """The examples of a map-style data set; live_workers: to read one that fits in memory."""
    items = Items(dataset)
    count = len(items)
    if count == 0:
        raise InputError("the data hold no example")
    tensors = _tensors(dataset)
    if tensors is not None:
        return pair(*tensors)
    first, _ = items[0]
    items = replace(items, form=form_of(first))
    images = isinstance(dataset, ImageFiles)
    pixels = images or first.dtype == torch.uint8
    fits = 4 * first.numel() * count <= memory_limit
    randomness = None if images else _randomness(items)
    if fits and randomness is None:
        before = random_state.state()
        # Copies: a data set may give the same memory again and again.
        pairs = ((value.clone(), label) for value, label in map(items.__getitem__, range(count)))
        values, labels = zip(*pairs, strict=True)
        if random_state.state() == before:
            return replace(pair(list(values), labels), pixels=pixels)
    known = _known_labels(items)
    if known is None:
        reading = workers if not fits and randomness != "own" else 0
        read = loaded(items, reading, torch.Generator().manual_seed(0), batch_size=64)
        known = label_array([label for _, labels in read for label in labels])
    # A generator of the data set's own would be copied to each worker, which all draw the same.
    workers = 0 if randomness == "own" else live_workers if fits else workers
    return StreamedExamples(items, known, workers, pixels=pixels)


def form_of(value: Tensor) -> str:
    """Shape of an input, and whether its numbers are pixels, in words."""
    return f"{tuple(value.shape)}{' of uint8' if value.dtype == torch.uint8 else ''}"


def same(one: tuple[Tensor, Any], other: tuple[Tensor, Any]) -> bool:
    """Whether two pairs (inputs, labels) hold the same bits, NaN included."""
    (a, b), (label, again) = zip(one, other, strict=True)
    if (a.shape, a.dtype, repr(label)) != (b.shape, b.dtype, repr(again)):
        return False
    first, second = (each.reshape(-1).contiguous().view(torch.uint8) for each in (a, b))
    return torch.equal(first, second)


def _tensors(dataset: Dataset) -> tuple[Tensor, Tensor] | None:
    """Inputs and labels of a data set that only indexes them: torch's own types, no heirs."""
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return dataset.tensors[0], dataset.tensors[1]
    if type(dataset) is Subset:
        whole = _tensors(dataset.dataset)
        if whole is not None:
            places = np.asarray(dataset.indices, dtype=np.int64)
            if places.min() >= 0 and places.max() < len(whole[1]):
                return whole[0][places], whole[1][places]
    return None


def _randomness(items: Items) -> str | None:
    """By which generators a data set draws its items: "global" ones, its "own", or None.

    Some items are read twice from the same state of the global generators.
    """
    found = None
    for index in _probed(len(items)):
        before = random_state.state()
        value, label = items[index]
        first = value.clone(), label  # the second reading may use the same memory
        if random_state.state() != before:
            found = "global"
            random_state.restore(before)
        if not same(first, items[index]):
            return "own"
    return found


def _probed(count: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, PROBED).astype(int)).tolist()


def _known_labels(items: Items) -> np.ndarray | None:
    """The labels of a data set that keeps them, if they are those of the items looked at."""
    kept = _kept_labels(items.dataset)
    if kept is None or isinstance(items.dataset, ImageFiles):
        return kept
    if len(kept) != len(items):
        return None
    probed = _probed(len(items))
    read = label_array([items[i][1] for i in probed])
    return kept if kept[probed].tolist() == read.tolist() else None


def _kept_labels(dataset: Dataset) -> np.ndarray | None:
    """The labels that a data set keeps beside its items, by what its type is known for."""
    if type(dataset) is Subset:
        whole = _kept_labels(dataset.dataset)
        return None if whole is None else whole[np.asarray(dataset.indices, dtype=np.int64)]
    torchvision = type(dataset).__module__.startswith("torchvision.datasets.")
    if not torchvision and not isinstance(dataset, ImageFiles):
        return None
    targets = getattr(dataset, "targets", None)
    changed = getattr(dataset, "target_transform", None) is not None
    return None if changed or not isinstance(targets, (list, Tensor)) else label_array(targets)
