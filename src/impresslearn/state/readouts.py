"""The networks behind a readout: the frozen one under each mask, with the task's head in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from impresslearn.coefficients.mixing import Coefficients, head_weights, masked_weights
from impresslearn.coefficients.quantisation import StoredCoefficients
from impresslearn.coefficients.readout import Projection
from impresslearn.errors import StoreError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.weight_cache import WeightCache, Weights


def networks(
    backbone: Backbone, bank: MaskBank, cache: WeightCache, num_masks: int, residual: bool
) -> list[Weights]:
    """The weights that features are computed with: the network's own if residual, and by mask."""
    return [
        _network(backbone, bank, cache, position) for position in _positions(num_masks, residual)
    ]


@torch.no_grad()
def whole_head(
    backbone: Backbone, coefficients: Coefficients, projection: Projection | None
) -> Weights:
    """A readout's "weight" (features, K) and perhaps "bias" (K,), its projection multiplied out.

    Raises StoreError for a projection of other features than the readout was learned on.
    """
    weight, *bias = coefficients.head or ()
    num_masks, residual = coefficients.num_masks, coefficients.residual
    if projection is not None:
        matrix = projection.matrix[:, : len(weight)].to(weight.device)
        kept = (projection.num_masks, projection.residual, matrix.shape[1])
        if kept != (num_masks, residual, len(weight)):
            raise StoreError("a task reads other features than the store has; restore it")
        weight = matrix @ weight
    wanted = (num_masks + residual) * (backbone.own_head.fan_in if backbone.own_head else 0)
    if len(weight) != wanted:
        raise StoreError(f"a task reads {len(weight)} features of {wanted}; restore the store")
    return {"weight": weight} | ({"bias": bias[0]} if bias else {})


def with_heads(
    backbone: Backbone,
    bank: MaskBank,
    cache: WeightCache,
    form: StoredCoefficients,
    head: Mapping[str, Tensor],
) -> tuple[tuple[int | None, ...], list[Weights]]:
    """The networks whose logits add up to the readout's; one whose features it ignores is left out.

    First the positions of their masks, None for the network itself. form: says which masks; head:
    as `whole_head` gives it.
    """
    num_masks = form.readout.num_masks if form.readout else 0
    positions = list(_positions(num_masks, form.residual))
    parts = head["weight"].chunk(len(positions))
    used = [number for number, part in enumerate(parts) if part.any()] or [0]
    bias, found = [head["bias"]] if "bias" in head else [], []
    for number in used:
        own = head_weights(backbone, [parts[number], *bias])
        found.append(_network(backbone, bank, cache, positions[number]) | own)
        bias = [torch.zeros_like(each) for each in bias]
    return tuple(positions[number] for number in used), found


def _positions(num_masks: int, residual: bool) -> Iterator[int | None]:
    """None for the network itself, then the masks' positions."""
    if residual:
        yield None
    yield from range(num_masks)


def _network(
    backbone: Backbone, bank: MaskBank, cache: WeightCache, position: int | None
) -> Weights:
    if position is None:
        return {}
    name = bank.infos[position].name
    # Tasks are kept as "name/version": no key of theirs is without a slash.
    place = f"mask {bank.serial}.{position}"  # masks that go make another bank, with other places
    return cache.get(place, lambda: masked_weights(bank, backbone.weights, name))
