"""Whole numbers and binary masks as bytes, near their entropy.

What a task costs is what these take: `levels` writes coded coefficients, `masks` a mask, for which
`mask_classes` finds rows and columns that are alike.
"""

from impresslearn.coding.levels import LARGEST, MODEL_BYTES, decode_levels, encode_levels
from impresslearn.coding.masks import decode_mask, encode_mask

__all__ = [
    "LARGEST",
    "MODEL_BYTES",
    "decode_levels",
    "decode_mask",
    "encode_levels",
    "encode_mask",
]
