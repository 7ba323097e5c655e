"""Mask arithmetic: set operations, density, overlap, and weights of masks that are not binary.

A mask is a mapping of layer name -> booleans of the weight's shape, as `train_mask`, `prune`, the
sources and `MaskBank.mask` give it. Signed and real-valued masks, which the paper tried and left
out, are float tensors; `dense_weights` combines them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.errors import InputError

Mask = Mapping[str, Tensor]


def intersection(first: Mask, second: Mask) -> dict[str, Tensor]:
    """Weights that both masks keep (and)."""
    return _combined(operator.and_, first, second)


def union(first: Mask, second: Mask) -> dict[str, Tensor]:
    """Weights that at least one of two masks keeps (or)."""
    return _combined(operator.or_, first, second)


def symmetric_difference(first: Mask, second: Mask) -> dict[str, Tensor]:
    """Weights that exactly one of two masks keeps (xor)."""
    return _combined(operator.xor, first, second)


def difference(first: Mask, second: Mask) -> dict[str, Tensor]:
    """Weights that the first mask keeps and the second does not."""
    return _combined(operator.gt, first, second)


def complement(mask: Mask) -> dict[str, Tensor]:
    """Weights that a mask leaves out (not)."""
    return {name: ~ones for name, ones in checked_mask(mask).items()}


def density(mask: Mask) -> float:
    """The share of ones: 1 - sparsity."""
    mask = checked_mask(mask)
    return sum(int(ones.sum()) for ones in mask.values()) / _numel(mask).sum().item()


@dataclass(frozen=True, repr=False)
class Overlap:
    """The Jaccard index |A∩B| / |A∪B| of masks, and what independent masks would have.

    Two empty masks have none: NaN.

    - `measured`: over all layers together; one number for a pair of masks, (N, N) for a bank.
    - `expected`: the same for independent masks with as many ones in each layer.
    - `by_layer`, `expected_by_layer`: the same layer by layer, (layers, ...).
    - `names`: the masks of a bank, in the order of rows and columns.
    """

    measured: Tensor
    expected: Tensor
    by_layer: Tensor
    expected_by_layer: Tensor
    names: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if not self.names:
            return f"Overlap(measured={self.measured:.4f}, expected={self.expected:.4f})"
        pairs = ~torch.eye(len(self.names), dtype=torch.bool)
        ratios = (self.measured / self.expected).cpu()[pairs]
        least, most = ratios.min(), ratios.max()
        return f"Overlap({len(self.names)} masks, {least:.2f} to {most:.2f} times chance)"


def overlap(first: Mask, second: Mask) -> Overlap:
    """How much of two masks is the same, beside what chance would give."""
    first, second = checked_mask(first), checked_mask(second)
    shared = intersection(first, second)
    return overlap_of_counts(_ones(shared), _ones(first), _ones(second), _numel(first))


def overlap_of_counts(
    shared: Tensor, first: Tensor, second: Tensor, numel: Tensor, names: Sequence[str] = ()
) -> Overlap:
    """Overlap from counts per layer, (layers, ...): ones in both masks, in each, and weights."""
    chance = first * second / numel
    total = first + second
    return Overlap(
        shared.sum(0) / (total - shared).sum(0),
        chance.sum(0) / (total - chance).sum(0),
        shared / (total - shared),
        chance / (total - chance),
        tuple(names),
    )


def dense_weights(
    masks: Sequence[Any],
    alphas: Mapping[str, Tensor] | Sequence[Tensor],
    weights: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """W ⊙ Σ_t α_t M^t for masks of booleans, or of floats, such as signs or scores.

    - `masks`: each maps layer names to tensors of the weights' shape, or is what `train_mask`
      returns.
    - `alphas`: a tensor (N,) or (N, units) for each layer, by name or in the order of the layers,
      as `learner.coefficients_[task].alpha` is.
    - `weights`: layer name -> weights, as `backbone.weights`.

    Raises InputError if they do not fit together, and for a `TrainedMask` or `PrunedMask` of
    another network.
    """
    dense = [_tensors(mask, "masks") for mask in masks]
    if isinstance(alphas, Sequence):
        alphas = dict(zip(weights, alphas, strict=False)) if len(alphas) == len(weights) else {}
    alphas = _tensors(alphas, "alphas")
    mixed = {}
    for name, weight in weights.items():
        shapes = {tuple(mask[name].shape) if name in mask else None for mask in dense}
        if shapes != {tuple(weight.shape)}:
            shape = tuple(weight.shape)
            raise InputError(f"each mask needs a tensor of shape {shape} for {name}")
        allowed = (len(dense),), (len(dense), len(weight))
        if name not in alphas or tuple(alphas[name].shape) not in allowed:
            got = tuple(alphas[name].shape) if name in alphas else "none"
            raise InputError(
                f"alphas of {name} must have the shape {allowed[0]}, a number for each mask, or "
                f"{allowed[1]}, one for each unit too; got {got}"
            )
        alpha = alphas[name].to(weight).reshape(len(dense), -1, *[1] * (weight.dim() - 1))
        total = torch.zeros_like(weight)
        for coefficient, mask in zip(alpha, dense, strict=True):
            total = total + coefficient * mask[name].to(weight)
        mixed[name] = weight * total
    for mask in masks:
        check_origin(mask, weights)
    return mixed


def check_origin(mask: Any, weights: Mapping[str, Tensor]) -> None:
    """Raises InputError for a `TrainedMask` or `PrunedMask` of a network of other weights."""
    initial = getattr(mask, "initial", weights)
    for name, weight in weights.items():
        if not torch.equal(initial[name].to(weight), weight):
            raise InputError(
                "the mask was made for a network of other weights, by its seed or its init "
                "perhaps; give that one, or .mask to use it here all the same"
            )


def checked_mask(mask: Any) -> dict[str, Tensor]:
    """The mask as tensors, also of a `TrainedMask` or of NumPy arrays; InputError otherwise."""
    mask = getattr(mask, "mask", mask)
    if not isinstance(mask, Mapping) or not mask:
        got = "none" if isinstance(mask, Mapping) else type(mask).__name__
        raise InputError(f"a mask maps layer names to tensors of booleans, got {got}")
    checked = {}
    for name, ones in mask.items():
        if isinstance(ones, np.ndarray):
            ones = torch.from_numpy(ones.copy())
        if not isinstance(ones, Tensor) or ones.dtype != torch.bool:
            kind = str(ones.dtype) if isinstance(ones, Tensor) else type(ones).__name__
            raise InputError(
                f"a mask maps layer names to tensors of booleans; {name} is {kind}, which .bool() "
                "changes"
            )
        checked[name] = ones
    return checked


def _tensors(values: Any, name: str) -> dict[str, Tensor]:
    """Layer name -> tensor, of tensors or arrays. Raises InputError for anything else."""
    values = getattr(values, "mask", values)
    if not isinstance(values, Mapping):
        raise InputError(f"{name} must map layers to tensors, got {type(values).__name__}")
    return {layer: torch.as_tensor(value) for layer, value in values.items()}


def _combined(
    operation: Callable[[Tensor, Tensor], Tensor], first: Mask, second: Mask
) -> dict[str, Tensor]:
    first, second = checked_mask(first), checked_mask(second)
    for name in sorted({*first, *second}):
        shapes = [tuple(mask[name].shape) if name in mask else "none" for mask in (first, second)]
        if shapes[0] != shapes[1]:
            raise InputError(
                "masks can be combined where they cover the same layers; these differ in "
                f"{name}: {shapes[0]} and {shapes[1]}"
            )
    return {name: operation(ones, second[name]) for name, ones in first.items()}


def _numel(mask: Mask) -> Tensor:
    return torch.tensor([ones.numel() for ones in mask.values()]).double()


def _ones(mask: Mask) -> Tensor:
    return torch.stack([ones.sum().cpu().double() for ones in mask.values()])
