"""Runs the frozen network for one task: in training with norm statistics, then for logits."""

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
TENSOR_BYTES = 850  # what a tensor in the cache takes in addition to its numbers


@dataclass(frozen=True)
class TrainingPhase:
    """The mode of norms in training, and the statistics that they gather (updated in place)."""

    mode: Mode
    statistics: Statistics | None

    @classmethod
    def begin(
        cls,
        backbone: Backbone,
        shared: Statistics | None = None,
        previous: Statistics | None = None,
    ) -> "TrainingPhase":
        """Starts with the frozen shared statistics, a copy of the task's previous, or new ones."""
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
    - `statistics`: norm statistics by buffer name; None if the network keeps none.
    - `num_classes`: the number of outputs to use, from the first.
    - `mode`: as in `Backbone.forward`.
    - `others`: for readouts, the weights of further networks, whose logits are added.
    - `feature_keys`: for a task that has only a head, one key per network for the weights without
      the head: tasks with equal keys read the same features. None for all other tasks.
    """

    weights: Weights
    statistics: Statistics | None
    num_classes: int
    mode: Mode = "eval"
    others: tuple[Weights, ...] = ()
    feature_keys: tuple[Hashable, ...] | None = None

    def logits(self, backbone: Backbone, inputs: Tensor | Inputs) -> Tensor:
        """Evaluation-mode logits (n, num_classes). Inputs are moved to the backbone's device.

        Inputs run in even parts of at most BATCH: under the norm policy "batch" inputs of one part
        affect one another. Raises InputError for logits that are not finite.
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
        """Features (n, f) of all networks, side by side, as `Backbone.features` gives them."""
        if isinstance(inputs, Features):
            return torch.cat(inputs.of(self.feature_keys), dim=1)
        return torch.cat(self._in_parts(backbone, backbone.features, inputs), dim=1)

    def reads(self, inputs: Features) -> bool:
        """Whether `inputs` holds the features that this task reads."""
        return set(self.feature_keys or (None,)) <= set(inputs.keys)

    @torch.no_grad()
    def accuracy(self, backbone: Backbone, source: BatchSource) -> float:
        """The share of examples whose class index is predicted correctly."""
        right = 0
        for inputs, targets in source.batches(BATCH):
            predicted = self.logits(backbone, inputs).argmax(dim=1)
            right += int((predicted == targets).sum())
        return right / len(source)

    @torch.no_grad()
    def _in_parts(
        self, backbone: Backbone, compute: Callable[..., Tensor], inputs: Tensor | Inputs
    ) -> list[Tensor]:
        """For each network, the result of `compute` for all inputs."""
        inputs = inputs.to(backbone.device, backbone.input_dtype)
        most = BATCH
        if not backbone.normalises_by_batch and inputs.device.type == "cpu":
            size = 0
            for tensor in inputs.tensors if isinstance(inputs, Inputs) else [inputs]:
                # An id counts more: an embedding replaces it, and attention compares all pairs.
                weight = 1 if tensor.is_floating_point() else 128
                size += weight * prod(tensor.shape[1:])
            # At most 2^19 numbers, such as 42 images of 3 x 64 x 64. Larger passes do not fit the
            # processor's caches, and take convolutions several times as long per input.
            most = min(BATCH, max(16, 2**19 // max(1, size)))
        parts = inputs.split(even_parts(len(inputs), most))
        results = []
        for weights in (self.weights, *self.others):
            outputs = [compute(weights, part, self.statistics, self.mode) for part in parts]
            # A single part is returned without a copy.
            results.append(torch.cat(outputs) if len(outputs) > 1 else outputs[0])
        return results


def finite(logits: Tensor) -> Tensor:
    """Returns the logits. Raises InputError for NaN or infinity, which would look like a class."""
    if not torch.isfinite(logits).all():
        line = "the outputs of the network are NaN or infinite; check the scale of the inputs"
        raise InputError(line)
    return logits


def labels_of(logits: Tensor, classes: tuple[Label, ...]) -> np.ndarray:
    """Turns logits (n, K) into labels (n,), as they were in the training data."""
    return np.asarray(classes)[logits[:, : len(classes)].argmax(dim=1).cpu().numpy()]


def accuracy_of(
    backbone: Backbone,
    view: TaskView,
    data: Any,
    preprocessing: Preprocessing | None = None,
    classes: Sequence[Label] | None = None,
) -> float:
    """Accuracy in [0, 1] of a view on labelled data of its task, or of a task not learned yet.

    - data, preprocessing: as in `checked_examples`.
    - classes: the task's classes in the order of the outputs; by default those in the data.
    """
    examples = checked_examples(backbone, data, preprocessing)
    labels = tuple(classes_of(examples.labels) if classes is None else classes)
    # If tasks have their own heads and the view has none, a head of zeros predicts the first class.
    if backbone.own_head is not None and backbone.own_head.name not in view.weights:
        view = replace(view, weights=view.weights | backbone.new_head(len(labels)))
    elif backbone.own_head is None and len(labels) > backbone.num_classes:
        line = f"the data have {len(labels)} classes, the backbone only"
        raise InputError(f"{line} {backbone.num_classes} outputs")
    source = to_batches(examples, labels, backbone.device)
    return replace(view, num_classes=len(labels)).accuracy(backbone, source)


class WeightCache:
    """Keeps up to `limit` bytes of weights by name; drops least recently used ones. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._weights: LRUCache[str, Weights] = LRUCache(limit, getsizeof=_size)
        self._lock = forkable_lock()
        self.hits = self.misses = 0

    @property
    def nbytes(self) -> int:
        return int(self._weights.currsize)

    def get(self, name: str, make: Callable[[], Weights], evict_others: bool = True) -> Weights:
        """The weights under `name`, which are made if they are not in the cache.

        - `make`: a function that makes the weights. Other threads can use the cache meanwhile.
        - `evict_others`: whether other weights may be dropped for new ones. False in loops over all
          tasks, which would otherwise drop the weights in use.
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
                # Another thread may have added equal weights meanwhile: use these.
                weights = self._weights.setdefault(name, weights)
        return weights


def _size(weights: Weights) -> int:
    return sum(weight.nbytes + TENSOR_BYTES for weight in weights.values())
