"""Masks by iterative magnitude pruning (Frankle & Carbin 2019), the other source the paper names.

The whole network is trained on a task, the smallest weights are pruned, the survivors go back to
their first values, and so on until the asked number of ones is left. The mask is then applied to
the frozen, untrained backbone like any other.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from impresslearn.data import BatchSource
from impresslearn.errors import InputError
from impresslearn.masks.edge_popup import top_mask
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TrainingPhase
from impresslearn.optimisation.loop import Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy
from impresslearn.optimisation.progress import Progress, silent

PRUNING_RECIPE = Recipe(optimizer="adam", lr=0.001, schedule="cosine", epochs=1, min_steps=100)


def prune_mask(
    backbone: Backbone,
    source: BatchSource,
    num_classes: int,
    ones: Sequence[int],
    rounds: int = 4,
    recipe: Recipe = PRUNING_RECIPE,
    seed: int = 0,
    phase: TrainingPhase | None = None,
    progress: Progress = silent,
) -> dict[str, Tensor]:
    """A mask of exactly `ones` ones a layer: layer name -> booleans.

    Each of the `rounds` trains with `recipe` and keeps the same share of what is left, so that
    the last one ends at `ones`.
    """
    if rounds < 1:
        raise InputError(f"pruning needs at least one round, got {rounds}")
    phase = phase or TrainingPhase.begin(backbone)
    mask = {
        layer.name: torch.ones(layer.shape, dtype=torch.bool, device=backbone.device)
        for layer in backbone.layers
    }
    for number in range(1, rounds + 1):
        trained = _train_masked(backbone, source, num_classes, mask, recipe, seed, phase, progress)
        for layer, count in zip(backbone.layers, ones, strict=True):
            keep = round(layer.numel * (count / layer.numel) ** (number / rounds))
            keep = count if number == rounds else keep
            # Pruned weights rank below every survivor, also below one that trained to zero.
            ranked = torch.where(mask[layer.name], trained[layer.name].abs(), -1.0)
            mask[layer.name] = top_mask(ranked, keep)
    return mask


def _train_masked(
    backbone: Backbone,
    source: BatchSource,
    num_classes: int,
    mask: dict[str, Tensor],
    recipe: Recipe,
    seed: int,
    phase: TrainingPhase,
    progress: Progress,
) -> dict[str, Tensor]:
    weights = {name: value.clone().requires_grad_(True) for name, value in backbone.weights.items()}

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        masked = {name: weight * mask[name] for name, weight in weights.items()}
        logits = phase.forward(backbone, masked, inputs)[:, :num_classes]
        return cross_entropy(logits, targets, recipe.label_smoothing)

    fit(list(weights.values()), loss, source, recipe, seed, progress)
    return {name: weight.detach() for name, weight in weights.items()}
