"""Mixing packed masks into a weight, and its gradients. Tensors in, tensors out."""

from impresslearn.kernels.layout import pack, popcount, row_bytes, unpack
from impresslearn.kernels.ops import implementation, mask_sums, mix

__all__ = ["implementation", "mask_sums", "mix", "pack", "popcount", "row_bytes", "unpack"]
