"""Entropy-codes integers: all tensors of a task in one stream of a range coder.

Numbers of a vector are independent draws, most of them near zero:

    P(0) = z / 256,    P(+-k) = (1 - z / 256) / 2 · (1 - r / 256) (r / 256)^(k - 1),  k >= 1

A matrix has a number for each weight of a layer. Which of them are not zero is written as
`masks.codec` writes a mask, by classes of rows and columns; those that are not have

    P(+k) = p / 255 · (1 - r / 256) (r / 256)^(k - 1) = P(-k) p / (255 - p),  k >= 1

The two bytes z and r, or p and r, are chosen for each tensor and kept beside it. All tensors share
one stream (`constriction`), so that it is rounded up to whole words once. The models' masses are
whole fractions of 2^24, so every machine decodes the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from constriction import stream
from numpy.typing import NDArray

from impresslearn.masks.codec import read_layer, write_layer

LARGEST = 127  # the largest magnitude that can be coded
WORD = np.dtype("<u4")
WHOLE = 1 << 24
MODEL_BYTES = 2

Levels = NDArray[np.int64]


def encode_levels(tensors: Sequence[Levels]) -> tuple[list[bytes], bytes]:
    """Integers of magnitude up to LARGEST: the model of each tensor, and the stream of all.

    tensors: vectors, or matrices (units, fan_in). Raises ValueError for a larger magnitude.
    """
    coder = stream.queue.RangeEncoder()
    models = []
    for levels in tensors:
        if np.abs(levels).max(initial=0) > LARGEST:
            raise ValueError(f"only integers from -{LARGEST} to {LARGEST} can be coded")
        models.append((_write_matrix if levels.ndim == 2 else _write_vector)(coder, levels))
    return models, coder.get_compressed().astype(WORD).tobytes()


def decode_levels(
    models: Sequence[bytes], shapes: Sequence[tuple[int, ...]], content: bytes
) -> list[Levels]:
    """The tensors of these shapes that `encode_levels` got.

    Raises ValueError for bytes that cannot be a code of them.
    """
    if len(content) % WORD.itemsize:
        raise ValueError(f"coded numbers must be whole 32-bit words, got {len(content)} bytes")
    coder = stream.queue.RangeDecoder(np.frombuffer(content, WORD).astype(np.uint32))
    tensors = []
    try:
        for (first, ratio), shape in zip(models, shapes, strict=True):
            read = _read_matrix if len(shape) == 2 else _read_vector
            tensors.append(read(coder, first, ratio, *shape))
    except AssertionError:  # the coder cannot have encoded these words
        raise ValueError("coded numbers are damaged: their words cannot be decoded") from None
    if not coder.maybe_exhausted():
        raise ValueError("coded numbers are damaged or of larger tensors: bytes are left over")
    return tensors


def coded_bits(levels: Levels) -> float:
    """The code length of a vector in its own model, without the model's two bytes."""
    zero_byte, ratio_byte = _fitted(levels)
    zeros, ratio = zero_byte / 256, ratio_byte / 256
    size = np.abs(levels).sum()
    used = np.count_nonzero(levels)
    bits = -(levels.size - used) * math.log2(zeros)
    if used:
        bits -= used * math.log2((1 - zeros) / 2 * (1 - ratio))
    return bits - (size - used) * math.log2(max(ratio, 1 / WHOLE))


def _write_vector(coder: Any, levels: Levels) -> bytes:
    zeros, ratio = _fitted(levels)
    coder.encode((levels + LARGEST).astype(np.int32), _two_sided(zeros, ratio))
    return bytes([zeros, ratio])


def _read_vector(coder: Any, zeros: int, ratio: int, count: int) -> Levels:
    if zeros == 0:
        raise ValueError("a model of coded numbers needs P(0) above 0")
    return coder.decode(_two_sided(zeros, ratio), count).astype(np.int64) - LARGEST


def _write_matrix(coder: Any, levels: Levels) -> bytes:
    mask = levels != 0
    write_layer(coder, mask)
    values = levels[mask]
    sizes, positive = np.abs(values), values > 0
    both = positive.any() and not positive.all()
    share = min(max(round(255 * positive.mean()), 1), 254) if both else 255 * positive.any()
    ratio = max(_ratio(sizes), int(sizes.max(initial=1) > 1))  # 0 where all are 1
    if both:
        coder.encode(positive.astype(np.int32), _signs(share))
    if ratio:
        coder.encode((sizes - 1).astype(np.int32), _one_sided(ratio))
    return bytes([share, ratio])


def _read_matrix(coder: Any, share: int, ratio: int, units: int, fan_in: int) -> Levels:
    mask = read_layer(coder, units, fan_in)
    count = int(np.count_nonzero(mask))
    positive = np.full(count, share == 255)
    if 0 < share < 255:
        positive = coder.decode(_signs(share), count) > 0
    sizes = np.ones(count, np.int64)
    if ratio:
        sizes += coder.decode(_one_sided(ratio), count)
    levels = np.zeros(mask.shape, np.int64)
    levels[mask] = np.where(positive, sizes, -sizes)
    return levels


def _fitted(levels: Levels) -> tuple[int, int]:
    """z and r of greatest likelihood, rounded."""
    count, used = levels.size, int(np.count_nonzero(levels))
    zeros = round(256 * (count - used) / count) if count else 255
    return min(max(zeros, 1), 255), _ratio(np.abs(levels[levels != 0]))


def _ratio(sizes: Levels) -> int:
    """r of greatest likelihood for sizes from 1 on, rounded."""
    return min(round(256 * (1 - len(sizes) / int(sizes.sum()))), 255) if len(sizes) else 0


@lru_cache(maxsize=256)
def _signs(share: int) -> stream.model.Model:
    return stream.model.Bernoulli((WHOLE * share // 255) / WHOLE, perfect=False)


@lru_cache(maxsize=256)
def _one_sided(ratio: int) -> stream.model.Model:
    """Sizes from 1 on."""
    masses = np.array(_tail(WHOLE, ratio), dtype=np.int64)
    masses[0] += WHOLE - masses.sum()
    return stream.model.Categorical(masses / WHOLE, perfect=False)


@lru_cache(maxsize=256)
def _two_sided(zeros: int, ratio: int) -> stream.model.Model:
    tail = _tail((WHOLE * (256 - zeros)) // 512, ratio)
    masses = np.array([*reversed(tail), 0, *tail], dtype=np.int64)
    masses[LARGEST] = WHOLE - masses.sum()
    return stream.model.Categorical(masses / WHOLE, perfect=False)


def _tail(left: int, ratio: int) -> list[int]:
    """The masses of the sizes 1 to LARGEST, out of what is left for them.

    Each is at least 1, so that what the model finds absurd can be coded.
    """
    tail = []
    for _ in range(LARGEST):
        mass = left * (256 - ratio) // 256
        tail.append(max(mass, 1))
        left -= mass
    return tail
