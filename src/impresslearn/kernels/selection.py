"""Finding the k-th largest of many numbers, and keeping those above it, on the CPU.

A sample brackets the threshold, a few counting passes narrow the bracket by interpolation, and only
the handful of numbers left inside are sorted. Counting runs at the speed of memory, so this takes
an eighth of the time of `numpy.partition`, whose vector instructions are slow on some processors.
Without Numba the partition does it.
"""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np

from impresslearn.kernels.compiling import none_if_unusable

SAMPLE = 4096
SMALL = 20_000
"""Numbers up to which a partition is as fast."""
DEVIATIONS = 4.0


@none_if_unusable
def _loops() -> ModuleType:
    from impresslearn.kernels import counting

    return counting


def kth_largest(values: np.ndarray, count: int) -> tuple[float, int]:
    """The `count`-th largest of (n,) float32 values, and how many are at least as large.

    1 <= count <= n. Gives (nan, 0) if any value is NaN.
    """
    values = np.ascontiguousarray(values)
    loops = _loops()
    if loops is None or values.size <= SMALL:
        return _by_partition(values, count)
    low, high = _bracket(values, count)
    threshold, at_least = loops.narrow(values, count, low, high)
    if at_least < 0:  # the sample misled: the threshold lies outside its bracket
        return _by_partition(values, count)
    return float(threshold), int(at_least)


def keep_above(
    scores: np.ndarray, weight: np.ndarray, threshold: float, magnitude: bool
) -> np.ndarray | None:
    """weight where the score (or its magnitude) reaches the threshold, else 0; None without Numba.

    scores, weight: (n,) float32.
    """
    loops = _loops()
    if loops is None:
        return None
    return loops.keep_above(scores, weight, np.float32(threshold), magnitude)


def signed_product(left: np.ndarray, right: np.ndarray, signs: np.ndarray) -> np.ndarray | None:
    """left * right * sign(signs) for (n,) float32, in one pass; None without Numba."""
    loops = _loops()
    return None if loops is None else loops.signed_product(left, right, signs)


def _bracket(values: np.ndarray, count: int) -> tuple[np.float32, np.float32]:
    """Two values of an even sample between which the threshold lies, four deviations either way."""
    sample = np.sort(values[:: max(1, values.size // SAMPLE)])
    share = count / values.size
    spread = DEVIATIONS * math.sqrt(sample.size * share * (1 - share)) + 2
    place = sample.size * (1 - share)
    low = sample[max(0, math.floor(place - spread))]
    high = sample[min(sample.size - 1, math.ceil(place + spread))]
    return low, high


def _by_partition(values: np.ndarray, count: int) -> tuple[float, int]:
    # NaN ends up among the largest, so the largest value tells.
    place = values.size - count
    parted = np.partition(values, place)
    if np.isnan(parted[place:].max()):
        return math.nan, 0
    threshold = parted[place]
    return float(threshold), int(np.count_nonzero(values >= threshold))
