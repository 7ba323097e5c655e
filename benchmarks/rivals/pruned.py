"""A magnitude-pruned network for every task: few weights, each a small whole number.

All weights are trained, and while they are, those of least magnitude are taken away bit by bit
(Zhu and Gupta 2017). What remains is trained on as whole multiples of one step a layer, as in deep
compression (Han et al. 2016), and entropy-coded with its positions and signs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Unpack

from impresslearn.checks import check_integer
from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.quantisation import Grid, best_steps, rounded_tensors
from impresslearn.masks.sparsity import Allocation, check_sparsity, ones_per_layer
from impresslearn.methods.finetuning import LENGTH, FineTuning, TrainingSettings
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.training.loop import Recipe, Trainable, Weights

PRUNED_RECIPE = Recipe(lr=0.003, schedule="cosine", **LENGTH)
"""On one task of permuted MNIST, five epochs, held-out images: better than 0.001 at sparsity 0.95
(97.7 against 96.8%), level with 0.01 at 0.98."""
PRUNED_BY, ROUNDED_FROM = 0.5, 0.7
"""The shares of the steps after which all are pruned, and from which on weights are rounded."""
TIMES = 50
"""How often weights are pruned, and steps of rounding chosen, in a run of so many steps or more."""


def pruned(
    backbone: Backbone,
    *,
    sparsity: float = 0.95,
    allocation: Allocation = "erdos_renyi",
    largest: int = 3,
    **settings: Unpack[TrainingSettings],
) -> FineTuning:
    """Trains all weights for every task and keeps those of greatest magnitude, rounded and coded.

    Pruned step by step (Zhu and Gupta 2017) and coded as in deep compression (Han et al. 2016).
    sparsity: the fraction of weights that are zero in the end; allocation: how zeros are shared out
    among layers, as of `ones_per_layer`; largest: the largest whole number, so that a weight is one
    of 2 largest + 1 multiples of its layer's step. bytes: those of one matrix of whole numbers a
    layer as `coding` writes it (positions by classes of rows and columns, signs, sizes), and of the
    steps; norm statistics are coded too. The other settings are those of `FineTuning`, whose remark
    on backbones holds. Raises InputError for settings out of range.
    """
    ones = ones_per_layer(check_backbone(backbone).layers, check_sparsity(sparsity), allocation)
    largest = check_integer("largest", largest, 1, LARGEST + 1)
    recipe = settings.setdefault("recipe", PRUNED_RECIPE)

    def trains(examples: int) -> Trainable:
        return _Pruning(backbone, ones, largest, recipe.total_steps(examples)).trainable()

    return FineTuning(
        backbone, **settings, make_trainable=trains, role="learned", precision="coded"
    )


class _Pruning:
    """Copies of all weights under training, their masks and steps; one forward pass a step."""

    def __init__(self, backbone: Backbone, ones: tuple[int, ...], largest: int, steps: int) -> None:
        self._layers, self._ones, self._largest = backbone.layers, ones, largest
        self._every = max(1, steps // TIMES)
        self._pruned_by = max(1, int(PRUNED_BY * steps))
        self._rounded_from = int(ROUNDED_FROM * steps)
        self._done = 0
        self._weights = [
            backbone.weights[layer.name].clone().requires_grad_(True) for layer in self._layers
        ]
        self._masks = [torch.ones_like(weight) for weight in self._weights]
        self._grids: list[Grid] = []

    def trainable(self) -> Trainable:
        return Trainable(self._weights, self._next, self._result)

    def _next(self) -> tuple[Weights, float]:
        """The weights of the next step."""
        if self._done % self._every == 0:
            if self._done < self._pruned_by + self._every:
                self._prune(min(1.0, self._done / self._pruned_by))
            if self._done >= self._rounded_from:
                self._choose_grids()
        self._done += 1
        left = self._left()
        if self._grids:
            pairs = zip(left, self._grids, strict=True)
            left = [each + (self._rounded(each, grid) - each).detach() for each, grid in pairs]
        return self._named(left), 0.0

    def _result(self) -> tuple[Weights, int]:
        self._prune(1.0)
        self._choose_grids()
        matrices = [
            self._rounded(each, grid).reshape(layer.units, -1)
            for each, grid, layer in zip(self._left(), self._grids, self._layers, strict=True)
        ]
        count = len(matrices)
        kept, size = rounded_tensors(
            matrices, "coded", [True] * count, tuple(self._grids), matrices=count
        )
        pairs = zip(kept, self._layers, strict=True)
        return self._named([each.reshape(layer.shape) for each, layer in pairs]), size

    @torch.no_grad()
    def _prune(self, progress: float) -> None:
        """Masks the weights of least magnitude, most of them early; progress: 0 to 1."""
        for weight, mask, ones in zip(self._weights, self._masks, self._ones, strict=True):
            size = (weight * mask).abs().flatten()
            left = ones + round((len(size) - ones) * (1 - progress) ** 3)
            mask.zero_().view(-1)[size.topk(left, sorted=False).indices] = 1

    @torch.no_grad()
    def _choose_grids(self) -> None:
        self._grids = []
        for each in self._left():
            values = each[each != 0].cpu().float().numpy().reshape(-1, 1)
            self._grids.append(
                Grid(float(best_steps(values, self._largest)[0]) if len(values) else 1.0, 0.0)
            )

    def _left(self) -> list[Tensor]:
        return [weight * mask for weight, mask in zip(self._weights, self._masks, strict=True)]

    def _named(self, values: list[Tensor]) -> Weights:
        return {layer.name: each for layer, each in zip(self._layers, values, strict=True)}

    def _rounded(self, values: Tensor, grid: Grid) -> Tensor:
        return grid.step * (values / grid.step).round().clamp(-self._largest, self._largest)
