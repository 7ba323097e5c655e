"""The logits of many tasks on the same inputs, computed together as far as they share something.

A mixed layer is linear in its coefficients: x (W ⊙ Σ_t α_t M^t)ᵀ = Σ_t α_t x (W ⊙ M^t)ᵀ. In the
first layer of a multilayer perceptron x is the same for all tasks. So x (W ⊙ M^t)ᵀ is computed once
per mask, and each task sums N products per output instead of mixing weights. Later
layers are mixed for a chunk of tasks by one matrix product. LeNet-300-100 with 20 masks, one
thread, 8 inputs: 30 / 100 / 300 / 1,000 / 3,000 tasks take 0.01 / 0.02 / 0.04 / 0.08 / 0.34 s.

Tasks that bring nothing but a head read the same features, which are computed once. The rest are
run one after the other. Tasks are read when their turn comes, so memory does not grow with their
number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from impresslearn.data import Inputs
from impresslearn.errors import InputError
from impresslearn.inference.unknown import InputStatistics, TaskProfile
from impresslearn.kernels import mix, unpack
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.architectures import LeNet
from impresslearn.networks.prediction import TaskView

ELEMENTWISE = (
    nn.ReLU, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Identity
)  # fmt: skip
CHUNK_BYTES = 32 * 2**20
"""Limit on the bytes of tasks that wait to be run together, and of their computation."""
MAX_CHUNK = 512
SHARED_BYTES = 48 * 2**20
"""Limit on the bytes of each of the two caches of products per mask."""


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

    @property
    def num_masks(self) -> int:
        return len(self.alpha[0])

    @property
    def by_unit(self) -> bool:
        return self.alpha[0].dim() == 2


@dataclass(frozen=True)
class KnownTask:
    """A task that inputs may belong to, read and unpacked only when it is needed.

    - name: the task's name.
    - num_classes: the number of its classes.
    - view: makes it ready to compute.
    - profile: what its own inputs look like, None if nothing is known.
    - mixture: gives it as a mixture of masks, or None if it is none.
    - is_mixture: whether it mixes masks; otherwise it is run by its view.
    """

    name: str
    num_classes: int
    view: Callable[[], TaskView]
    profile: TaskProfile | None
    mixture: Callable[[], Mixture | None] = lambda: None
    is_mixture: bool = True

    @property
    def statistics(self) -> InputStatistics | None:
        """What is known of its inputs."""
        return None if self.profile is None else self.profile.inputs


class Outputs(NamedTuple):
    """The logits of some tasks: their positions, the tasks, and logits (C, n, K)."""

    positions: list[int]
    tasks: list[KnownTask]
    logits: Tensor


def outputs_of_tasks(
    backbone: Backbone, bank: MaskBank, tasks: Collection[KnownTask], inputs: Tensor | Inputs
) -> Iterator[Outputs]:
    """The logits of all tasks, in chunks of tasks with equal numbers of classes, in any order.

    Equal up to rounding to the logits of each task's view. Raises InputError for logits that are
    not finite.
    """
    for outputs in _outputs(backbone, bank, tasks, inputs):
        if not torch.isfinite(outputs.logits).all():
            raise InputError(
                "the outputs of the network are NaN or infinite; check the scale of the inputs"
            )
        yield outputs


def _outputs(
    backbone: Backbone, bank: MaskBank, tasks: Collection[KnownTask], inputs: Tensor | Inputs
) -> Iterator[Outputs]:
    perceptron = None
    if len(tasks) > 1 and Perceptron.fits(backbone, inputs):
        perceptron = Perceptron(backbone, bank, inputs, len(tasks))
    shared = SharedFeatures(backbone, inputs)
    waiting: dict[tuple[Any, ...], list[tuple[int, KnownTask, Mixture]]] = {}
    bytes_per_task: dict[tuple[Any, ...], int] = {}

    def run(kind: tuple[Any, ...]) -> Outputs:
        positions, members, mixtures = zip(*waiting.pop(kind), strict=True)
        assert perceptron is not None
        num_classes = kind[0]
        logits = perceptron.logits(mixtures)[:, :, :num_classes]
        return Outputs(list(positions), list(members), logits)

    for position, task in enumerate(tasks):
        mixture = task.mixture() if perceptron and task.is_mixture else None
        if perceptron is None or mixture is None:
            yield Outputs([position], [task], shared.logits(task.view())[None])
            continue
        # Tasks that have all of these in common are run together.
        scaled = mixture.output_scale is not None
        kind = task.num_classes, mixture.residual, scaled, mixture.by_unit, mixture.num_masks
        bytes_per_task[kind] = perceptron.bytes_of(mixture)
        waiting.setdefault(kind, []).append((position, task, mixture))
        if len(waiting[kind]) >= MAX_CHUNK:
            yield run(kind)
        sizes = {kind: len(chunk) * bytes_per_task[kind] for kind, chunk in waiting.items()}
        while sum(sizes.values()) >= CHUNK_BYTES:
            largest = max(sizes, key=sizes.__getitem__)
            del sizes[largest]
            yield run(largest)
    for kind in list(waiting):
        yield run(kind)


class SharedFeatures:
    """Logits of tasks in turn; features that several tasks read are computed once."""

    def __init__(self, backbone: Backbone, inputs: Tensor | Inputs) -> None:
        self._backbone, self._inputs = backbone, inputs
        self._features: dict[Hashable, Tensor | None] = {}

    @torch.no_grad()
    def logits(self, view: TaskView) -> Tensor:
        """(n, K), as `TaskView.outputs`."""
        if view.feature_keys is None:
            return view.outputs(self._backbone, self._inputs)
        networks = zip(view.feature_keys, (view.weights, *view.others), strict=True)
        parts = [self._of_network(view, key, weights) for key, weights in networks]
        return torch.stack(parts).sum(dim=0)[:, : view.num_classes]

    def _of_network(self, view: TaskView, key: Hashable, weights: dict[str, Tensor]) -> Tensor:
        features = self._features.get(key)
        if features is not None:
            return self._headed(features, weights)
        single = TaskView(weights, view.statistics, view.num_classes, view.mode)
        outputs = single.outputs(self._backbone, self._inputs)
        if key not in self._features:
            # Most features serve one task only: they are kept when a second task needs them.
            self._features[key] = None
            return outputs
        features = single.features(self._backbone, self._inputs)
        # Where the logits differ, the network changes them after the head: keep no features then.
        if torch.allclose(self._headed(features, weights), outputs, rtol=1e-3, atol=1e-4):
            self._features[key] = features
        return outputs

    def _headed(self, features: Tensor, weights: dict[str, Tensor]) -> Tensor:
        head = self._backbone.own_head
        assert head is not None
        weight, *bias = (weights[name] for name in head.shapes)
        return F.linear(features, weight.flatten(1), *bias)


class Perceptron:
    """A network of linear layers in a row, run for many mixtures on the same inputs (n, ...).

    - count: how many tasks there are, which decides what is worth sharing.
    """

    def __init__(
        self, backbone: Backbone, bank: MaskBank, inputs: Tensor | Inputs, count: int
    ) -> None:
        assert isinstance(inputs, Tensor)
        backbone.check_inputs(inputs)
        self._backbone, self._bank, self._count = backbone, bank, count
        self._inputs = inputs.to(backbone.device, backbone.input_dtype).flatten(1)
        self._steps = _steps(backbone.module)
        self._widest = 0
        for step in self._steps.values():
            if isinstance(step, nn.Linear):
                self._widest = max(self._widest, step.in_features, step.out_features)
        self._places = {layer.name: place for place, layer in enumerate(bank.layers)}
        self._products: dict[tuple[str, bool], Tensor] = {}

    @staticmethod
    def fits(backbone: Backbone, inputs: Tensor | Inputs) -> bool:
        """Whether the network is such a row, of float32 weights, and takes these inputs."""
        module, shape = backbone.module, backbone.input_shape
        if type(module) not in (nn.Sequential, LeNet) or backbone.own_head is not None:
            return False
        steps = list(_steps(module).values())
        width = None
        for step in (module, *steps):
            if step._forward_hooks or step._forward_pre_hooks:
                return False
        for step in steps:
            if type(step) is nn.Linear:
                if width not in (None, step.in_features):
                    return False
                width = step.out_features
            elif type(step) not in ELEMENTWISE or width is None:
                return False  # another first step may change the inputs in place
        parameters = [parameter for _, parameter in module.named_parameters(remove_duplicate=False)]
        if len(set(map(id, parameters))) < len(parameters):
            return False  # tied layers
        if shape is None or len(shape) != 1 or not isinstance(inputs, Tensor):
            return False
        is_float32 = backbone.dtype == backbone.input_dtype == torch.float32
        return is_float32 and bool(steps) and inputs[:1].numel() == steps[0].in_features

    def bytes_of(self, task: Mixture) -> int:
        """Bytes that a task of a chunk takes while it waits and is run."""
        layers = self._bank.layers
        mixed = layers[1:] if self._sums_products(layers[0].name, task.num_masks) else layers
        alphas = task.num_masks * sum(layer.units if task.by_unit else 1 for layer in layers)
        hidden = 3 * len(self._inputs) * self._widest
        return 4 * (hidden + 2 * alphas + 2 * sum(layer.numel for layer in mixed))

    @torch.no_grad()
    def logits(self, tasks: Sequence[Mixture]) -> Tensor:
        """(C, n, outputs) of tasks of one kind."""
        hidden = self._inputs
        for name, step in self._steps.items():
            if not isinstance(step, nn.Linear):
                hidden = step(hidden)
            elif name not in self._places:
                hidden = F.linear(hidden, step.weight, step.bias)
            else:
                place = self._places[name]
                alphas = pad_sequence([task.alpha[place] for task in tasks], batch_first=True)
                hidden = self._layer(name, hidden, alphas, tasks[0].residual)
                if tasks[0].output_scale is not None:
                    scales = [task.output_scale[place] for task in tasks if task.output_scale]
                    hidden = hidden * torch.stack(scales)[:, None]
                if step.bias is not None:
                    hidden = hidden + step.bias
        return hidden if hidden.dim() == 3 else hidden.expand(len(tasks), -1, -1)

    def _layer(self, name: str, inputs: Tensor, alphas: Tensor, residual: bool) -> Tensor:
        """(C, n, units) of inputs (n, f), or (C, n, f), by alphas (C, N) or (C, N, units)."""
        frozen, depth = self._backbone.weights[name], alphas.shape[1]
        if self._sums_products(name, depth):
            outputs = _combined(alphas, self._shared(name, depth, inputs)).transpose(1, 2)
            return outputs + F.linear(inputs, frozen) if residual else outputs
        if depth * frozen.numel() * 4 <= SHARED_BYTES / len(self._places):
            weights = _combined(alphas, self._shared(name, depth, inputs))
        else:
            bits = self._bank.bits(self._places[name], depth)
            weights = torch.stack([mix(bits, alpha, frozen) for alpha in alphas])
        if residual:
            weights = weights + frozen
        return torch.matmul(inputs, weights.transpose(1, 2))

    def _sums_products(self, name: str, depth: int) -> bool:
        """Whether the layer's outputs under each mask are computed once, and combined."""
        first = self._bank.layers[0]
        size = 4 * depth * len(self._inputs) * first.units
        return name == first.name and depth <= self._count and size <= SHARED_BYTES

    def _shared(self, name: str, depth: int, inputs: Tensor) -> Tensor:
        """Of each mask: W ⊙ M, (N, units, fan_in), or x (W ⊙ M)ᵀ as (N, units, n)."""
        key = name, self._sums_products(name, depth)
        products = self._products.get(key)
        if products is not None and len(products) >= depth:
            return products[:depth]
        bits, frozen = self._bank.bits(self._places[name], depth), self._backbone.weights[name]
        parts = []
        for mask in bits:
            if key[1]:
                alone = mix(mask[None], torch.ones(1, device=frozen.device), frozen)
                parts.append(alone @ inputs.t())
            else:
                parts.append(unpack(mask, frozen.shape[1]) * frozen)
        self._products[key] = torch.stack(parts)
        return self._products[key]


def _steps(module: nn.Module) -> dict[str, nn.Module]:
    """The modules of a row in order, by the names that their weights would have."""
    return {f"{name}.weight": step for name, step in module._modules.items() if step is not None}


def _combined(alphas: Tensor, products: Tensor) -> Tensor:
    """Σ_t α_ct P_t: alphas (C, N) or (C, N, units), products (N, units, k), to (C, units, k)."""
    if alphas.dim() == 2:
        return (alphas @ products.flatten(1)).unflatten(1, products.shape[1:])
    by_unit = torch.bmm(alphas.permute(2, 0, 1), products.transpose(0, 1))
    return by_unit.transpose(0, 1)
