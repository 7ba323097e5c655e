"""`WeightCache`: the effective weights of the tasks used last, so that none are mixed again."""

from __future__ import annotations

from collections.abc import Callable

from cachetools import LRUCache
from torch import Tensor

from impresslearn.kernels.forking import ForkableLock

Weights = dict[str, Tensor]


def _size(weights: Weights) -> int:
    return sum(weight.nbytes for weight in weights.values())


class WeightCache:
    """Effective weights by name, those used longest ago dropped first; for any number of threads.

    - `limit`: bytes of weights to keep.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._weights: LRUCache[str, Weights] = LRUCache(limit, getsizeof=_size)
        self._lock = ForkableLock()

    def get(self, name: str, make: Callable[[], Weights], evict_others: bool = True) -> Weights:
        """The weights kept under `name`, made if they are not there.

        - `name`: the key of these weights.
        - `make`: mixes the weights; runs without the lock, so that other threads are served.
        - `evict_others`: False keeps new weights only where there is room, so that going through
          all tasks once does not drop the weights in use.
        """
        with self._lock:
            weights = self._weights.get(name)
        if weights is not None:
            return weights
        weights = make()
        with self._lock:
            # Another thread may have kept equal weights meanwhile: all threads share its tensors.
            already = self._weights.get(name)
            if already is not None:
                return already
            room = self.limit - self._weights.currsize
            if _size(weights) <= (self.limit if evict_others else room):
                self._weights[name] = weights
        return weights
