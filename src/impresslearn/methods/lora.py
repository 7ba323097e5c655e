"""LoRA (Hu et al. 2022): a change of low rank to every frozen layer, trained per task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from impresslearn.checks import check_integer, check_known, check_seed
from impresslearn.coefficients.quantisation import check_largest, rounded_tensors
from impresslearn.methods.finetuning import LENGTH, FineTuning
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.training.loop import Recipe, Trainable, Weights

# The better of two rates on one task of permuted MNIST; rank 1 prefers 0.03.
LORA_RECIPE = Recipe(lr=0.01, schedule="cosine", **LENGTH)
SCALE = 2.0  # alpha / r, a common choice at any rank


def lora(
    backbone: Backbone,
    *,
    rank: int = 4,
    precision: str = "float32",
    largest: int | None = None,
    **settings: Any,
) -> FineTuning:
    """Trains W + 2 B A for every task, with B (units, r) and A (r, fan_in) for each layer.

    The frozen network is shared, kernels of convolutions count as matrices (units, fan_in), and B
    starts at zero.

    - backbone: the frozen network; every maskable layer gets a change
    - rank: r
    - precision: of the stored factors. They are rounded after training with one step per column
      (one per factor under "coded"), and the rounded factors predict
    - largest: the largest integer under "coded", 7 by default
    - settings: recipe, seed, preprocessing and progress, as in `FineTuning`

    Raises InputError for settings out of range.
    """
    known = ("rank", "precision", "largest", "recipe", "seed", "preprocessing", "progress")
    for name in settings:
        check_known("lora has no argument", name, known)
    rank = check_integer("rank", rank, 1)
    largest = check_largest(largest, precision)
    check_backbone(backbone)
    seed = check_seed(settings.get("seed", 0))
    settings.setdefault("recipe", LORA_RECIPE)

    make_trainable = partial(_trainable, backbone, rank, precision, largest, seed)
    return FineTuning(backbone, make_trainable=make_trainable, precision=precision, **settings)


def _trainable(
    backbone: Backbone, rank: int, precision: str, largest: int | None, seed: int, examples: int
) -> Trainable:
    layers = backbone.layers

    def weights_of(factors: Sequence[Tensor]) -> Weights:
        weights = {}
        for number, layer in enumerate(layers):
            up, down = factors[2 * number : 2 * number + 2]
            change = SCALE * (up @ down.t()).reshape(layer.shape)
            weights[layer.name] = backbone.weights[layer.name] + change
        return weights

    draws = torch.Generator().manual_seed(seed)
    factors = []
    for layer in layers:
        bound = layer.fan_in**-0.5  # as torch initialises a linear layer
        drawn = torch.rand(layer.fan_in, rank, dtype=torch.float32, generator=draws)
        # Only one factor starts at zero: with both at zero neither would have a gradient.
        factors += [torch.zeros(layer.units, rank, dtype=torch.float32), (2 * drawn - 1) * bound]
    factors = [factor.to(backbone.device).requires_grad_(True) for factor in factors]

    def result() -> tuple[Weights, int]:
        rounded, size = rounded_tensors(factors, precision, largest=largest)
        return weights_of(rounded), size

    return Trainable(factors, lambda: (weights_of(factors), 0.0), result)
