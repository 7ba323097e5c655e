"""Sparsity of masks, and how it is allocated to layers.

Sparsity is the fraction of zeros, in [0, 1). `uniform` gives every layer the same share;
`erdos_renyi` gives layer l a density proportional to (fan_in + fan_out) / numel, so that small
layers (the head above all) keep more, with the total kept exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

from impresslearn.errors import InputError
from impresslearn.networks.layers import MaskableLayer

Allocation = Literal["uniform", "erdos_renyi"]
ALLOCATIONS = get_args(Allocation)
DENSITY_CAP = 0.5


def check_sparsity(sparsity: float) -> float:
    """The sparsity as a float. Raises InputError outside [0, 1)."""
    if isinstance(sparsity, bool) or not isinstance(sparsity, (int, float)):
        raise InputError(f"sparsity must be a number, got {sparsity!r}")
    if not 0 <= sparsity < 1:
        hint = f"; did you mean {sparsity / 100:g}?" if 1 < sparsity < 100 else ""
        raise InputError(
            f"sparsity is the fraction of zeros and must lie in [0, 1), got {sparsity!r}{hint}"
        )
    return float(sparsity)


def ones_per_layer(
    layers: Sequence[MaskableLayer], sparsity: float, allocation: Allocation = "uniform"
) -> tuple[int, ...]:
    """The number of ones that a mask has in each layer, at least one a layer.

    Under `erdos_renyi` no density exceeds 0.5 unless the sparsity asks for more than half of all
    weights (then the cap rises to 1), and the sum over layers is exactly that of `uniform`
    rounding of the whole network: round((1 - sparsity) * weights).
    Raises InputError for a sparsity outside [0, 1) or an unknown allocation.
    """
    density = 1 - check_sparsity(sparsity)
    if allocation == "uniform":
        return tuple(max(1, round(density * layer.numel)) for layer in layers)
    if allocation != "erdos_renyi":
        raise InputError(f"allocation must be one of {', '.join(ALLOCATIONS)}, got {allocation!r}")
    cap = DENSITY_CAP if density <= DENSITY_CAP else 1.0
    shares = _capped_densities(layers, density, cap)
    exact = [share * layer.numel for share, layer in zip(shares, layers, strict=True)]
    return _round_to_total(exact, layers, round(density * sum(layer.numel for layer in layers)))


def _capped_densities(layers: Sequence[MaskableLayer], density: float, cap: float) -> list[float]:
    """Densities proportional to (fan_in + fan_out) / numel, none above the cap."""
    kept = density * sum(layer.numel for layer in layers)
    weights = [layer.fan_in + layer.units for layer in layers]
    capped: set[int] = set()
    while True:
        rest = kept - cap * sum(layers[i].numel for i in capped)
        free = sum(weight for i, weight in enumerate(weights) if i not in capped)
        scale = rest / free if free else 0.0
        over = {
            i
            for i, layer in enumerate(layers)
            if i not in capped and scale * weights[i] > cap * layer.numel
        }
        if not over:
            return [
                cap if i in capped else scale * weights[i] / layer.numel
                for i, layer in enumerate(layers)
            ]
        capped |= over


def _round_to_total(
    exact: Sequence[float], layers: Sequence[MaskableLayer], total: int
) -> tuple[int, ...]:
    """Whole numbers near `exact` that add up to `total`: largest remainders first."""
    counts = [
        min(layer.numel, max(1, math.floor(x))) for x, layer in zip(exact, layers, strict=True)
    ]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    while (missing := total - sum(counts)) != 0:
        step = 1 if missing > 0 else -1
        order = by_remainder if missing > 0 else by_remainder[::-1]
        movable = [i for i in order if 1 <= counts[i] + step <= layers[i].numel]
        if not movable:
            break
        for i in movable[: abs(missing)]:
            counts[i] += step
    return tuple(counts)
