"""Reference implementation of mixing and its adjoint, in plain torch, one mask at a time.

Every other implementation is compared with these two functions. Both work on any device and
never hold more than one unpacked mask.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from impresslearn.kernels.layout import unpack


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """W ⊙ Σ_t α_t M^t (the mask of eq. 1 applied to W).

    bits: (N, units, row_bytes) uint8; alpha: (N,) or (N, units); weight: (units, ...).
    Returns a tensor of weight's shape and dtype; the sum runs in float32, in the masks' order.
    """
    rows = _rows(weight).contiguous()
    total = torch.zeros(rows.shape, dtype=torch.float32, device=weight.device)
    for packed, coefficient in zip(bits, alpha.float(), strict=True):
        total += unpack(packed, rows.shape[1]) * coefficient.reshape(-1, 1)
    return (rows * total).to(weight.dtype).reshape(weight.shape)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """Σ_j left_j · right_j · M^t_j: the adjoint of `mix` with respect to alpha.

    left, right: (units, ...). Returns (N, units) float32 if `per_unit`, else (N,) float32.
    """
    product = _rows(left.float() * right.float())
    sums = torch.zeros((len(bits), len(product)), dtype=torch.float32, device=left.device)
    for t, packed in enumerate(bits):
        sums[t] = (product * unpack(packed, product.shape[1])).sum(dim=1)
    return sums if per_unit else sums.sum(dim=1)


def _rows(weight: Tensor) -> Tensor:
    return weight.reshape(weight.shape[0], prod(weight.shape[1:]))
