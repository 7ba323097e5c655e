"""Kernels that mix packed masks into weights, with gradients: CPU, GPU and reference."""

from impresslearn.kernels.functions import mask_sums, mix, mix_layers
from impresslearn.kernels.layout import pack, popcount, row_bytes, unpack
from impresslearn.kernels.ops import implementation

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
