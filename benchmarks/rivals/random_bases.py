"""Weights as linear combinations of seeded random ones: PRANC and NOLA.

PRANC (Nooralinejad et al. 2023) makes a network out of k random networks, and keeps k numbers.
NOLA (Koohpayegani et al. 2024) adds A B to a frozen weight, where A and B of rank r are each made
out of k random factors. What is random is redrawn from the seed and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from typing_extensions import Unpack

from impresslearn.checks import check_integer, check_seed
from impresslearn.coefficients.quantisation import check_largest, rounded_tensors
from impresslearn.errors import InputError
from impresslearn.methods.finetuning import LENGTH, FineTuning, TrainingSettings
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import check_backbone
from impresslearn.training.loop import Recipe, Trainable, Weights

PRANC_RECIPE = Recipe(lr=0.03, schedule="cosine", **LENGTH)
NOLA_RECIPE = Recipe(lr=0.01, schedule="cosine", **LENGTH)
"""Adam at the best rate on held-out images of one task of permuted MNIST, numbers coded: of 0.003,
0.01 and 0.03 after one epoch for PRANC (k = 300), those and 0.1 after three for NOLA (k = 200)."""
MOST_BYTES = 8 * 2**30
"""Of PRANC's random networks, which are held while tasks are learned."""


def pranc(
    backbone: Backbone,
    *,
    bases: int = 300,
    precision: str = "float32",
    largest: int | None = None,
    **settings: Unpack[TrainingSettings],
) -> FineTuning:
    """A network for every task as a linear combination of random networks (PRANC).

    Nooralinejad et al. 2023. bases: how many, k. Each is drawn as He et al. (2015) do; the frozen
    weights are not used, but biases and norms of the network are, as by every method here. All k
    networks are held in float32, 4 bytes a number, from the first task on (k = 1,000 on
    LeNet-300-100: 1.06 GB), and read twice a step. precision: what the k coefficients are rounded
    to after training and kept in, largest: the largest of the whole numbers that they are rounded
    to under "coded" (7).
    The other settings are those of `FineTuning`. Raises InputError for settings out of range and
    for bases that take more than 8 GiB.
    """
    count = check_integer("bases", bases, 1)
    largest = check_largest(largest, precision)
    size = 4 * count * check_backbone(backbone).num_maskable
    if size > MOST_BYTES:
        most = MOST_BYTES // (4 * backbone.num_maskable)
        raise InputError(f"{count} bases of {backbone.name} take {size} bytes; take at most {most}")
    settings.setdefault("recipe", PRANC_RECIPE)
    seed, layers = check_seed(settings.get("seed", 0)), backbone.layers
    drawn: list[Tensor] = []

    def trains(examples: int) -> Trainable:
        draws = torch.Generator().manual_seed(seed)
        start = _normal((count,), count**-0.5, draws).to(backbone.device)
        if not drawn:
            deviations = [math.sqrt(2 / layer.fan_in) for layer in layers]
            pairs = zip(layers, deviations, strict=True)
            drawn.extend(
                _normal((count, layer.numel), deviation, draws).to(backbone.device)
                for layer, deviation in pairs
            )

        def weights(values: Sequence[Tensor]) -> Weights:
            (alpha,) = values
            made = zip(layers, drawn, strict=True)
            return {layer.name: (alpha @ basis).reshape(layer.shape) for layer, basis in made}

        return _coefficients([start], weights, precision, largest)

    return FineTuning(
        backbone, **settings, make_trainable=trains, role="learned", precision=precision
    )


def nola(
    backbone: Backbone,
    *,
    bases: int = 64,
    rank: int = 16,
    precision: str = "float32",
    largest: int | None = None,
    **settings: Unpack[TrainingSettings],
) -> FineTuning:
    """The frozen network and, for every task, low-rank changes of seeded random factors (NOLA).

    Koohpayegani et al. 2024. bases: k, of each factor of each layer, so that a task has 2 k numbers
    a layer; rank: r, which costs no bytes. The kernels of a convolution are taken as a matrix
    (units, fan_in). The change starts at zero. precision, largest: as of `pranc`. The other
    settings are those of `FineTuning`. Raises InputError for settings out of range.
    """
    count, rank = check_integer("bases", bases, 1), check_integer("rank", rank, 1)
    largest = check_largest(largest, precision)
    settings.setdefault("recipe", NOLA_RECIPE)
    seed, layers = check_seed(settings.get("seed", 0)), check_backbone(backbone).layers
    draws, factors = torch.Generator().manual_seed(seed), []
    for layer in layers:
        sides = ((layer.units, rank), (rank, layer.fan_in))
        scale = (rank * layer.fan_in) ** -0.25  # of each side
        factors += [_normal((count, *side), scale, draws).to(backbone.device) for side in sides]
    first = _normal((len(layers), count), count**-0.5, draws).to(backbone.device)

    def trains(examples: int) -> Trainable:
        def weights(values: Sequence[Tensor]) -> Weights:
            sides = [torch.tensordot(each, f, 1) for each, f in zip(values, factors, strict=True)]
            return {
                layer.name: backbone.weights[layer.name]
                + (sides[2 * number] @ sides[2 * number + 1]).reshape(layer.shape)
                for number, layer in enumerate(layers)
            }

        start = [part for row in first for part in (row.clone(), torch.zeros_like(row))]
        return _coefficients(start, weights, precision, largest)

    return FineTuning(
        backbone, **settings, make_trainable=trains, role="learned", precision=precision
    )


def _coefficients(
    start: Sequence[Tensor],
    weights_of: Callable[[Sequence[Tensor]], Weights],
    precision: str,
    largest: int | None,
) -> Trainable:
    """Vectors to train from here, and the weights that they make; kept in this precision."""
    values = [each.requires_grad_(True) for each in start]

    def result() -> tuple[Weights, int]:
        kept, size = rounded_tensors(values, precision, [False] * len(values), largest=largest)
        return weights_of(kept), size

    return Trainable(values, lambda: (weights_of(values), 0.0), result)


def _normal(shape: tuple[int, ...], deviation: float, draws: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=draws).mul_(deviation)
