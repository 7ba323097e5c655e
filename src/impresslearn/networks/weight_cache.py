"""`WeightCache`: the effective weights of the tasks used last, so that none are mixed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from impresslearn.kernels.forking import ForkableLock

Weights = dict[str, Tensor]
PACKED_SHARE = 0.25
"""Of the bytes of weights, at most, as their values that are not zero: others stay as they are."""


@dataclass(frozen=True)
class _Packed:
    """A tensor of few values that are not zero: these, and where they are."""

    shape: torch.Size
    places: Tensor
    values: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Tensor | _Packed:
        """The tensor itself where that would save little."""
        flat = weight.flatten()
        places = flat.nonzero().flatten()
        if len(places) * (4 + flat.element_size()) > PACKED_SHARE * weight.nbytes:
            return weight
        return cls(weight.shape, places.int(), flat[places])

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.values.nbytes

    def unpack(self) -> Tensor:
        found = self.values.new_zeros(self.shape.numel())
        return found.index_copy_(0, self.places.long(), self.values).view(self.shape)


class WeightCache:
    """Effective weights by name, bounded in bytes; for any number of threads.

    Where room is short, weights that are mostly zero, such as those of numbers on single weights,
    are packed, the ones used longest ago first, before any are dropped.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: OrderedDict[str, Mapping[str, Tensor | _Packed]] = OrderedDict()
        self._unpacked: OrderedDict[str, None] = OrderedDict()  # those that nobody tried to pack
        self._bytes = 0
        self._lock = ForkableLock()

    def get(self, name: str, make: Callable[[], Weights], displace: bool = True) -> Weights:
        """The weights kept under `name`, made if they are not there.

        displace: whether what is made is kept in place of others where there is no more room.
        Other threads are served while weights are made; those that want the same make their own.
        """
        with self._lock:
            found = self._kept.get(name)
            for order in (self._kept, self._unpacked):
                if name in order:
                    order.move_to_end(name)
        weights = make() if found is None else _unpacked(found)
        if weights is found or not (found is None or displace):
            return weights
        with self._lock:
            return self._keep(name, weights, displace)

    def _keep(self, name: str, weights: Weights, displace: bool) -> Weights:
        """Those that another thread kept meanwhile, or these."""
        old, size = self._kept.get(name), _size(weights)
        if old is not None and (kept := _unpacked(old)) is old:
            return kept
        if size > self.limit:
            return weights
        if old is not None:
            self._bytes -= _size(self._kept.pop(name))
        while self._bytes + size > self.limit and self._unpacked:
            self._pack(self._unpacked.popitem(last=False)[0])
        if self._bytes + size > self.limit and not displace:
            return weights
        self._kept[name], self._unpacked[name] = weights, None
        self._bytes += size
        # A fork in between may have copied a sum that is not that of what is kept.
        while self._kept and self._bytes > self.limit:
            oldest, dropped = self._kept.popitem(last=False)
            self._unpacked.pop(oldest, None)
            self._bytes -= _size(dropped)
        return weights

    def _pack(self, name: str) -> None:
        if (whole := self._kept.get(name)) is None:
            return
        packed = {key: _Packed.of(w) if isinstance(w, Tensor) else w for key, w in whole.items()}
        if (saved := _size(whole) - _size(packed)) > 0:
            self._bytes -= saved
            self._kept[name] = packed


def _unpacked(weights: Mapping[str, Tensor | _Packed]) -> Weights:
    """The weights; the same object where none is packed."""
    if all(isinstance(weight, Tensor) for weight in weights.values()):
        return cast(Weights, weights)
    return {key: w if isinstance(w, Tensor) else w.unpack() for key, w in weights.items()}


def _size(weights: Mapping[str, Tensor | _Packed]) -> int:
    return sum(weight.nbytes for weight in weights.values())
