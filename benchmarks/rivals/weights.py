"""Methods with few numbers per task: mixed random weights or changes, pruned weights, BitFit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from benchmarks.rivals.adapters import adapter
from impresslearn.coefficients.quantisation import Grid, TensorLayout, best_steps, rounded_tensors
from impresslearn.errors import InputError
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.methods.finetuning import SCALE, FineTuning, rounded_numbers
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.networks.layers import TUNED, MaskableLayer
from impresslearn.training.loop import Recipe, Trainable, Weights

# After these shares of the training steps, pruning ends and rounding starts.
PRUNED_BY, ROUNDED_FROM = 0.5, 0.7
NOLA_RANK = 16
TIMES = 50  # how often pruning and the choice of rounding steps are repeated in a run


def pranc(backbone: Backbone, *, bases: int = 300, seed: int = 0, **settings: Any) -> FineTuning:
    """A network for every task as a linear combination of random networks.

    - bases: k, the number of random networks, drawn as in He et al. (2015) and held in float32 (k =
      1,000 on LeNet-300-100: 1.06 GB). Of the frozen network only biases and norms are used
    - settings: precision and largest as in `_coefficients`, and settings of `FineTuning`

    Source: Nooralinejad et al. 2023.
    """
    draws, networks = torch.Generator().manual_seed(seed), []
    start = _normal((bases,), bases**-0.5, draws)
    for layer in backbone.layers:
        drawn = _normal((bases, layer.numel), math.sqrt(2 / layer.fan_in), draws)
        networks.append(drawn.to(backbone.device))

    def weights(values: Sequence[Tensor]) -> Weights:
        return _named(backbone.layers, [values[0] @ drawn for drawn in networks])

    return _coefficients(backbone, [start], weights, seed, **settings)


def nola(backbone: Backbone, *, bases: int = 64, seed: int = 0, **settings: Any) -> FineTuning:
    """Changes A B of rank 16 for every task; A and B are combinations of seeded random factors.

    The rank costs no bytes. The kernel of a convolution counts as a matrix (units, fan-in).

    - bases: k, the number of random factors for A and for B: a task has 2 k numbers per layer
    - settings: as in `pranc`

    Source: Koohpayegani et al. 2024.
    """
    layers = backbone.layers
    draws, factors = torch.Generator().manual_seed(seed), []
    for layer in layers:
        # With this scale, a product of two factors is as large as a weight of variance 1 / fan-in.
        scale = (NOLA_RANK * layer.fan_in) ** -0.25
        for side in ((layer.units, NOLA_RANK), (NOLA_RANK, layer.fan_in)):
            factors.append(_normal((bases, *side), scale, draws).to(backbone.device))
    start = []
    for row in _normal((len(layers), bases), bases**-0.5, draws):
        # With one factor at zero, a task starts from the frozen network.
        start += [row, torch.zeros_like(row)]

    def weights(values: Sequence[Tensor]) -> Weights:
        sides = [torch.tensordot(v, f, 1) for v, f in zip(values, factors, strict=True)]
        pairs = zip(sides[::2], sides[1::2], strict=True)
        changes = _named(layers, [left @ right for left, right in pairs])
        return {name: backbone.weights[name] + change for name, change in changes.items()}

    return _coefficients(backbone, start, weights, seed, **settings)


def share(
    backbone: Backbone,
    *,
    earlier: Sequence[Any],
    recipe: Recipe,
    lora_lr: float = 0.003,
    count: int = 16,
    rank: int = 4,
    precision: str = "float32",
    largest: int | None = None,
    seed: int = 0,
    **settings: Any,
) -> FineTuning:
    """Changes for every task in the main directions of LoRA's changes for earlier tasks.

    The directions are fixed: to merge new ones, as in the paper, would change earlier tasks.

    - earlier: the data of the earlier tasks, which LoRA learns with learning rate lora_lr
    - count: k, the number of main directions of a layer's outputs, and of its inputs. A task has
      two matrices (k, rank) of coefficients per layer, one of which starts at zero
    - precision, largest: as in `_coefficients`
    - settings: settings of `FineTuning`

    Source: Kaushik et al. 2026, arXiv 2602.06043.
    """
    slow, directions = recipe.changed({"lr": lora_lr}), {}
    lora = adapter(backbone, rank=rank, recipe=slow, seed=seed, **settings)
    for number, data in enumerate(earlier):
        lora.learn_task(str(number), data)
    draws, start = torch.Generator().manual_seed(seed), []
    for name, frozen in backbone.weights.items():
        views = [view for view in lora._views.values() if name in view.weights]
        if views:
            changes = [(view.weights[name] - frozen).flatten(1) for view in views]
            outputs, inputs = directions[name] = _main_directions(changes, rank, count)
            start.append(torch.zeros(outputs.shape[1], rank))
            start.append(_normal((inputs.shape[1], rank), inputs.shape[1] ** -0.5, draws))

    def weights(values: Sequence[Tensor]) -> Weights:
        changed = {}
        pairs = zip(directions.items(), values[::2], values[1::2], strict=True)
        for (name, (outputs, inputs)), left, right in pairs:
            change = SCALE * (outputs @ left) @ (inputs @ right).t()
            changed[name] = backbone.weights[name] + change.reshape_as(backbone.weights[name])
        return changed

    settings |= {"recipe": recipe, "precision": precision, "largest": largest}
    method = _coefficients(backbone, start, weights, seed, **settings)
    method.shared_bytes = sum(each.nbytes for each in chain.from_iterable(directions.values()))
    return method


def _main_directions(changes: Sequence[Tensor], rank: int, count: int) -> list[Tensor]:
    """The main directions of the outputs and inputs of changes (units, fan-in), of rank `rank`."""
    sides: tuple[list[Tensor], list[Tensor]] = [], []
    for change in changes:
        left, sizes, right = torch.linalg.svd(change, full_matrices=False)
        roots = sizes[:rank].sqrt()
        sides[0].append(left[:, :rank] * roots)
        sides[1].append(right[:rank].t() * roots)
    bases = [torch.linalg.svd(torch.cat(side, 1), full_matrices=False)[0] for side in sides]
    return [directions[:, :count] for directions in bases]


def _coefficients(
    backbone: Backbone,
    start: Sequence[Tensor],
    weights_of: Callable[[Sequence[Tensor]], Weights],
    seed: int = 0,
    precision: str = "float32",
    largest: int | None = None,
    **settings: Any,
) -> FineTuning:
    """Trains numbers for every task, from `start`; `weights_of` makes weights from them.

    - precision: the numbers are rounded to it after training
    - largest: the largest integer with precision "coded", 7 by default
    """

    def make_trainable(_: int) -> Trainable:
        return rounded_numbers(start, weights_of, backbone.device, precision, largest=largest)

    settings |= {"precision": precision, "seed": seed}
    return FineTuning(backbone, make_trainable=make_trainable, **settings)


def _named(layers: Sequence[MaskableLayer], matrices: Sequence[Tensor]) -> Weights:
    """Matrices of all layers as weights, by layer name and in the layer's shape."""
    pairs = zip(layers, matrices, strict=True)
    return {layer.name: matrix.reshape(layer.shape) for layer, matrix in pairs}


def _normal(shape: tuple[int, ...], deviation: float, draws: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=draws).mul_(deviation)


def bitfit(backbone: Backbone, **settings: Any) -> FineTuning:
    """Trains changes of biases and norms, and a head, for every task; other weights stay frozen.

    - settings: as in `_coefficients`

    Raises InputError for a network without biases and norms. Source: Ben Zaken et al. 2022.
    """
    trained = {}
    # BitFit trains only biases, but convolutional networks have theirs in norms.
    for group in check_backbone(backbone).small_parameters(TUNED):
        for parameter in group:
            trained[parameter.name] = backbone.small[parameter.name]
    if not trained:
        raise InputError(f"{backbone.name} has no biases and norms to tune")
    # If tasks share the head (the last maskable layer), each task needs a copy of it.
    if backbone.own_head is None:
        name = backbone.layers[-1].name
        trained[name] = backbone.weights[name]
        bias = f"{name.removesuffix('weight')}bias"
        if bias in backbone.small:
            trained[bias] = backbone.small[bias]

    def weights_of(changes: Sequence[Tensor]) -> Weights:
        pairs = zip(trained.items(), changes, strict=True)
        return {name: start + change for (name, start), change in pairs}

    start = [torch.zeros_like(values) for values in trained.values()]
    return _coefficients(backbone, start, weights_of, **settings)


def pruned(
    backbone: Backbone, *, recipe: Recipe, sparsity: float = 0.95, largest: int = 3, **settings: Any
) -> FineTuning:
    """Trains all weights for every task and keeps the largest, rounded and coded.

    - sparsity: the share of zeros, allocated to layers by Erdős-Rényi as for trained masks
    - largest: a weight is one of 2 largest + 1 multiples of its layer's step
    - recipe, settings: as in `FineTuning`

    Source: Zhu and Gupta 2017 for gradual pruning; Han et al. 2016 (deep compression) for integer
    multiples of a step, which are entropy-coded with their positions and signs.
    """
    ones = tuple(ones_per_layer(check_backbone(backbone).layers, sparsity, "erdos_renyi"))

    def make_trainable(examples: int) -> Trainable:
        pruning = _Pruning(backbone, ones, largest, recipe.total_steps(examples))
        return Trainable(pruning.weights, pruning.next, pruning.result)

    settings |= {"recipe": recipe, "precision": "coded"}
    return FineTuning(backbone, make_trainable=make_trainable, **settings)


class _Pruning:
    """Copies of all weights that are trained, their masks, and their rounding steps."""

    def __init__(self, backbone: Backbone, ones: tuple[int, ...], largest: int, steps: int) -> None:
        self._layers, self._ones, self._largest = backbone.layers, ones, largest
        self._every = max(1, steps // TIMES)
        self._pruned_by = max(1, int(PRUNED_BY * steps))
        self._rounded_from = int(ROUNDED_FROM * steps)
        self._done = 0
        self._grids: list[Grid] = []
        self.weights: list[Tensor] = []
        for layer in self._layers:
            self.weights.append(backbone.weights[layer.name].clone().requires_grad_(True))
        self._masks = [torch.ones_like(weight) for weight in self.weights]

    def next(self) -> tuple[Weights, float]:
        """The weights of the next step."""
        if self._done % self._every == 0:
            if self._done < self._pruned_by + self._every:
                self._prune(min(1.0, self._done / self._pruned_by))
            if self._done >= self._rounded_from:
                self._choose_grids()
        self._done += 1
        weights = self._left()
        for number, grid in enumerate(self._grids):
            weight = weights[number]
            # Straight-through: the gradient is as if the weight were not rounded.
            weights[number] = weight + (self._rounded(weight, grid) - weight).detach()
        return _named(self._layers, weights), 0.0

    def result(self) -> tuple[Weights, int]:
        """The rounded weights, and their bytes."""
        self._prune(1.0)
        self._choose_grids()
        matrices, layouts = [], []
        for weight, grid, layer in zip(self._left(), self._grids, self._layers, strict=True):
            matrices.append(self._rounded(weight, grid).reshape(layer.units, -1))
            layouts.append(TensorLayout(layer.name, (layer.units, layer.fan_in), sparse=True))
        kept, size = rounded_tensors(matrices, "coded", layouts, grids=self._grids)
        return _named(self._layers, kept), size

    @torch.no_grad()
    def _prune(self, progress: float) -> None:
        """Masks the weights of least magnitude, most of them early. progress: from 0 to 1."""
        for weight, mask, ones in zip(self.weights, self._masks, self._ones, strict=True):
            magnitude = (weight * mask).abs().flatten()
            left = ones + round((len(magnitude) - ones) * (1 - progress) ** 3)
            mask.zero_().view(-1)[magnitude.topk(left, sorted=False).indices] = 1

    @torch.no_grad()
    def _choose_grids(self) -> None:
        self._grids = []
        for weight in self._left():
            values = weight[weight != 0].cpu().float().numpy().reshape(-1, 1)
            step = float(best_steps(values, self._largest)[0]) if len(values) else 1.0
            self._grids.append(Grid(step, 0.0))

    def _left(self) -> list[Tensor]:
        return [weight * mask for weight, mask in zip(self.weights, self._masks, strict=True)]

    def _rounded(self, values: Tensor, grid: Grid) -> Tensor:
        return grid.step * (values / grid.step).round().clamp(-self._largest, self._largest)
