"""Runs the frozen network for one task: norm statistics while learning, then logits and labels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache
from torch import Tensor

from impresslearn.data import Features, Inputs, Label, classes_of, to_batches
from impresslearn.data.batches import BatchSource, even_parts
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.kernels.compiling import forkable_lock
from impresslearn.networks.backbone import Backbone, Mode
from impresslearn.networks.inputs import checked_examples

Statistics = dict[str, Tensor]
Weights = dict[str, Tensor]
BATCH = 1024  # inputs per forward pass, at most
# Numbers in the inputs of a pass: 42 images of 3 x 64 x 64. Larger passes leave the processor's
# caches, which costs a convolutional network several times the time of small ones.
PASS_NUMBERS = 2**19
# What an id counts for: an embedding stands for it, and attention compares all pairs.
NUMBERS_PER_ID = 128
TENSOR_BYTES = 850  # what a tensor of torch takes beside its numbers, and its place in a cache


@dataclass(frozen=True)
class TrainingPhase:
    """The mode of norms while something is learned, and the statistics they gather (in place)."""

    mode: Mode
    statistics: Statistics | None

    @classmethod
    def begin(
        cls,
        backbone: Backbone,
        shared: Statistics | None = None,
        previous: Statistics | None = None,
    ) -> TrainingPhase:
        """Fresh statistics, or copies of the task's previous ones, or the frozen shared ones."""
        if not backbone.has_statistics:
            return cls("train", None)
        if backbone.shares_statistics and shared is not None:
            return cls("frozen", shared)
        copies = {name: values.clone() for name, values in (previous or {}).items()}
        return cls("train", copies or backbone.initial_statistics())


@dataclass(frozen=True)
class TaskView:
    """A task ready to compute: effective weights, norm statistics and number of classes.

    - `weights`: layer name -> effective weights, as `Backbone.forward` takes them.
    - `statistics`: norm statistics by buffer name, None if the network keeps none.
    - `num_classes`: outputs that count.
    - `mode`: of `Backbone.forward`.
    - `others`: effective weights of further networks, whose logits are added (of readouts).
    - `feature_keys`: for a task that brings nothing but a head, a key for the rest of each of its
      networks: tasks with equal keys read the same features. None for any other task.
    """

    weights: Weights
    statistics: Statistics | None
    num_classes: int
    mode: Mode = "eval"
    others: tuple[Weights, ...] = ()
    feature_keys: tuple[Hashable, ...] | None = None

    def logits(self, backbone: Backbone, inputs: Tensor | Inputs) -> Tensor:
        """Evaluation-mode logits (n, num_classes). Inputs are moved to the backbone's device.

        With `batch` norm statistics the inputs of one forward pass depend on one another, so the
        parts are as even as possible and have at most BATCH inputs. Raises InputError for logits
        that are not finite.
        """
        return finite(self.outputs(backbone, inputs))

    def outputs(self, backbone: Backbone, inputs: Tensor | Inputs) -> Tensor:
        """As `logits`, finite or not."""
        if isinstance(inputs, Features):
            networks = zip(inputs.of(self.feature_keys), (self.weights, *self.others), strict=True)
            total, *others = [backbone.headed(features, weights) for features, weights in networks]
        else:
            total, *others = self._in_parts(backbone, backbone.forward, inputs)
        for logits in others:
            total = total + logits
        return total[:, : self.num_classes]

    def features(self, backbone: Backbone, inputs: Tensor | Inputs) -> Tensor:
        """(n, f) what enters the heads of all networks, side by side, as `Backbone.features`."""
        if isinstance(inputs, Features):
            return torch.cat(inputs.of(self.feature_keys), dim=1)
        return torch.cat(self._in_parts(backbone, backbone.features, inputs), dim=1)

    def reads(self, inputs: Features) -> bool:
        """Whether these features are of networks that this one reads."""
        return set(self.feature_keys or (None,)) <= set(inputs.keys)

    @torch.no_grad()
    def accuracy(self, backbone: Backbone, source: BatchSource) -> float:
        """The share of examples whose class index is predicted right; in parts as `logits`."""
        right = 0
        for inputs, targets in source.batches(BATCH):
            predicted = self.logits(backbone, inputs).argmax(dim=1)
            right += int((predicted == targets).sum())
        return right / len(source)

    @torch.no_grad()
    def _in_parts(
        self, backbone: Backbone, compute: Callable[..., Tensor], inputs: Tensor | Inputs
    ) -> list[Tensor]:
        """The result of `compute` for all inputs, for each network."""
        inputs = inputs.to(backbone.device, backbone.input_dtype)
        networks = (self.weights, *self.others)
        most = BATCH
        if not backbone.normalises_by_batch and inputs.device.type == "cpu":
            size = 0
            for tensor in inputs.tensors if isinstance(inputs, Inputs) else [inputs]:
                weight = 1 if tensor.is_floating_point() else NUMBERS_PER_ID
                size += weight * prod(tensor.shape[1:])
            most = min(BATCH, max(16, PASS_NUMBERS // max(1, size)))
        parts = inputs.split(even_parts(len(inputs), most))
        results = []
        for weights in networks:
            found = [compute(weights, part, self.statistics, self.mode) for part in parts]
            # One part needs no copy of its logits.
            results.append(torch.cat(found) if len(found) > 1 else found[0])
        return results


def finite(logits: Tensor) -> Tensor:
    """The logits. Raises InputError for NaN or infinite ones, which would pass for a class."""
    if not torch.isfinite(logits).all():
        line = "the outputs of the network are NaN or infinite; check the scale of the inputs"
        raise InputError(line)
    return logits


def labels_of(logits: Tensor, classes: tuple[Label, ...]) -> np.ndarray:
    """(n, K) logits to the (n,) labels that the classes had when they were learned."""
    return np.asarray(classes)[logits[:, : len(classes)].argmax(dim=1).cpu().numpy()]


def accuracy_of(
    backbone: Backbone,
    view: TaskView,
    data: Any,
    preprocessing: Preprocessing | None = None,
    classes: Sequence[Label] | None = None,
) -> float:
    """Accuracy in [0, 1] of a task's weights on labelled data, of that task or an unlearned one.

    - data, preprocessing: as in `checked_examples`.
    - classes: the task's classes in the order of the outputs; by default those in the data.

    Raises InputError for more classes than outputs, and data that do not fit the backbone.
    """
    examples = checked_examples(backbone, data, preprocessing)
    labels = tuple(classes_of(examples.labels) if classes is None else classes)
    # A view without a head, in a network where tasks have their own, predicts the first class.
    if backbone.own_head is not None and backbone.own_head.name not in view.weights:
        view = replace(view, weights=view.weights | backbone.new_head(len(labels)))
    elif backbone.own_head is None and len(labels) > backbone.num_classes:
        line = f"the data have {len(labels)} classes, the backbone only"
        raise InputError(f"{line} {backbone.num_classes} outputs")
    source = to_batches(examples, labels, backbone.device)
    return replace(view, num_classes=len(labels)).accuracy(backbone, source)


class WeightCache:
    """Up to `limit` bytes of weights by name, those used longest ago dropped first; for threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._weights: LRUCache[str, Weights] = LRUCache(limit, getsizeof=_size)
        self._lock = forkable_lock()
        self.hits = self.misses = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that it holds."""
        return int(self._weights.currsize)

    def get(self, name: str, make: Callable[[], Weights], evict_others: bool = True) -> Weights:
        """The weights kept under `name`, made if they are not there.

        - `make`: mixes the weights; runs without the lock, so that other threads are served.
        - `evict_others`: False keeps new weights only where there is room, so that going through
          all tasks once does not drop the weights in use.
        """
        with self._lock:
            weights = self._weights.get(name)
            self.hits += weights is not None
            self.misses += weights is None
        if weights is not None:
            return weights
        weights = make()
        with self._lock:
            room = self.limit - (0 if evict_others else self._weights.currsize)
            if name in self._weights or _size(weights) <= room:
                # Another thread may have kept equal weights meanwhile: all threads share them.
                weights = self._weights.setdefault(name, weights)
        return weights


def _size(weights: Weights) -> int:
    return sum(weight.nbytes + TENSOR_BYTES for weight in weights.values())
