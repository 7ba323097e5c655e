"""The logits of many tasks on the same inputs, computed together as far as they share something.

Only the library's own `lenet_300_100` and `linear` in float32 run mixtures together. A mixed layer
is linear in its coefficients: x (W ⊙ Σ_t α_t M^t)ᵀ = Σ_t α_t x (W ⊙ M^t)ᵀ. The first layer has the
same x for all tasks, so it multiplies x once per mask, and each task sums N products per output.
One matrix product mixes a later layer for a chunk of tasks. LeNet-300-100, 20 masks, 8 inputs, one
thread, tasks in memory: 30 / 100 / 300 / 1,000 / 3,000 tasks take 0.01 / 0.02 / 0.03 / 0.09 /
0.23 s.

Every other network runs its tasks one after the other, and so do fewer tasks than masks. Tasks that
bring nothing but a head read the same features, which are computed once. Tasks are read when their
turn comes, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from impresslearn.data import Features, Inputs
from impresslearn.errors import StoppedError
from impresslearn.inference.feature_scores import FeatureProfile
from impresslearn.inference.unknown import InputStatistics, TaskProfile
from impresslearn.kernels import mix
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.architectures import LeNet
from impresslearn.networks.prediction import TaskView, finite

# Limit on the bytes of the tasks that are run together.
CHUNK_BYTES = 32 * 2**20
MAX_CHUNK = 512
stopping: ContextVar[Callable[[], bool]] = ContextVar("stopping", default=lambda: False)
"""Whether whoever asked has gone: looked at after each task. A server sets it."""
# Limit on the bytes of the products per mask.
PRODUCT_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Mixture:
    """A task that combines masks: W ⊙ Σ_t α_t M^t in every layer.

    - alpha: a tensor (N,) or (N, units) for each maskable layer, over the bank's first N masks.
    - output_scale: a tensor (units,) for each layer that multiplies its outputs, or None.
    - residual: whether the network's own weights are added.
    """

    alpha: Sequence[Tensor]
    output_scale: Sequence[Tensor] | None = None
    residual: bool = False


@dataclass(frozen=True)
class KnownTask:
    """A task that inputs may belong to, read and unpacked only when it is needed.

    - name: the task's name.
    - num_classes: the number of its classes.
    - view: makes it ready to compute.
    - profile: what its own inputs look like, None if nothing is known.
    - mixture: gives it as a mixture of masks; None for any other task.
    - is_mask: whether it is one mask of the bank, which its view computes faster.
    """

    name: str
    num_classes: int
    view: Callable[[], TaskView]
    profile: TaskProfile | FeatureProfile | None
    mixture: Callable[[], Mixture] | None = None
    is_mask: bool = False

    @property
    def statistics(self) -> InputStatistics | None:
        """What is known of its inputs."""
        return self.profile.inputs if isinstance(self.profile, TaskProfile) else None


class Outputs(NamedTuple):
    """The logits of some tasks: their positions, the tasks, and logits (C, n, K)."""

    positions: list[int]
    tasks: list[KnownTask]
    logits: Tensor


@torch.no_grad()
def outputs_of_tasks(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    features: Mapping[Hashable, Tensor] | None = None,
) -> Iterator[Outputs]:
    """The logits of all tasks, in chunks of tasks with equal numbers of classes, in any order.

    - features: (n, f) of the networks, by their keys, that are known.

    Equal up to rounding to the logits of each task's view. Raises InputError for logits that are
    not finite, and StoppedError once `stopping` says so.
    """
    if not isinstance(inputs, Features):
        backbone.check_inputs(inputs)
    perceptron = Perceptron.of(backbone, bank, inputs, len(tasks))
    shared = SharedFeatures(backbone, inputs, features)
    # Only these need equal numbers of classes: the others are chunks of one task.
    by_classes: dict[int, list[tuple[int, KnownTask]]] = {}
    for position, task in enumerate(tasks):
        if perceptron is None or task.mixture is None or task.is_mask:
            yield _wanted([position], [task], shared.logits(task.view())[None])
        else:
            by_classes.setdefault(task.num_classes, []).append((position, task))
    if perceptron is None:
        return
    for num_classes, members in by_classes.items():
        for start in range(0, len(members), perceptron.chunk):
            positions, chunk, mixtures = [], [], []
            for position, task in members[start : start + perceptron.chunk]:
                assert task.mixture is not None
                positions.append(position)
                chunk.append(task)
                mixtures.append(task.mixture())
            yield _wanted(positions, chunk, perceptron.logits(mixtures)[:, :, :num_classes])


def _wanted(positions: list[int], tasks: list[KnownTask], logits: Tensor) -> Outputs:
    if stopping.get()():
        raise StoppedError("the answer is no longer wanted")
    return Outputs(positions, tasks, finite(logits))


class SharedFeatures:
    """Logits of tasks in turn; features that several tasks read are computed once."""

    def __init__(
        self,
        backbone: Backbone,
        inputs: Tensor | Inputs,
        known: Mapping[Hashable, Tensor] | None = None,
    ) -> None:
        self._backbone, self._inputs, self._known = backbone, inputs, known or {}
        self._features: dict[Hashable, Tensor | None] = {}

    def logits(self, view: TaskView) -> Tensor:
        """(n, K), as `TaskView.outputs`."""
        if view.feature_keys is None or isinstance(self._inputs, Features):
            return view.outputs(self._backbone, self._inputs)
        parts = []
        for key, weights in zip(view.feature_keys, (view.weights, *view.others), strict=True):
            network = TaskView(weights, view.statistics, view.num_classes, view.mode)
            parts.append(self._logits_of(network, key))
        return reduce(torch.add, parts)

    def _logits_of(self, network: TaskView, key: Hashable) -> Tensor:
        if key in self._features:
            features = self._features[key]
            if features is None:
                return network.outputs(self._backbone, self._inputs)
            return self._backbone.headed(features, network.weights)[:, : network.num_classes]
        outputs = network.outputs(self._backbone, self._inputs)
        features = self._known.get(key)
        if features is None:
            features = network.features(self._backbone, self._inputs)
        # Where the logits differ, the network changes them after the head: keep no features then.
        headed = self._backbone.headed(features, network.weights)[:, : network.num_classes]
        agrees = torch.allclose(headed, outputs, rtol=1e-3, atol=1e-4)
        self._features[key] = features if agrees else None
        return outputs


class Perceptron:
    """A LeNet that runs many mixtures on the same inputs (n, ...).

    - chunk: how many tasks to run together.
    """

    def __init__(self, backbone: Backbone, bank: MaskBank, inputs: Tensor) -> None:
        flat = inputs.to(backbone.device, backbone.input_dtype).flatten(1)
        one = torch.ones(1, dtype=torch.float32, device=backbone.device)
        self._products: list[Tensor] = []
        self._biases: list[Tensor | None] = []
        for place, layer in enumerate(bank.layers):
            frozen, products = backbone.weights[layer.name], []
            for bits in bank.bits(place):
                products.append(mix(bits[None], one, frozen))
            # The network's own weights come last: residual tasks have a coefficient for these too.
            products.append(frozen)
            if place == 0:
                products = [weights @ flat.t() for weights in products]
            self._products.append(torch.stack(products))
            name = layer.name.removesuffix("weight") + "bias"
            self._biases.append(dict(backbone.module.named_parameters()).get(name))
        numbers = 0
        for shared in self._products:
            numbers += shared[0].numel() + len(shared[0]) * (len(shared) + len(flat))
        self.chunk = max(1, min(MAX_CHUNK, CHUNK_BYTES // (4 * numbers)))

    @classmethod
    def of(
        cls, backbone: Backbone, bank: MaskBank, inputs: Tensor | Inputs, count: int
    ) -> Perceptron | None:
        """None for another network, and where sharing does not pay for this number of tasks."""
        # A module of the user's may have hooks, tied layers or steps that change inputs in place.
        if type(backbone.module) is not LeNet or backbone.spec is None:
            return None
        if backbone.own_head or backbone.dtype != torch.float32 or not isinstance(inputs, Tensor):
            return None
        first, *later = bank.layers
        numbers = first.units * len(inputs) + sum(layer.numel for layer in later)
        fits = 4 * (len(bank) + 1) * numbers <= PRODUCT_BYTES
        return cls(backbone, bank, inputs) if fits and 0 < len(bank) <= count else None

    def logits(self, tasks: Sequence[Mixture]) -> Tensor:
        """(C, n, outputs)."""
        hidden = torch.empty(0)
        for place, products in enumerate(self._products):
            alphas = coefficients_of(tasks, place, len(products), products[0])
            if alphas.dim() == 2:
                mixed = (alphas @ products.flatten(1)).unflatten(1, products.shape[1:])
            else:  # Σ_t α_ctu P_tuk, a matrix product for each unit u
                mixed = torch.bmm(alphas.permute(2, 0, 1), products.transpose(0, 1)).transpose(0, 1)
            if place == 0:
                hidden = mixed.transpose(1, 2)
            else:
                hidden = hidden.relu() @ mixed.transpose(1, 2)
            if self._biases[place] is not None:
                hidden = hidden + self._biases[place]
        return hidden


def coefficients_of(tasks: Sequence[Mixture], place: int, depth: int, weights: Tensor) -> Tensor:
    """(C, depth) of one layer, or (C, depth, units) where a task has numbers per unit.

    Zero for masks that a task was learned without; the last one is 1 for a residual task.

    - weights: (units, ...) of the layer.
    """
    by_unit = False
    for task in tasks:
        by_unit = by_unit or task.alpha[place].dim() == 2 or task.output_scale is not None
    shape = (len(tasks), depth, len(weights)) if by_unit else (len(tasks), depth)
    coefficients = torch.zeros(shape, dtype=torch.float32, device=weights.device)
    for row, task in zip(coefficients, tasks, strict=True):
        alpha = task.alpha[place]
        row[: len(alpha)] = alpha[:, None] if by_unit and alpha.dim() == 1 else alpha
        if task.residual:
            row[-1] = 1
        if task.output_scale is not None:
            row *= task.output_scale[place]
    return coefficients
