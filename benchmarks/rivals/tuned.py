"""Weights of a task's own: a pruned network, or the small parameters alone."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Unpack

from impresslearn.coefficients.quantisation import Grid, best_steps, rounded_tensors
from impresslearn.errors import InputError
from impresslearn.masks.sparsity import Allocation, ones_per_layer
from impresslearn.methods.finetuning import (
    LENGTH,
    FineTuning,
    StatisticsOf,
    TrainingSettings,
    copied_weights,
)
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.networks.layers import TUNED
from impresslearn.training.loop import Recipe, Trainable, Weights

# Adam at the best of 0.003, 0.01 and 0.03: 60 steps on a task of CIFAR-100, over a ResNet-20.
BITFIT_RECIPE = Recipe(optimizer="adam", lr=0.03, schedule="cosine", **LENGTH)
# On one task of permuted MNIST, five epochs, held-out images: better than 0.001 at sparsity 0.95
# (97.7 against 96.8%), level with 0.01 at 0.98.
PRUNED_RECIPE = Recipe(lr=0.003, schedule="cosine", **LENGTH)
# The shares of the steps after which all are pruned, and from which on weights are rounded.
PRUNED_BY, ROUNDED_FROM = 0.5, 0.7
TIMES = 50  # how often a run prunes and chooses steps of rounding


def bitfit(
    backbone: Backbone, *, statistics: StatisticsOf = "task", **settings: Unpack[TrainingSettings]
) -> FineTuning:
    """Trains copies of biases and norms and a head for every task; the weights stay frozen.

    After BitFit (Ben Zaken et al. 2022), which has biases alone: convolutional networks have theirs
    in norms. The head is the task's own, or where the network is shared whole a copy of the last
    maskable layer.

    - statistics: of norms, and further settings: as of `FineTuning`

    Raises InputError for a network without biases and norms.
    """
    trained = {}
    for group in check_backbone(backbone).small_parameters(TUNED):
        for parameter in group:
            trained[parameter.name] = backbone.small[parameter.name]
    if not trained:
        raise InputError(f"{backbone.name} has no biases and norms to tune")
    if backbone.own_head is None:
        name = backbone.layers[-1].name
        trained[name] = backbone.weights[name]
        bias = f"{name.removesuffix('weight')}bias"
        if bias in backbone.small:
            trained[bias] = backbone.small[bias]
    settings.setdefault("recipe", BITFIT_RECIPE)
    return FineTuning(
        backbone,
        statistics=statistics,
        make_trainable=lambda _: copied_weights(trained),
        role="learned",
        **settings,
    )


def pruned(
    backbone: Backbone,
    *,
    sparsity: float = 0.95,
    allocation: Allocation = "erdos_renyi",
    largest: int = 3,
    **settings: Unpack[TrainingSettings],
) -> FineTuning:
    """Trains all weights for every task and keeps the largest, rounded and coded.

    While weights are trained, the smallest are taken away bit by bit (Zhu and Gupta
    2017). What remains is trained on as whole multiples of one step per layer, as in deep
    compression (Han et al. 2016), and entropy-coded with its positions and signs.

    - sparsity, allocation: as of trained masks
    - largest: a weight is one of 2 largest + 1 multiples of its layer's step
    - settings: of `FineTuning`
    """
    ones = tuple(ones_per_layer(check_backbone(backbone).layers, sparsity, allocation))
    recipe = settings.setdefault("recipe", PRUNED_RECIPE)

    def make_trainable(examples: int) -> Trainable:
        pruning = _Pruning(backbone, ones, largest, recipe.total_steps(examples))
        return Trainable(pruning.weights, pruning.next, pruning.result)

    return FineTuning(
        backbone, **settings, make_trainable=make_trainable, role="learned", precision="coded"
    )


class _Pruning:
    """Copies of all weights under training, their masks and steps; one forward pass a step."""

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
            # Straight through: the gradient is the weight's, as if it were not rounded.
            weights[number] = weight + (self._rounded(weight, grid) - weight).detach()
        return self._named(weights), 0.0

    def result(self) -> tuple[Weights, int]:
        """The weights that are kept, and their bytes."""
        self._prune(1.0)
        self._choose_grids()
        matrices = []
        for weight, grid, layer in zip(self._left(), self._grids, self._layers, strict=True):
            matrices.append(self._rounded(weight, grid).reshape(layer.units, -1))
        count = len(matrices)
        kept, size = rounded_tensors(
            matrices, "coded", [True] * count, tuple(self._grids), matrices=count
        )
        shaped = [
            weight.reshape(layer.shape) for weight, layer in zip(kept, self._layers, strict=True)
        ]
        return self._named(shaped), size

    @torch.no_grad()
    def _prune(self, progress: float) -> None:
        """Masks the weights of least magnitude, most of them early; progress: 0 to 1."""
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

    def _named(self, values: list[Tensor]) -> Weights:
        return {layer.name: value for layer, value in zip(self._layers, values, strict=True)}

    def _rounded(self, values: Tensor, grid: Grid) -> Tensor:
        return grid.step * (values / grid.step).round().clamp(-self._largest, self._largest)
