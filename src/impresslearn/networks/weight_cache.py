"""`WeightCache`: the effective weights of the tasks used last, so that none are mixed again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from impresslearn.kernels.forking import ForkableLock

Weights = dict[str, Tensor]
PACKED_SHARE = 0.25
"""Of the bytes of weights, at most, as their values that are not zero: others stay as they are."""


@dataclass(frozen=True)
class _Packed:
    """A contiguous tensor of few values that are not zero: these, and where they are."""

    shape: torch.Size
    places: Tensor
    values: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Tensor | _Packed:
        """The tensor itself where that would save little."""
        used = int(weight.count_nonzero())
        if used * (4 + weight.element_size()) > PACKED_SHARE * weight.nbytes:
            return weight
        if not weight.is_contiguous() or weight.numel() > torch.iinfo(torch.int32).max:
            return weight
        flat = weight.flatten()
        places = flat.nonzero().flatten()
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
        self._untried: OrderedDict[str, None] = OrderedDict()  # those that may yet be packed
        self._bytes = 0
        self._lock = ForkableLock()

    def get(self, name: str, make: Callable[[], Weights], displace: bool = True) -> Weights:
        """The weights kept under `name`, made if they are not there.

        displace: whether what is made is kept in place of others where there is no more room.
        Other threads are served while weights are made; those that want the same make their own.
        """
        with self._lock:
            found = self._kept.get(name)
            for order in (self._kept, self._untried):
                if name in order:
                    order.move_to_end(name)
        weights = make() if found is None else _unpack(found)
        if weights is found or not (found is None or displace):
            return weights
        size = _size(weights)
        if size <= self.limit:
            self._make_room(size)
        with self._lock:
            return self._keep(name, weights, size, displace)

    def _make_room(self, size: int) -> None:
        """Packs those used longest ago until so many bytes fit; others are served meanwhile."""
        while True:
            with self._lock:
                if self._bytes + size <= self.limit or not self._untried:
                    return
                name, _ = self._untried.popitem(last=False)
                whole = self._kept.get(name, {})
            packed = {k: _Packed.of(w) if isinstance(w, Tensor) else w for k, w in whole.items()}
            saved = _size(whole) - _size(packed)
            with self._lock:
                if saved > 0 and self._kept.get(name) is whole:
                    self._kept[name] = packed
                    self._bytes -= saved

    def _keep(self, name: str, weights: Weights, size: int, displace: bool) -> Weights:
        """Those that another thread kept meanwhile, or these."""
        old = self._kept.get(name)
        if old is not None and _is_whole(old):
            return old
        free = self.limit - self._bytes
        if size > self.limit or not (displace or (old is None and size <= free)):
            return weights
        if old is not None:
            self._bytes -= _size(self._kept.pop(name))
        self._kept[name], self._untried[name] = weights, None
        self._bytes += size
        # A fork in between may have copied a sum that is not that of what is kept.
        while self._kept and self._bytes > self.limit:
            oldest, dropped = self._kept.popitem(last=False)
            self._untried.pop(oldest, None)
            self._bytes -= _size(dropped)
        return weights


def _is_whole(weights: Mapping[str, Tensor | _Packed]) -> TypeGuard[Weights]:
    return all(isinstance(weight, Tensor) for weight in weights.values())


def _unpack(weights: Mapping[str, Tensor | _Packed]) -> Weights:
    """The weights; the same object where none is packed."""
    if _is_whole(weights):
        return weights
    return {key: w if isinstance(w, Tensor) else w.unpack() for key, w in weights.items()}


def _size(weights: Mapping[str, Tensor | _Packed]) -> int:
    return sum(weight.nbytes for weight in weights.values())
