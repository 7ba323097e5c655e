"""Masks that are drawn, not trained.

| source | masks | what a store keeps |
|---|---|---|
| random | the asked number of ones in each layer, uniformly drawn | seeds |
| disjoint | every weight in exactly one of them | seeds |
| disjoint_kernels | the same, but the kernels of convolutions stay whole | seeds |

Draws use NumPy's Philox stream of integers, the same on every machine and version, because a store
keeps nothing but the seeds.
"""

import reprlib
from collections.abc import Sequence, Sized
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_choice, check_integer, clear_calls
from impresslearn.errors import InputError
from impresslearn.masks.bank import MaskBank, PackedMask, packed_mask
from impresslearn.masks.sparsity import Allocation, ones_per_layer
from impresslearn.networks.layers import MaskableLayer, checked_layers

SEED_LIMIT = 2**128  # Philox's keys have 128 bits
MASK_LIMIT = 2**31
SOURCES = ("random", "disjoint", "disjoint_kernels")


def random_mask(
    layers: Sequence[MaskableLayer], ones: Sequence[int], seed: int, number: int = 0
) -> dict[str, Tensor]:
    """One mask of the sequence that a seed starts, uniformly drawn.

    - `ones`: the exact number of ones in each layer.
    - `number`: the mask's place in the sequence; it does not depend on how many others are drawn.

    Raises InputError for a bad seed, and for numbers of ones that the layers have no room for.
    """
    mask, seed = {}, check_integer("seed", seed, 0, SEED_LIMIT)
    layers = checked_layers(layers)
    if not isinstance(ones, Sized) or len(ones) != len(layers):
        got = reprlib.repr(ones)
        raise InputError(f"ones must be a number for each of {len(layers)} layers, got {got}")
    for place, (layer, number_of_ones) in enumerate(zip(layers, ones, strict=True)):
        count = check_integer(f"ones in {layer.name}", number_of_ones, 0, layer.numel + 1)
        # The positions of the `count` smallest keys; 64-bit raw draws do not collide in practice
        # and argpartition settles a tie the same way each time.
        keys = np.random.Philox(key=seed, counter=[0, 0, number, place]).random_raw(layer.numel)
        flat = np.zeros(layer.numel, dtype=bool)
        flat[np.argpartition(keys, count - 1)[:count]] = True
        mask[layer.name] = torch.from_numpy(flat).reshape(layer.shape)
    return mask


def disjoint_mask(
    layers: Sequence[MaskableLayer], count: int, seed: int, number: int, *, kernels: bool = False
) -> dict[str, Tensor]:
    """One of `count` masks that share every layer's weights out among themselves at random.

    Each weight is in exactly one of them, and their sizes differ by at most one. If a layer has
    fewer weights than there are masks, the last masks have none of it.

    - `count`, `number`: how many masks there are, and the mask's place among them.
    - `kernels`: keeps the weights between an input and an output channel of a convolution together.

    Raises InputError for a bad seed, and for a number that is not below the count.
    """
    seed, layers = check_integer("seed", seed, 0, SEED_LIMIT), checked_layers(layers)
    if not 0 <= number < count < MASK_LIMIT:
        raise InputError(f"{count} disjoint masks have the numbers 0 to {count - 1}, got {number}")
    mask = {}
    for place, layer in enumerate(layers):
        size = prod(layer.shape[2:]) if kernels else 1
        chosen = _shares(layer.numel // size, count, seed, place) == number
        mask[layer.name] = torch.from_numpy(chosen.repeat(size)).reshape(layer.shape)
    return mask


@lru_cache(maxsize=64)
def _shares(numel: int, count: int, seed: int, place: int) -> np.ndarray:
    """The number of the mask that each weight, or kernel, of a layer belongs to."""
    keys = np.random.Philox(key=seed, counter=[0, 1, count, place]).random_raw(numel)
    # Stable, so that a tie among the keys is settled alike on every machine.
    order = np.argsort(keys, kind="stable")
    shares = np.empty(numel, dtype=np.int32)
    shares[order] = np.arange(numel) % count
    shares.flags.writeable = False  # all callers get this one array
    return shares


def draw_masks(
    bank: MaskBank,
    count: int,
    sparsity: float = 0.9,
    allocation: Allocation = "erdos_renyi",
    seed: int = 0,
    source: str = "random",
) -> list[PackedMask]:
    """Masks for a bank, named source-0, source-1, …, which are not added yet.

    Numbers go on where the bank's masks of the same source stop.

    - `sparsity`, `allocation`: see `random_bank`; disjoint masks ignore both.
    - `source`: "random", "disjoint" or "disjoint_kernels".

    Raises InputError for an unknown source, and disjoint masks that the bank holds already.
    """
    count = check_integer(f"the number of {source} masks", count, 1)
    seed = check_integer("seed", seed, 0, SEED_LIMIT)
    check_choice("source", source, SOURCES)
    layers, ones = bank.layers, ones_per_layer(bank.layers, sparsity, allocation)
    drawn = [info for info in bank.infos if info.source == "random"]
    words = [info.name.rpartition("-") for info in drawn]
    known = [int(end) for word, _, end in words if word == source and end.isdecimal()]
    start, masks = max(known, default=-1) + 1, []
    for number in range(start, start + count):
        recipe: dict[str, Any] = {"seed": seed}
        if source == "random":
            recipe |= {"sparsity": sparsity, "allocation": allocation, "number": number}
            mask = random_mask(layers, ones, seed, number)
        else:
            recipe |= {"number": number - start, "disjoint": count}
            if kernels := source == "disjoint_kernels":
                recipe["kernels"] = True
            if any(info.recipe == recipe for info in drawn):
                raise InputError(f"the bank holds {count} disjoint masks of seed {seed} already")
            mask = disjoint_mask(layers, count, seed, number - start, kernels=kernels)
        masks.append(packed_mask(f"{source}-{number}", mask, layers, "random", recipe))
    _shares.cache_clear()  # they take as much memory as the weights
    return masks


@clear_calls
def random_bank(
    layers: Sequence[MaskableLayer],
    count: int,
    sparsity: float = 0.9,
    allocation: Allocation = "erdos_renyi",
    seed: int = 0,
    device: torch.device | str = "cpu",
    source: str = "random",
) -> MaskBank:
    """A new bank of random masks.

    - `layers`: the layers of the network, `backbone.layers`.
    - `sparsity`: the share of zeros, in [0, 1).
    - `allocation`: how ones are spread over layers, "erdos_renyi" or "uniform".
    - `seed`: at least 0; the same masks on every machine.
    - `device`: where the bits lie.
    - `source`: "random" draws the positions of ones uniformly in each layer, the paper's "random
      masks". "disjoint" ones share the weights out, whatever the sparsity, so that their sum is the
      network itself; "disjoint_kernels" keeps the kernels of convolutions whole. Coefficients in
      few bits do best with disjoint masks: on permuted MNIST 95.0% in 1.44 kB, with random ones of
      density 0.1 94.8% in 1.53 kB.

    Raises InputError for arguments out of range.
    """
    bank = MaskBank(layers, device)
    for mask in draw_masks(bank, count, sparsity, allocation, seed, source=source):
        bank.adopt(*mask)
    return bank
