"""Weights as linear combinations of seeded random ones: PRANC and NOLA.

PRANC (Nooralinejad et al. 2023) makes a network out of k random networks, and keeps k numbers.
NOLA (Koohpayegani et al. 2024) adds A B to a frozen weight, where A and B of rank r are each made
out of k random factors. Random numbers are redrawn from the seed and cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from typing_extensions import Unpack

from impresslearn.coefficients.quantisation import rounded_tensors
from impresslearn.methods.finetuning import LENGTH, FineTuning, TrainingSettings
from impresslearn.networks import Backbone
from impresslearn.training.loop import Recipe, Trainable, Weights

# Adam at the best rate on held-out images of one task of permuted MNIST, numbers coded: of 0.003,
# 0.01 and 0.03 after one epoch for PRANC (k = 300), those and 0.1 after three for NOLA (k = 200).
PRANC_RECIPE = Recipe(lr=0.03, schedule="cosine", **LENGTH)
NOLA_RECIPE = Recipe(lr=0.01, schedule="cosine", **LENGTH)


def pranc(
    backbone: Backbone,
    *,
    bases: int = 300,
    precision: str = "float32",
    largest: int | None = None,
    seed: int = 0,
    **settings: Unpack[TrainingSettings],
) -> FineTuning:
    """A network for every task as a linear combination of random networks (PRANC).

    - bases: how many networks, k, each drawn as He et al. (2015) do and held in float32 (k = 1,000
      on LeNet-300-100: 1.06 GB). The frozen weights are not used; biases and norms are
    - precision: the k coefficients are rounded to it after training
    - largest: the largest integer under precision "coded", 7 by default
    - settings: of `FineTuning`
    """
    layers = backbone.layers
    networks: list[Tensor] = []

    def make_trainable(examples: int) -> Trainable:
        draws = torch.Generator().manual_seed(seed)
        start = _normal((bases,), bases**-0.5, draws).to(backbone.device)
        if not networks:
            for layer in layers:
                drawn = _normal((bases, layer.numel), math.sqrt(2 / layer.fan_in), draws)
                networks.append(drawn.to(backbone.device))

        def weights(values: Sequence[Tensor]) -> Weights:
            mixed = {}
            for layer, drawn in zip(layers, networks, strict=True):
                mixed[layer.name] = (values[0] @ drawn).reshape(layer.shape)
            return mixed

        return _coefficients([start], weights, precision, largest)

    settings.setdefault("recipe", PRANC_RECIPE)
    settings["seed"] = seed
    return FineTuning(
        backbone, make_trainable=make_trainable, role="learned", precision=precision, **settings
    )


def nola(
    backbone: Backbone,
    *,
    bases: int = 64,
    rank: int = 16,
    precision: str = "float32",
    largest: int | None = None,
    seed: int = 0,
    **settings: Unpack[TrainingSettings],
) -> FineTuning:
    """The frozen network and, for every task, low-rank changes of seeded random factors (NOLA).

    - bases: k, of each factor of each layer, so that a task has 2 k numbers per layer
    - rank: r, which costs no bytes; a convolution's kernels are a matrix (units, fan-in)
    - precision, largest: as of `pranc`
    - settings: of `FineTuning`
    """
    layers = backbone.layers
    draws, factors = torch.Generator().manual_seed(seed), []
    for layer in layers:
        scale = (rank * layer.fan_in) ** -0.25  # of each side
        for side in ((layer.units, rank), (rank, layer.fan_in)):
            factors.append(_normal((bases, *side), scale, draws).to(backbone.device))
    first = _normal((len(layers), bases), bases**-0.5, draws).to(backbone.device)

    def make_trainable(examples: int) -> Trainable:
        def weights(values: Sequence[Tensor]) -> Weights:
            changed = {}
            sides = [torch.tensordot(v, f, 1) for v, f in zip(values, factors, strict=True)]
            for layer, left, right in zip(layers, sides[::2], sides[1::2], strict=True):
                frozen = backbone.weights[layer.name]
                changed[layer.name] = frozen + (left @ right).reshape(layer.shape)
            return changed

        start = []
        for row in first:  # the change starts at zero
            start += [row.clone(), torch.zeros_like(row)]
        return _coefficients(start, weights, precision, largest)

    settings.setdefault("recipe", NOLA_RECIPE)
    settings["seed"] = seed
    return FineTuning(
        backbone, make_trainable=make_trainable, role="learned", precision=precision, **settings
    )


def _coefficients(
    start: Sequence[Tensor],
    weights_of: Callable[[Sequence[Tensor]], Weights],
    precision: str,
    largest: int | None,
) -> Trainable:
    """Vectors to train from here, and the weights that they make; kept in this precision."""
    values = [vector.requires_grad_(True) for vector in start]

    def result() -> tuple[Weights, int]:
        rounded, size = rounded_tensors(values, precision, [False] * len(values), largest=largest)
        return weights_of(rounded), size

    return Trainable(values, lambda: (weights_of(values), 0.0), result)


def _normal(shape: tuple[int, ...], deviation: float, draws: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=draws).mul_(deviation)
