"""Entropy coding of whole numbers: how coded coefficients become bytes.

The numbers of a tensor are independent draws, most of them near zero:

    P(0) = z / 256,    P(+-k) = (1 - z / 256) / 2 · (1 - r / 256) (r / 256)^(k - 1),  k >= 1

The two bytes z and r are chosen for each tensor and kept beside it; all tensors of a task share one
stream of a range coder (`constriction`), so that it is rounded up to whole words once. The model's
masses are whole fractions of 2^24, so every machine decodes the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from constriction import stream
from numpy.typing import NDArray

LARGEST = 127
"""The largest magnitude that can be coded."""
WORD = np.dtype("<u4")
WHOLE = 1 << 24
MODEL_BYTES = 2

Levels = NDArray[np.int64]


def encode_levels(tensors: Sequence[Levels]) -> tuple[list[bytes], bytes]:
    """Whole numbers of magnitude up to LARGEST: the model of each tensor, and the stream of all.

    Raises ValueError for a larger magnitude.
    """
    coder = stream.queue.RangeEncoder()
    models = []
    for levels in tensors:
        if np.abs(levels).max(initial=0) > LARGEST:
            raise ValueError(f"only whole numbers from -{LARGEST} to {LARGEST} can be coded")
        zeros, ratio = _fitted(levels)
        coder.encode((levels.ravel() + LARGEST).astype(np.int32), _model(zeros, ratio))
        models.append(bytes([zeros, ratio]))
    return models, coder.get_compressed().astype(WORD).tobytes()


def decode_levels(models: Sequence[bytes], counts: Sequence[int], content: bytes) -> list[Levels]:
    """The flat tensors that `encode_levels` got; counts: how many numbers each has.

    Any bytes give either whole numbers within the bounds or a ValueError.
    """
    if len(content) % WORD.itemsize:
        raise ValueError(f"coded numbers must be whole 32-bit words, got {len(content)} bytes")
    coder = stream.queue.RangeDecoder(np.frombuffer(content, WORD).astype(np.uint32))
    found = []
    for model, count in zip(models, counts, strict=True):
        if len(model) != MODEL_BYTES or model[0] == 0:
            raise ValueError("a model of coded numbers needs P(0) above 0")
        try:
            symbols = coder.decode(_model(*model), count)
        except AssertionError:  # how the coder reports words that no message is encoded to
            raise ValueError("coded numbers are damaged: their words are no message") from None
        found.append(symbols.astype(np.int64) - LARGEST)
    if not coder.maybe_exhausted():
        raise ValueError("coded numbers are damaged or of larger tensors: bytes are left over")
    return found


def _fitted(levels: Levels) -> tuple[int, int]:
    """z and r of greatest likelihood, rounded."""
    count, used = levels.size, int(np.count_nonzero(levels))
    zeros = round(256 * (count - used) / count) if count else 255
    ratio = round(256 * (1 - used / int(np.abs(levels).sum()))) if used else 0
    return min(max(zeros, 1), 255), min(ratio, 255)


@lru_cache(maxsize=256)
def _model(zeros: int, ratio: int) -> stream.model.Model:
    """Every number keeps a mass of at least 1, so that what the model finds absurd can be coded."""
    left = (WHOLE * (256 - zeros)) // 512
    tail = []
    for _ in range(LARGEST):
        mass = left * (256 - ratio) // 256
        tail.append(max(mass, 1))
        left -= mass
    masses = np.array([*reversed(tail), 0, *tail], dtype=np.int64)
    masses[LARGEST] = WHOLE - masses.sum()
    return stream.model.Categorical(masses / WHOLE, perfect=False)
