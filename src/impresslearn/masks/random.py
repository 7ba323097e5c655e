"""Masks that are drawn, not trained: a bank of them costs its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.errors import InputError
from impresslearn.masks.bank import MaskBank, PackedMask, packed_mask
from impresslearn.masks.sparsity import ones_per_layer
from impresslearn.networks.layers import MaskableLayer

MOST_MASKS = 2**31


def random_mask(
    layers: Sequence[MaskableLayer], ones: Sequence[int], seed: int, number: int = 0
) -> dict[str, Tensor]:
    """Mask `number` of the sequence that `seed` starts: exactly `ones` ones a layer, uniform.

    Mask i does not depend on how many others are drawn. The draw uses NumPy's Philox stream, which
    is the same on every machine.
    """
    mask = {}
    for place, (layer, count) in enumerate(zip(layers, ones, strict=True)):
        stream = np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, number, place]))
        # The positions of the `count` smallest keys; 64-bit raw draws do not collide in practice
        # and argpartition settles a tie the same way each time.
        keys = stream.bit_generator.random_raw(layer.numel)
        flat = np.zeros(layer.numel, dtype=bool)
        if count:
            flat[np.argpartition(keys, count - 1)[:count]] = True
        mask[layer.name] = torch.from_numpy(flat).reshape(layer.shape)
    return mask


def disjoint_mask(
    layers: Sequence[MaskableLayer], count: int, seed: int, number: int
) -> dict[str, Tensor]:
    """Mask `number` of `count` that share every layer's weights out among themselves at random.

    Each weight lies in exactly one of them, and their sizes differ by one at most; where a layer
    has fewer weights than there are masks, the last ones have none of it.
    """
    if not 0 <= number < count < MOST_MASKS:
        raise InputError(f"there is no mask {number} of {count} disjoint ones")
    return {
        layer.name: torch.from_numpy(_shares(layer.numel, count, seed, place) == number).reshape(
            layer.shape
        )
        for place, layer in enumerate(layers)
    }


@lru_cache(maxsize=64)
def _shares(numel: int, count: int, seed: int, place: int) -> np.ndarray:
    """Which of the masks each weight of a layer lies in."""
    stream = np.random.Generator(np.random.Philox(key=seed, counter=[0, 1, count, place]))
    order = np.argsort(stream.bit_generator.random_raw(numel), kind="stable")
    shares = np.empty(numel, dtype=np.int32)
    shares[order] = np.arange(numel) % count
    shares.flags.writeable = False
    return shares


def draw_masks(
    bank: MaskBank,
    count: int,
    sparsity: float = 0.9,
    allocation: str = "erdos_renyi",
    seed: int = 0,
    prefix: str = "random",
) -> list[PackedMask]:
    """`count` random masks for a bank, named prefix-0, prefix-1, …, which are not added yet.

    They go on where those of the same prefix in the bank stop.
    """
    if count < 1:
        raise InputError(f"the number of random masks must be at least 1, got {count}")
    ones = ones_per_layer(bank.layers, sparsity, allocation)
    numbered = [info.name.rpartition("-") for info in bank.infos if info.source == "random"]
    start = max(
        (1 + int(number) for word, _, number in numbered if word == prefix and number.isdecimal()),
        default=0,
    )
    names = [f"{prefix}-{number}" for number in range(start, start + count)]
    for name in names:
        if name in bank:
            raise InputError(f"the bank already holds a mask named {name!r}; use another prefix")
    shared: dict[str, Any] = {"seed": seed, "sparsity": sparsity, "allocation": allocation}
    return [
        packed_mask(
            name,
            random_mask(bank.layers, ones, seed, number),
            bank.layers,
            "random",
            shared | {"number": number},
        )
        for number, name in enumerate(names, start)
    ]


def add_random_masks(
    bank: MaskBank,
    count: int,
    sparsity: float = 0.9,
    allocation: str = "erdos_renyi",
    seed: int = 0,
    prefix: str = "random",
) -> MaskBank:
    """Appends `count` random masks, as `draw_masks` draws them; returns the bank."""
    for info, packed in draw_masks(bank, count, sparsity, allocation, seed, prefix):
        bank.adopt(info, [bits.to(bank.device) for bits in packed])
    return bank


def disjoint_bank(
    layers: Sequence[MaskableLayer],
    count: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> MaskBank:
    """A new bank of `count` random masks that share the weights out: each lies in exactly one.

    Their sum keeps every weight, so equal coefficients are the network itself, and no mask says
    anything about another: coefficients in few bits do best with such masks (docs/decisions.md).
    """
    if count < 1:
        raise InputError(f"the number of random masks must be at least 1, got {count}")
    bank = MaskBank(layers, device)
    for number in range(count):
        recipe = {"seed": seed, "number": number, "disjoint": count}
        mask = disjoint_mask(layers, count, seed, number)
        bank.append(f"disjoint-{number}", mask, "random", recipe)
    return bank


def random_bank(
    layers: Sequence[MaskableLayer],
    count: int,
    sparsity: float = 0.9,
    allocation: str = "erdos_renyi",
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> MaskBank:
    """A new bank of `count` random masks."""
    return add_random_masks(MaskBank(layers, device), count, sparsity, allocation, seed)
