"""Masks as rows of a store, and back: coded bits, or the recipe that draws them again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from impresslearn.kernels import pack, popcount
from impresslearn.masks import disjoint_mask, random_mask
from impresslearn.masks.bank import MaskInfo, PackedMask, coded_mask
from impresslearn.masks.codec import decode_mask
from impresslearn.networks.layers import MaskableLayer
from impresslearn.store.checks import Value
from impresslearn.store.values import check_kinds, of_kind, to_json


@dataclass(frozen=True)
class MaskRow:
    """The columns of a mask, in the order of its checksum.

    bits: None where the recipe draws the mask again; digest: 16 bytes of BLAKE2b over the packed
    bits, which tells whether it drew the same.
    """

    name: str
    source: str
    recipe: str
    bits: bytes | None
    digest: bytes

    def values(self) -> tuple[Value, ...]:
        """The columns as they are checked and written."""
        return self.name, self.source, self.recipe, self.bits, self.digest


def encode_packed(mask: PackedMask, layers: Sequence[MaskableLayer]) -> MaskRow:
    """A mask as a row."""
    info, packed = mask
    recipe = {"ones": list(info.ones), **info.recipe}
    bits = None
    if not (info.stored_as_seed and _can_redraw(mask, layers)):
        bits = coded_mask(mask, layers)[0].coded
    return MaskRow(info.name, info.source, to_json(recipe), bits, _digest(packed))


def decode_packed(row: MaskRow, layers: Sequence[MaskableLayer]) -> PackedMask:
    """The mask of a row. Raises one of UNREADABLE for a row that cannot be one."""
    check_kinds(row, name=str, source=str)
    recipe = of_kind(dict, row.recipe)
    ones = tuple(recipe.pop("ones"))
    if len(ones) != len(layers) or not all(type(count) is int for count in ones):
        raise ValueError("a mask of other layers")
    if row.bits is None:
        packed = _redraw(layers, ones, recipe)
    else:
        shapes = [(layer.units, layer.fan_in) for layer in layers]
        packed = [pack(torch.from_numpy(array)) for array in decode_mask(row.bits, shapes)]
    if _digest(packed) != row.digest:
        raise ValueError(f"mask {row.name!r} does not have the bits that were written")
    if tuple(int(popcount(each.unsqueeze(0))[0]) for each in packed) != ones:
        raise ValueError(f"mask {row.name!r} does not have as many ones as were written")
    return MaskInfo(row.name, row.source, ones, recipe, row.bits), packed


def _can_redraw(mask: PackedMask, layers: Sequence[MaskableLayer]) -> bool:
    """Whether the recipe gives this very mask: a caller may have named their own one "random"."""
    info, packed = mask
    try:
        return _digest(_redraw(layers, info.ones, info.recipe)) == _digest(packed)
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def _redraw(
    layers: Sequence[MaskableLayer], ones: Sequence[int], recipe: Mapping[str, Any]
) -> list[Tensor]:
    seed, number, shared = recipe["seed"], recipe["number"], recipe.get("disjoint")
    if shared is None:
        drawn = random_mask(layers, ones, seed, number)
    else:
        drawn = disjoint_mask(layers, shared, seed, number)
    return [pack(drawn[layer.name].reshape(layer.units, layer.fan_in)) for layer in layers]


def _digest(packed: Sequence[Tensor]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for each in packed:
        digest.update(each.cpu().contiguous().numpy().data)
    return digest.digest()
