"""The mask variants that the paper tried and left out: signed and real-valued masks.

Neither fits a packed bank of binary masks, nor needs to: they are dense tensors, combined by
`dense_weights`, for experiments that compare them with binary masks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from impresslearn.errors import InputError


def signed_mask(mask: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Values in {-1, 0, 1}: the mask with a random sign for each of its ones."""
    generator = torch.Generator().manual_seed(seed)
    signed = {}
    for name, ones in mask.items():
        signs = torch.randint(0, 2, ones.shape, generator=generator, dtype=torch.int8) * 2 - 1
        signed[name] = (signs.to(ones.device) * ones).float()
    return signed


def real_mask(mask: dict[str, Tensor], scores: dict[str, Tensor]) -> dict[str, Tensor]:
    """Real values: the scores where the mask is one, scaled to a mean magnitude of 1 a layer."""
    real = {}
    for name, ones in mask.items():
        kept = scores[name].detach() * ones
        total = kept.abs().sum()
        if not total > 0:
            raise InputError(f"the scores kept in {name} are all zero; nothing to scale")
        real[name] = kept * (ones.sum() / total)
    return real


def dense_weights(
    masks: Sequence[dict[str, Tensor]], alphas: dict[str, Tensor], weights: dict[str, Tensor]
) -> dict[str, Tensor]:
    """W ⊙ Σ_t α_t M^t for dense masks; alphas: layer name -> (N,)."""
    return {
        name: weight * torch.tensordot(alphas[name], torch.stack([m[name] for m in masks]), dims=1)
        for name, weight in weights.items()
    }
