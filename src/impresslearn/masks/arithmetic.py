"""Mask arithmetic: set operations, density, overlap, and masks that are not binary.

A mask is a mapping of layer name -> booleans of the weight's shape, as `train_mask`, `prune`, the
sources and `MaskBank.mask` give it. Signed and real-valued masks, which the paper tried and left
out, are dense tensors, combined by `dense_weights`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_seed, torch_seed
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
    return sum(int(ones.sum()) for ones in mask.values()) / _weights(mask).sum().item()


@dataclass(frozen=True, repr=False)
class Overlap:
    """The Jaccard index |A∩B| / |A∪B| of masks, and what independent masks would have.

    measured: of all layers together, one number for a pair of masks, (N, N) for the N masks `names`
    of a bank; expected: for independent masks with as many ones in each layer; by_layer and
    expected_by_layer: likewise, (layers, ...). Two empty masks have none: NaN.
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
    shared, one, other = (
        torch.stack([ones.sum().cpu().double() for ones in mask.values()])
        for mask in (intersection(first, second), first, second)
    )
    return overlap_of_counts(shared, one, other, _weights(first))


def overlap_of_counts(
    shared: Tensor, first: Tensor, second: Tensor, weights: Tensor, names: Sequence[str] = ()
) -> Overlap:
    """Overlap from counts a layer, (layers, ...): ones in both masks, in each of them, weights."""
    chance = first * second / weights
    total = first + second
    return Overlap(
        shared.sum(0) / (total - shared).sum(0),
        chance.sum(0) / (total - chance).sum(0),
        shared / (total - shared),
        chance / (total - chance),
        tuple(names),
    )


def signed_mask(mask: Mask, seed: int) -> dict[str, Tensor]:
    """Values in {-1, 0, 1}: the mask with a random sign for each of its ones."""
    generator = torch.Generator().manual_seed(torch_seed(check_seed(seed)))
    signed = {}
    for name, ones in checked_mask(mask).items():
        signs = torch.randint(0, 2, ones.shape, generator=generator, dtype=torch.int8) * 2 - 1
        signed[name] = (signs.to(ones.device) * ones).float()
    return signed


def real_mask(mask: Mask, scores: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Real values: the scores where the mask is one, scaled to a mean magnitude of 1 a layer."""
    real, mask = {}, checked_mask(mask)
    if missing := mask.keys() - scores.keys():
        raise InputError(f"the scores have no layer {min(missing)!r}")
    for name, ones in mask.items():
        kept = scores[name].detach() * ones
        total = kept.abs().sum()
        if not total > 0:
            raise InputError(f"the scores kept in {name} are all zero; nothing to scale")
        real[name] = kept * (ones.sum() / total)
    return real


def dense_weights(
    masks: Sequence[Any],
    alphas: Mapping[str, Tensor] | Sequence[Tensor],
    weights: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """W ⊙ Σ_t α_t M^t for masks of booleans, or of floats as signed and real ones are.

    masks: layer name -> tensors of the weights' shape, or what `train_mask` returns. alphas: a
    tensor a layer, (N,) or (N, units), by name or in the order of the layers as
    `learner.coefficients_[task].alpha` is. weights: `backbone.weights`. Raises InputError where
    they do not fit together, and for a `TrainedMask` or `PrunedMask` of another network.
    """
    dense = [_tensors(mask, "masks") for mask in masks] if isinstance(masks, Sequence) else []
    if isinstance(alphas, Sequence):
        alphas = dict(zip(weights, alphas, strict=False)) if len(alphas) == len(weights) else {}
    alphas = _tensors(alphas, "alphas")
    for name, weight in weights.items():
        shapes = {tuple(mask[name].shape) for mask in dense if name in mask}
        if not dense or any(name not in mask for mask in dense) or shapes != {tuple(weight.shape)}:
            shape = tuple(weight.shape)
            raise InputError(f"each mask needs a tensor of shape {shape} for {name}")
        wanted = (len(dense),), (len(dense), len(weight))
        if name not in alphas or tuple(alphas[name].shape) not in wanted:
            got = tuple(alphas[name].shape) if name in alphas else "none"
            either = f"{wanted[0]}, a number for each mask, or {wanted[1]}, one for each unit too"
            raise InputError(f"alphas of {name} must have the shape {either}; got {got}")
    for mask in masks:
        check_origin(mask, weights)
    return {name: _mixed(weight, alphas[name], dense, name) for name, weight in weights.items()}


def check_origin(mask: Any, weights: Mapping[str, Tensor]) -> None:
    """Raises InputError for a `TrainedMask` or `PrunedMask` of a network of other weights."""
    initial = getattr(mask, "initial", weights)
    if not all(torch.equal(initial[name].to(each), each) for name, each in weights.items()):
        raise InputError(
            "the mask was made for a network of other weights, by its seed or its init perhaps; "
            "give that one, or .mask to use it here all the same"
        )


def _tensors(given: Any, name: str) -> dict[str, Tensor]:
    """Layer name -> tensor, of tensors or arrays. Raises InputError for anything else."""
    found = getattr(given, "mask", given)
    values = list(found.values()) if isinstance(found, Mapping) else [None]
    if not all(isinstance(value, (Tensor, np.ndarray)) for value in values):
        kind = type(found).__name__
        raise InputError(f"{name} must map layers to tensors, or be a tensor a layer, got {kind}")
    return {name: torch.as_tensor(value) for name, value in found.items()}


def _mixed(weight: Tensor, alpha: Tensor, masks: Sequence[Mask], name: str) -> Tensor:
    alpha = alpha.to(weight).reshape(len(masks), -1, *[1] * (weight.dim() - 1))
    return weight * sum(
        each * mask[name].to(weight) for each, mask in zip(alpha, masks, strict=True)
    )


def _combined(
    operation: Callable[[Tensor, Tensor], Tensor], first: Mask, second: Mask
) -> dict[str, Tensor]:
    first, second = checked_mask(first), checked_mask(second)
    shapes = [{name: tuple(ones.shape) for name, ones in mask.items()} for mask in (first, second)]
    if differing := sorted(name for name, _ in shapes[0].items() ^ shapes[1].items()):
        got = " and ".join(str(each.get(differing[0], "none")) for each in shapes)
        line = "masks can be combined where they cover the same layers"
        raise InputError(f"{line}; these differ in {differing[0]}: {got}")
    return {name: operation(ones, second[name]) for name, ones in first.items()}


def checked_mask(mask: Any) -> Mask:
    """The mask, or that of a `TrainedMask` or `PrunedMask`. Raises InputError for anything else."""
    found = getattr(mask, "mask", mask)
    if not isinstance(found, Mapping):
        kind = type(mask).__name__
        raise InputError(f"a mask maps layer names to tensors of booleans, got {kind}")
    if not found:
        raise InputError("a mask maps layer names to tensors of booleans, got none")
    found = {
        name: torch.from_numpy(ones.copy()) if _is_boolean_array(ones) else ones
        for name, ones in found.items()
    }
    for name, ones in found.items():
        if not isinstance(ones, Tensor) or ones.dtype != torch.bool:
            kind = str(ones.dtype) if isinstance(ones, Tensor) else type(ones).__name__
            line = f"a mask maps layer names to tensors of booleans; {name} is {kind}"
            raise InputError(f"{line}, which .bool() changes")
    return found


def _is_boolean_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.bool_


def _weights(mask: Mask) -> Tensor:
    return torch.tensor([ones.numel() for ones in mask.values()]).double()
