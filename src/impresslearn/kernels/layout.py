"""Memory layout of packed binary masks: one bit a weight, rows padded to 16 bits.

A layer's mask is (units, fan_in) booleans, packed into (units, row_bytes) bytes: weight 8b+k of a
row is bit k of byte b, and every row starts on an even byte so that a kernel can read 16 weights
of one output unit at a time. Padding bits are zero. N masks of a layer stand one after another,
(N, units, row_bytes), so that appending a mask moves nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

WORD_BITS = 16


def row_bytes(fan_in: int) -> int:
    """Bytes that one row of `fan_in` weights takes."""
    return 2 * ((fan_in + WORD_BITS - 1) // WORD_BITS)


def pack(mask: Tensor) -> Tensor:
    """Booleans (..., units, fan_in) to bytes (..., units, row_bytes), uint8, same device."""
    packed = np.packbits(mask.detach().cpu().numpy().astype(bool), axis=-1, bitorder="little")
    width = row_bytes(mask.shape[-1])
    if packed.shape[-1] < width:
        pad = [(0, 0)] * (packed.ndim - 1) + [(0, width - packed.shape[-1])]
        packed = np.pad(packed, pad)
    return torch.from_numpy(np.ascontiguousarray(packed)).to(mask.device)


def unpack(bits: Tensor, fan_in: int) -> Tensor:
    """Bytes (..., units, row_bytes) to booleans (..., units, fan_in), same device."""
    shifts = torch.arange(8, device=bits.device, dtype=torch.uint8)
    spread = (bits.unsqueeze(-1) >> shifts) & 1
    return spread.flatten(-2)[..., :fan_in].bool()


def popcount(bits: Tensor) -> Tensor:
    """Ones in each leading entry: (N, ...) uint8 to (N,) int64, on the CPU."""
    counts = np.bitwise_count(bits.cpu().numpy())
    return torch.from_numpy(counts.sum(axis=tuple(range(1, counts.ndim)), dtype=np.int64))
