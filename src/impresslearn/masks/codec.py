"""Codec of binary masks: bytes near their entropy.

The rows of a layer fall into classes a, its columns into classes b, and every weight (i, j) is an
independent draw at the density of its block:

    P(mask_ij = 1) = p(level[a_i, b_j]),    p(-n) = (32 - n mod 16) / 2^(6 + n div 16) = 1 - p(n)

so p(0) = 1/2, and sixteen levels halve it. One range coder (`constriction`) holds, layer after
layer, the classes, the levels and the weights block by block. Decoding is integers and dyadic
fractions, which floats hold exactly, so every machine gets the same bits. `codec_classes`
finds classes that pay; a mask without structure is one block a layer and costs its entropy.
A mask's bytes are FORMAT, then the coder's 32-bit words, little-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from constriction import stream
from numpy.typing import NDArray

from impresslearn.errors import StoreError
from impresslearn.masks.codec_classes import MOST_CLASSES, Integers, find_classes, sorted_places

Mask = NDArray[np.bool_]

FORMAT = 1
WORD = np.dtype("<u4")
HALVING = 16
LAST_LEVEL = 14 * HALVING
LEVELS = 2 * LAST_LEVEL + 1
STEPS = 6
ZEROS, ONES, MIXED = 0, 1, 2
"""Codes of a block: nothing but zeros, nothing but ones, or MIXED + k, the k-th of its levels."""


class Palette(NamedTuple):
    """The densities that a layer's blocks may have: levels from `lowest` on, `step` apart."""

    lowest: int
    step: int
    levels: int

    def level(self, code: int) -> int:
        """The level of a block with this code, which is not ZEROS or ONES."""
        return self.lowest + self.step * (code - MIXED)


def encode_mask(layers: Sequence[Mask]) -> bytes:
    """A mask as bytes: booleans (units, fan_in) for every maskable layer, in order."""
    coder = stream.queue.RangeEncoder()
    for mask in layers:
        write_layer(coder, mask)
    return bytes([FORMAT]) + coder.get_compressed().astype(WORD).tobytes()


def decode_mask(blob: bytes, shapes: Sequence[tuple[int, int]]) -> list[Mask]:
    """The layers that `encode_mask` got; shapes: (units, fan_in) of each, in order.

    Any bytes give either masks of these shapes or a StoreError, in time and memory that the shapes
    bound. Damage that leaves a possible stream goes unseen: finding it is a checksum's work.
    """
    if not blob or blob[0] != FORMAT:
        found = f"format {blob[0]}" if blob else "no bytes"
        raise StoreError(f"a stored mask must be of format {FORMAT}, got {found}")
    if (len(blob) - 1) % WORD.itemsize:
        raise StoreError(f"a stored mask must be whole 32-bit words, got {len(blob) - 1} bytes")
    coder = stream.queue.RangeDecoder(np.frombuffer(blob[1:], WORD).astype(np.uint32))
    try:
        layers = [read_layer(coder, units, fan_in) for units, fan_in in shapes]
    except AssertionError:  # how the coder reports words that no message is encoded to
        raise StoreError("a stored mask is damaged: its words are no message") from None
    if not coder.maybe_exhausted():
        raise StoreError("a stored mask is damaged or of larger layers: bytes are left over")
    return layers


def density(level: int) -> float:
    """p(level), the share of ones in a block: a fraction of 2^20, hence exact in a float."""
    octave, part = divmod(abs(level), HALVING)
    smaller = (2 * HALVING - part) / (1 << (6 + octave))
    return smaller if level <= 0 else 1 - smaller


@cache
def _weights_at(level: int) -> stream.model.Model:
    return stream.model.Bernoulli(density(level), perfect=False)


def write_layer(coder: stream.queue.RangeEncoder, mask: Mask) -> None:
    """Adds the mask of a layer, booleans (units, fan_in), to a stream."""

    def write(values: Any, size: int) -> None:
        """Numbers from 0 to size - 1, each as likely; of size 1 there is nothing to tell."""
        if size > 1:
            coder.encode(np.array(values, np.int32, ndmin=1), stream.model.Uniform(size))

    labels = find_classes(mask)
    classes = [1 + int(each.max(initial=0)) for each in labels]
    by_row, by_column = (np.argsort(each, kind="stable") for each in labels)
    grouped = mask[by_row].take(by_column, axis=1)
    blocks = [grouped[place] for place in _places(labels, classes)]
    ones = np.array([np.count_nonzero(block) for block in blocks])
    palette, codes = _choose_levels(ones, np.array([block.size for block in blocks]))
    for each, count in zip(labels, classes, strict=True):
        write(count - 1, _most_classes(len(each)))
        write(each, count)
    write(palette.lowest + LAST_LEVEL, LEVELS)
    write(palette.step.bit_length() - 1, STEPS)
    write(palette.levels - 1, LEVELS)
    write(codes, MIXED + palette.levels)
    for block, code in zip(blocks, codes.tolist(), strict=True):
        if code >= MIXED:
            coder.encode(block.astype(np.int32).ravel(), _weights_at(palette.level(code)))


def read_layer(coder: stream.queue.RangeDecoder, units: int, fan_in: int) -> Mask:
    """The mask that `write_layer` got. Raises StoreError or AssertionError for damage."""

    def read(size: int, count: int = 1) -> Integers:
        if size == 1:
            return np.zeros(count, np.int64)
        return coder.decode(stream.model.Uniform(size), count).astype(np.int64)

    labels, classes = [], []
    for length in (units, fan_in):
        classes.append(1 + int(read(_most_classes(length))[0]))
        labels.append(read(classes[-1], length))
    lowest, exponent, last = (int(read(size)[0]) for size in (LEVELS, STEPS, LEVELS))
    palette = Palette(lowest - LAST_LEVEL, 1 << exponent, 1 + last)
    codes = read(MIXED + palette.levels, classes[0] * classes[1])
    if palette.level(int(codes.max())) > LAST_LEVEL:
        raise StoreError("stored positions are damaged: they have a density that does not exist")
    grouped = np.zeros((units, fan_in), np.bool_)
    for place, code in zip(_places(labels, classes), codes.tolist(), strict=True):
        if code >= MIXED:
            block = grouped[place]
            weights = coder.decode(_weights_at(palette.level(code)), block.size)
            grouped[place] = weights.reshape(block.shape)
        elif code == ONES:
            grouped[place] = True
    rows, columns = map(sorted_places, labels)
    return grouped[rows].take(columns, axis=1)


def _choose_levels(ones: Integers, sizes: Integers) -> tuple[Palette, Integers]:
    """The palette that makes a layer shortest, and each block's code; ones and weights a block."""
    mixed = (ones > 0) & (ones < sizes)
    codes = np.where(ones > 0, ONES, ZEROS)
    if not mixed.any():
        return Palette(lowest=0, step=1, levels=1), codes
    p = np.array([density(level) for level in range(-LAST_LEVEL, LAST_LEVEL + 1)])
    zeros = sizes - ones
    bits = -np.outer(ones[mixed], np.log2(p)) - np.outer(zeros[mixed], np.log2(1 - p))
    best = np.inf
    for step in (1 << exponent for exponent in range(STEPS)):
        index = step * bits[:, ::step].argmin(1)
        lowest = int(index.min())
        candidate = Palette(lowest - LAST_LEVEL, step, 1 + (int(index.max()) - lowest) // step)
        total = bits[np.arange(len(index)), index].sum() + codes.size * np.log2(
            MIXED + candidate.levels
        )
        if total < best:
            best, palette = total, candidate
            codes[mixed] = MIXED + (index - lowest) // step
    return palette, codes


def _places(labels: Sequence[Integers], classes: Sequence[int]) -> list[tuple[slice, slice]]:
    """Where each block lies once rows and columns are sorted by class."""
    spans: list[list[slice]] = []
    for each, count in zip(labels, classes, strict=True):
        ends = np.cumsum(np.bincount(each, minlength=count)).tolist()
        spans.append([slice(*pair) for pair in pairwise([0, *ends])])
    down, across = spans
    return list(product(down, across))


def _most_classes(labels: int) -> int:
    return max(1, min(labels, MOST_CLASSES))
