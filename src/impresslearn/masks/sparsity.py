"""Sparsity of masks, and how it is allocated to layers.

Sparsity is the fraction of zeros, in [0, 1). "uniform" gives all layers the same sparsity.
"erdos_renyi" gives a layer a density proportional to (fan_in + fan_out) / numel, so that small
layers, such as the head, keep more of their weights.
"""

import numbers
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from impresslearn.checks import check_choice
from impresslearn.errors import InputError
from impresslearn.networks.layers import MaskableLayer

Allocation = Literal["uniform", "erdos_renyi"]
ALLOCATIONS = get_args(Allocation)
DENSITY_CAP = 0.5


def check_sparsity(sparsity: float) -> float:
    """The sparsity as a float. Raises InputError outside [0, 1)."""
    is_number = isinstance(sparsity, numbers.Real) and not isinstance(sparsity, bool)
    if not is_number or not 0 <= sparsity < 1:
        hint = f"; did you mean {sparsity / 100:g}?" if is_number and 1 < sparsity < 100 else ""
        line = "sparsity is the fraction of zeros and must lie in [0, 1)"
        raise InputError(f"{line}, got {sparsity!r}{hint}")
    return float(sparsity)


def ones_per_layer(
    layers: Sequence[MaskableLayer], sparsity: float, allocation: Allocation = "uniform"
) -> tuple[int, ...]:
    """The number of ones that a mask has in each layer, at least one per layer.

    With "erdos_renyi" the sum is exactly round((1 - sparsity) * weights).
    """
    if not layers:
        line = "no layer but the last is left to mask, and each task learns its own last layer"
        hint = 'pass head="shared" to create_backbone or adapt, or put linear layers, convolutions'
        raise InputError(f"{line}; {hint} or attention before it")
    density = 1 - check_sparsity(sparsity)
    if check_choice("allocation", allocation, ALLOCATIONS) == "uniform":
        return tuple(max(1, round(density * layer.numel)) for layer in layers)
    sizes = np.array([layer.numel for layer in layers])
    # No layer keeps more than half of its weights, unless the mask keeps more than half of all.
    cap = DENSITY_CAP if density <= DENSITY_CAP else 1.0
    exact = sizes * _capped_densities(layers, sizes, density, cap)
    total = round(density * int(sizes.sum()))
    counts = np.minimum(sizes, np.maximum(1, np.floor(exact).astype(np.int64)))
    by_remainder = np.argsort(counts - exact, kind="stable")
    while missing := total - int(counts.sum()):
        step = 1 if missing > 0 else -1
        movable = [i for i in by_remainder[::step] if 1 <= counts[i] + step <= sizes[i]]
        if not movable:
            break
        counts[movable[: abs(missing)]] += step
    return tuple(counts.tolist())


def _capped_densities(
    layers: Sequence[MaskableLayer], sizes: np.ndarray, density: float, cap: float
) -> np.ndarray:
    """Densities proportional to (fan_in + fan_out) / numel, none above the cap."""
    weights = np.array([layer.fan_in + layer.units for layer in layers])
    capped = np.zeros(len(layers), dtype=bool)
    while True:
        free = weights[~capped].sum()
        scale = (density * sizes.sum() - cap * sizes[capped].sum()) / free if free else 0.0
        over = ~capped & (scale * weights > cap * sizes)
        if not over.any():
            return np.where(capped, cap, scale * weights / sizes)
        capped |= over
