"""The networks behind a readout: the frozen one under each mask, with the task's head in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from impresslearn.coefficients.deltas import head_weights
from impresslearn.coefficients.masks import masked_weights
from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.coefficients.readout import Projection
from impresslearn.errors import StoreError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import WeightCache, Weights

Positions = list[int | None]
"""None for the network itself, then the masks' positions."""


def positions(num_masks: int, residual: bool) -> Positions:
    """The networks whose features are read, in the order of the features."""
    return [*([None] if residual else []), *range(num_masks)]


def body(backbone: Backbone, bank: MaskBank, cache: WeightCache, position: int | None) -> Weights:
    """The weights of one of these networks; {} for the network's own."""
    if position is None:
        return {}
    name = bank.infos[position].name
    # A bank from which masks were removed has another serial number, as positions moved.
    key = f"mask {bank.serial}.{position}"
    return cache.get(key, lambda: masked_weights(bank, backbone.weights, name))


@torch.no_grad()
def combined_head(
    backbone: Backbone, coefficients: Coefficients, projection: Projection | None
) -> Weights:
    """A readout's "weight" (features, K) and perhaps "bias" (K,), its projection multiplied out.

    Raises StoreError for a projection of other features than the readout was learned on.
    """
    weight, *bias = coefficients.head or ()
    networks = coefficients.num_masks + coefficients.residual
    wanted = networks * (backbone.own_head.fan_in if backbone.own_head else 0)
    if projection is not None:
        weight = projection.matrix[:, : len(weight)].to(weight.device) @ weight
    if len(weight) != wanted:
        raise StoreError(f"a task reads {len(weight)} features of {wanted}; restore the store")
    return {"weight": weight} | ({"bias": bias[0]} if bias else {})


def with_heads(
    backbone: Backbone,
    bank: MaskBank,
    cache: WeightCache,
    places: Sequence[int | None],
    head: Mapping[str, Tensor],
) -> tuple[Positions, list[Weights]]:
    """The networks whose logits add up to the readout's, and their positions.

    A network whose features the head ignores is left out. The first one gets the bias.
    """
    parts = head["weight"].chunk(len(places))
    used = [number for number, part in enumerate(parts) if part.any()] or [0]
    bias = [head["bias"]] if "bias" in head else []
    networks = []
    for number in used:
        own = head_weights(backbone, [parts[number], *bias])
        networks.append(body(backbone, bank, cache, places[number]) | own)
        bias = [torch.zeros_like(values) for values in bias]
    return [places[number] for number in used], networks
