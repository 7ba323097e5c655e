"""Kernels that mix packed masks into weights, with gradients: CPU, GPU and reference."""

from impresslearn.kernels.functions import implementation, mask_sums, mix, mix_layers
from impresslearn.kernels.reference import pack, popcount, row_bytes, unpack

__all__ = [
    "implementation",
    "mask_sums",
    "mix",
    "mix_layers",
    "pack",
    "popcount",
    "row_bytes",
    "unpack",
]
