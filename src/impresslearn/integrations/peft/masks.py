"""The masks of one layer, drawn from a seed and the layer's name.

The masks of a layer do not depend on the other layers that an adapter covers: adapters of one seed
share the masks of the layers that they have in common.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from torch import Tensor

from impresslearn.masks import disjoint_bank
from impresslearn.networks.layers import MaskableLayer


@dataclass(frozen=True)
class MaskKey:
    """What masks are drawn from, besides the layer's name."""

    num_masks: int
    seed: int


def draw(layer: MaskableLayer, key: MaskKey) -> tuple[Tensor, bytes]:
    """Disjoint masks of a layer, (N, units, row_bytes) uint8 on the CPU, and their SHA-256."""
    words = f"{key.seed}:{layer.name}".encode()
    seed = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
    bits = disjoint_bank([layer], key.num_masks, seed).bits(0).clone()  # without spare room
    return bits, hashlib.sha256(bits.numpy().tobytes()).digest()
