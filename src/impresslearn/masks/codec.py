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
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from constriction import stream
from numpy.typing import NDArray

from impresslearn.errors import StoreError
from impresslearn.masks.codec_classes import (
    MOST_CLASSES,
    Integers,
    find_classes,
    sorted_places,
)

Mask = NDArray[np.bool_]

FORMAT = 1
WORD = np.dtype("<u4")
HALVING = 16
LAST_LEVEL = 14 * HALVING
LEVELS = 2 * LAST_LEVEL + 1
STEPS = 6
ZEROS, ONES, MIXED = 0, 1, 2
"""Codes of a block: nothing but zeros, nothing but ones, or MIXED + k, the k-th of its levels."""


def encode_mask(layers: Sequence[Mask]) -> bytes:
    """A mask as bytes: booleans (units, fan_in) for every maskable layer, in order."""
    writer = _Writer()
    for mask in layers:
        _write_layer(writer, mask)
    return bytes([FORMAT]) + writer.words()


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
    reader = _Reader(blob[1:])
    layers = [_read_layer(reader, units, fan_in) for units, fan_in in shapes]
    reader.finish()
    return layers


def density(level: int) -> float:
    """p(level), the share of ones in a block: a fraction of 2^20, hence exact in a float."""
    octave, part = divmod(abs(level), HALVING)
    smaller = (2 * HALVING - part) / (1 << (6 + octave))
    return smaller if level <= 0 else 1 - smaller


@dataclass(frozen=True)
class Palette:
    """The levels that a layer's blocks may have: `count` of them from `lowest` on, `step` apart."""

    lowest: int
    step: int
    count: int

    @property
    def codes(self) -> int:
        """How many codes a block may have."""
        return MIXED + self.count

    def level(self, code: int) -> int:
        """The level of a block with this code, which is not ZEROS or ONES."""
        return self.lowest + self.step * (code - MIXED)


class _Writer:
    """Numbers and weights into one stream."""

    def __init__(self) -> None:
        self._coder = stream.queue.RangeEncoder()

    def number(self, value: int, size: int) -> None:
        self.numbers(np.array([value]), size)

    def numbers(self, values: Integers, size: int) -> None:
        """Numbers from 0 to size - 1, each as likely; of size 1 there is nothing to tell."""
        if size > 1:
            self._coder.encode(values.astype(np.int32).ravel(), stream.model.Uniform(size))

    def weights(self, block: Mask, level: int) -> None:
        self._coder.encode(block.astype(np.int32).ravel(), _weights_at(level))

    def words(self) -> bytes:
        return bytes(self._coder.get_compressed().astype(WORD).data)


class _Reader:
    """The same numbers and weights out of it; StoreError where no writer can have written it."""

    def __init__(self, words: bytes) -> None:
        self._coder = stream.queue.RangeDecoder(np.frombuffer(words, WORD).astype(np.uint32))

    def number(self, size: int) -> int:
        return int(self.numbers(1, size)[0])

    def numbers(self, count: int, size: int) -> Integers:
        if size == 1:
            return np.zeros(count, np.int64)
        return self._decode(stream.model.Uniform(size), count).astype(np.int64)

    def weights(self, shape: tuple[int, ...], level: int) -> NDArray[np.int32]:
        return self._decode(_weights_at(level), shape[0] * shape[1]).reshape(shape)

    def finish(self) -> None:
        if not self._coder.maybe_exhausted():
            raise StoreError("a stored mask is damaged or of larger layers: bytes are left over")

    def _decode(self, model: stream.model.Model, count: int) -> NDArray[np.int32]:
        try:
            symbols: NDArray[np.int32] = self._coder.decode(model, count)
        except AssertionError:  # how the coder reports words that no message is encoded to
            raise StoreError("a stored mask is damaged: its words are no message") from None
        return symbols


@cache
def _weights_at(level: int) -> stream.model.Model:
    return stream.model.Bernoulli(density(level), perfect=False)


def _write_layer(writer: _Writer, mask: Mask) -> None:
    rows, columns = find_classes(mask)
    classes = (1 + int(rows.max(initial=0)), 1 + int(columns.max(initial=0)))
    by_row, by_column = np.argsort(rows, kind="stable"), np.argsort(columns, kind="stable")
    grouped = mask[by_row].take(by_column, axis=1)
    blocks = [grouped[place] for place in _places(rows, columns, classes)]
    palette, codes = _choose_levels(
        np.array([np.count_nonzero(block) for block in blocks]),
        np.array([block.size for block in blocks]),
    )
    for labels, count in zip((rows, columns), classes, strict=True):
        writer.number(count - 1, _most_classes(len(labels)))
        writer.numbers(labels, count)
    writer.number(palette.lowest + LAST_LEVEL, LEVELS)
    writer.number(palette.step.bit_length() - 1, STEPS)
    writer.number(palette.count - 1, LEVELS)
    writer.numbers(codes, palette.codes)
    for block, code in zip(blocks, codes.tolist(), strict=True):
        if code >= MIXED:
            writer.weights(block, palette.level(code))


def _read_layer(reader: _Reader, units: int, fan_in: int) -> Mask:
    row_classes = 1 + reader.number(_most_classes(units))
    rows = reader.numbers(units, row_classes)
    column_classes = 1 + reader.number(_most_classes(fan_in))
    columns = reader.numbers(fan_in, column_classes)
    lowest = reader.number(LEVELS) - LAST_LEVEL
    palette = Palette(lowest, 1 << reader.number(STEPS), 1 + reader.number(LEVELS))
    codes = reader.numbers(row_classes * column_classes, palette.codes)
    if palette.level(int(codes.max())) > LAST_LEVEL:
        raise StoreError("a stored mask is damaged: it has a density that does not exist")
    grouped = np.zeros((units, fan_in), np.bool_)
    places = _places(rows, columns, (row_classes, column_classes))
    for place, code in zip(places, codes.tolist(), strict=True):
        if code >= MIXED:
            grouped[place] = reader.weights(grouped[place].shape, palette.level(code))
        elif code == ONES:
            grouped[place] = True
    return grouped[sorted_places(rows)].take(sorted_places(columns), axis=1)


def _choose_levels(ones: Integers, sizes: Integers) -> tuple[Palette, Integers]:
    """The palette that makes a layer shortest, and each block's code; ones and weights a block."""
    mixed = (ones > 0) & (ones < sizes)
    codes = np.where(ones > 0, ONES, ZEROS)
    if not mixed.any():
        return Palette(lowest=0, step=1, count=1), codes
    p = np.array([density(level) for level in range(-LAST_LEVEL, LAST_LEVEL + 1)])
    zeros = sizes - ones
    bits = -np.outer(ones[mixed], np.log2(p)) - np.outer(zeros[mixed], np.log2(1 - p))
    best = np.inf
    for step in (1 << exponent for exponent in range(STEPS)):
        index = step * bits[:, ::step].argmin(1)
        lowest = int(index.min())
        candidate = Palette(lowest - LAST_LEVEL, step, 1 + (int(index.max()) - lowest) // step)
        total = bits[np.arange(len(index)), index].sum() + codes.size * np.log2(candidate.codes)
        if total < best:
            best, palette = total, candidate
            codes[mixed] = MIXED + (index - lowest) // step
    return palette, codes


def _places(
    rows: Integers, columns: Integers, classes: tuple[int, int]
) -> list[tuple[slice, slice]]:
    """Where each block lies once rows and columns are sorted by class."""
    down, across = _spans(rows, classes[0]), _spans(columns, classes[1])
    return list(product(down, across))


def _spans(labels: Integers, classes: int) -> list[slice]:
    ends = np.cumsum(np.bincount(labels, minlength=classes)).tolist()
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _most_classes(labels: int) -> int:
    return max(1, min(labels, MOST_CLASSES))
