"""Packed binary masks, and the reference implementation of mixing and its adjoint.

A layer's mask is (units, fan_in) booleans, packed into (units, row_bytes) bytes. Weight 8b+k of a
row is bit k of byte b. Rows have an even number of bytes, so that a kernel can read the bits of 16
weights of an output unit at a time. Padding bits are zero. The N masks of a layer are an array
(N, units, row_bytes), so that appending a mask moves nothing.

`mix` and `mask_sums` (see `functions`) are plain torch for any device and unpack one mask at a
time. Tests compare every other implementation with them.
"""

from math import prod

import numpy as np
import torch
from torch import Tensor

WORD_BITS = 16


def row_bytes(fan_in: int) -> int:
    """The number of bytes of one row of `fan_in` weights."""
    return 2 * ((fan_in + WORD_BITS - 1) // WORD_BITS)


def pack(mask: Tensor) -> Tensor:
    """Booleans (..., units, fan_in) to bytes (..., units, row_bytes), uint8, same device."""
    packed = np.packbits(mask.detach().cpu().numpy().astype(bool), axis=-1, bitorder="little")
    shape = (*mask.shape[:-1], row_bytes(mask.shape[-1]))
    bits = torch.zeros(shape, dtype=torch.uint8, device="cpu")
    bits[..., : packed.shape[-1]] = torch.from_numpy(packed)
    return bits.to(mask.device)


def unpack(bits: Tensor, fan_in: int) -> Tensor:
    """Bytes (..., units, row_bytes) to booleans (..., units, fan_in), same device."""
    shifts = torch.arange(8, device=bits.device, dtype=torch.uint8)
    spread = (bits.unsqueeze(-1) >> shifts) & 1
    return spread.flatten(-2)[..., :fan_in].bool()


def popcount(bits: Tensor) -> Tensor:
    """The number of ones in each entry: (N, ...) uint8 to (N,) int64, on the CPU."""
    counts = np.bitwise_count(bits.cpu().numpy())
    return torch.from_numpy(counts.sum(axis=tuple(range(1, counts.ndim)), dtype=np.int64))


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `functions.mix`; the sum runs in the masks' order."""
    rows = _rows(weight).contiguous()
    # Unpack one mask at a time: all together would take eight times the memory of the bank.
    total = torch.zeros(rows.shape, dtype=torch.float32, device=weight.device)
    for packed, coefficient in zip(bits, alpha.float(), strict=True):
        total += unpack(packed, rows.shape[1]) * coefficient.reshape(-1, 1)
    return (rows * total).to(weight.dtype).reshape(weight.shape)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """The adjoint of `mix` in alpha, see `functions`; left, right: (units, ...)."""
    product = _rows(left.float() * right.float())
    sums = torch.zeros((len(bits), len(product)), dtype=torch.float32, device=left.device)
    for t, packed in enumerate(bits):
        sums[t] = (product * unpack(packed, product.shape[1])).sum(dim=1)
    return sums if per_unit else sums.sum(dim=1)


def _rows(weight: Tensor) -> Tensor:
    return weight.reshape(weight.shape[0], prod(weight.shape[1:]))
