"""The logits of many tasks on the same inputs, computed together as far as they share something.

Only the library's own `lenet_300_100` and `linear` in float32 run mixtures together. A mixed layer
is linear in its coefficients: x (W ⊙ Σ_t α_t M^t)ᵀ = Σ_t α_t x (W ⊙ M^t)ᵀ. The first layer has the
same x for all tasks, so it multiplies x once per mask, and each task sums N products per output.
One matrix product mixes a later layer for a chunk of tasks. LeNet-300-100, 20 masks, 8 inputs, one
thread: 1,000 tasks take 0.13 s, and 2.1 s one after the other.

Every other network runs its tasks one after the other, and so do fewer tasks than masks. Tasks that
bring nothing but a head read the same features, which are computed once. Tasks are read when their
turn comes, so memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import Features, Inputs, inputs_behind
from impresslearn.errors import StoppedError
from impresslearn.inference.feature_scores import FeatureProfile
from impresslearn.inference.unknown import TaskProfile
from impresslearn.kernels import mix
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.architectures import LeNet
from impresslearn.networks.prediction import TaskView, finite

CHUNK_BYTES = 32 * 2**20  # limit on the bytes of the tasks that are run together
MAX_CHUNK = 512
stopping: ContextVar[Callable[[], bool]] = ContextVar("stopping", default=lambda: False)
"""Whether whoever asked has gone: looked at after each task. A server sets it."""
PRODUCT_BYTES = 256 * 2**20  # limit on the bytes of the products per mask


@dataclass(frozen=True)
class KnownTask:
    """A task that inputs may belong to, read and unpacked only when it is needed.

    - name, num_classes: of the task.
    - view: makes it ready to compute.
    - profile: what its own inputs look like, None if nothing is known.
    - mixture: gives its coefficients if it is nothing but a mixture of masks; None otherwise.
    """

    name: str
    num_classes: int
    view: Callable[[], TaskView]
    profile: TaskProfile | FeatureProfile | None
    mixture: Callable[[], Coefficients] | None = None


class Outputs(NamedTuple):
    """The logits of some tasks: their positions, the tasks, and logits (C, n, K)."""

    positions: Sequence[int]
    tasks: Sequence[KnownTask]
    logits: Tensor


@torch.no_grad()
def outputs_of_tasks(
    backbone: Backbone,
    bank: MaskBank,
    tasks: Collection[KnownTask],
    inputs: Tensor | Inputs,
    features: Features | None = None,
) -> Iterator[Outputs]:
    """The logits of all tasks, in chunks of tasks with equal numbers of classes, in any order.

    - features: the inputs with features of the frozen network, where these were computed already.

    Equal up to rounding to the logits of each task's view. Raises InputError for logits that are
    not finite, and StoppedError once `stopping` says so.
    """
    if not isinstance(inputs, Features):
        backbone.check_inputs(inputs)
    perceptron = Perceptron.of(backbone, bank, inputs, len(tasks))
    seen: dict[Hashable, Tensor | Inputs] = {}
    # Only these need equal numbers of classes: the others are chunks of one task.
    by_classes: dict[int, list[tuple[int, KnownTask]]] = {}
    for position, task in enumerate(tasks):
        if perceptron is None or task.mixture is None:
            view = task.view()
            keys = view.feature_keys
            if keys is not None and keys not in seen:
                seen[keys] = with_features(backbone, view, inputs, features)
            logits = view.outputs(backbone, seen.get(keys, inputs_behind(inputs)))
            yield _wanted([position], [task], logits[None])
        else:
            by_classes.setdefault(task.num_classes, []).append((position, task))
    if perceptron is None:
        return
    for num_classes, members in by_classes.items():
        for start in range(0, len(members), perceptron.chunk):
            positions, chunk = zip(*members[start : start + perceptron.chunk], strict=True)
            logits = perceptron.logits([task.mixture() for task in chunk if task.mixture])
            yield _wanted(positions, chunk, logits[:, :, :num_classes])


def check_wanted() -> None:
    """Raises StoppedError once `stopping` says so."""
    if stopping.get()():
        raise StoppedError("the answer is no longer wanted")


def _wanted(positions: Sequence[int], tasks: Sequence[KnownTask], logits: Tensor) -> Outputs:
    check_wanted()
    return Outputs(positions, tasks, finite(logits))


def with_features(
    backbone: Backbone, view: TaskView, inputs: Tensor | Inputs, features: Features | None
) -> Tensor | Inputs:
    """The inputs with the features that this task reads, for all tasks that read the same."""
    if isinstance(inputs, Features):
        return inputs if view.reads(inputs) else inputs.inputs
    if features is None or not view.reads(features):
        values = view.features(backbone, inputs)
        features = Features(values, inputs, backbone.identity, view.feature_keys or (), {})
    # Where the logits differ, the network changes them after the head.
    logits = view.outputs(backbone, inputs)
    agrees = torch.allclose(view.outputs(backbone, features), logits, rtol=1e-3, atol=1e-4)
    return features if agrees else inputs


class Perceptron:
    """A LeNet that runs many mixtures on the same inputs (n, ...).

    - numbers: of a mask's products with them; as many more of each task are held in memory.
    - chunk: how many tasks to run together.
    """

    def __init__(self, backbone: Backbone, bank: MaskBank, inputs: Tensor, numbers: int) -> None:
        self.chunk = max(1, min(MAX_CHUNK, CHUNK_BYTES // (4 * numbers)))
        flat = inputs.to(backbone.device, backbone.input_dtype).flatten(1)
        one = torch.ones(1, dtype=torch.float32, device=backbone.device)
        self._products: list[Tensor] = []
        self._biases: list[Tensor | None] = []
        for place, layer in enumerate(bank.layers):
            frozen = backbone.weights[layer.name]
            products = [mix(bits[None], one, frozen) for bits in bank.bits(place)]
            # The network's own weights come last: residual tasks have a coefficient for these too.
            products.append(frozen)
            if place == 0:
                products = [weights @ flat.t() for weights in products]
            self._products.append(torch.stack(products))
            name = layer.name.removesuffix("weight") + "bias"
            self._biases.append(dict(backbone.module.named_parameters()).get(name))

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
        return cls(backbone, bank, inputs, numbers) if fits and 0 < len(bank) <= count else None

    def logits(self, tasks: Sequence[Coefficients]) -> Tensor:
        """(C, n, outputs)."""
        hidden = torch.empty(0)
        for place, products in enumerate(self._products):
            alphas = coefficients_of(tasks, place, len(products), products[0])
            if alphas.dim() == 2:
                mixed = (alphas @ products.flatten(1)).unflatten(1, products.shape[1:])
            else:  # Σ_t α_ctu P_tuk, a matrix product for each unit u
                mixed = torch.bmm(alphas.permute(2, 0, 1), products.transpose(0, 1)).transpose(0, 1)
            outputs = mixed.transpose(1, 2)
            hidden = outputs if place == 0 else hidden.relu() @ outputs
            if self._biases[place] is not None:
                hidden = hidden + self._biases[place]
        return hidden


def coefficients_of(
    tasks: Sequence[Coefficients], place: int, depth: int, weights: Tensor
) -> Tensor:
    """(C, depth) of one layer, or (C, depth, units) where a task has numbers per unit.

    Zero for masks that a task was learned without; the last one is 1 for a residual task.

    - weights: (units, ...) of the layer.
    """
    by_unit = any(task.alpha[place].dim() == 2 or task.output_scale for task in tasks)
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
