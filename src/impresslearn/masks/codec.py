"""Codec of binary masks, with a size close to their entropy.

The density of a trained mask varies by row and by column: useful units and inputs keep more weights
than others. So the codec divides the rows of a layer into classes a and its columns into classes b.
Two classes define a block, and the weights in a block are coded as independent draws with the
block's density p. A density is one of these levels:

    P(mask_ij = 1) = p(level[a_i, b_j]),    p(-n) = (32 - n mod 16) / 2^(6 + n div 16) = 1 - p(n)

Here p(0) = 1/2, and sixteen levels halve the density. One range coder (`constriction`) writes each
layer's classes, levels and weights. Decoding uses integers and dyadic fractions, which floats hold
exactly, so every machine gets the same bits. A trained mask of LeNet-300-100 takes 12.2 kB;
independent bits would take 15.0 kB and one bit per weight 33.3 kB. The result is the byte FORMAT,
then the coder's 32-bit words, little-endian.

`find_classes` searches for R classes of rows and C classes of columns with the fewest bits:

    Σ_blocks n H(ones / n)  +  rows · log2 R  +  columns · log2 C  +  BLOCK_BITS · R · C

It sorts rows and columns by density and cuts them into R and C equal parts. Then it moves each row
and column a few times to the class that fits it best. It uses floats, so another machine may find
other classes; the decoder reads them from the stream.
"""

from collections.abc import Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
from constriction import stream
from numpy.typing import NDArray

from impresslearn.errors import StoreDamagedError

Mask = NDArray[np.bool_]
Integers = NDArray[np.int64]
Counts = NDArray[np.float64]
Floats = NDArray[np.float32]
Classes = tuple[Integers, Integers]  # of rows and of columns

FORMAT = 1
WORD = np.dtype("<u4")
HALVING = 16
LAST_LEVEL = 14 * HALVING
LEVELS = 2 * LAST_LEVEL + 1
STEPS = 6
# Codes of a block: only zeros, only ones, or MIXED + k for the k-th level of the layer.
ZEROS, ONES, MIXED = 0, 1, 2

MAX_CLASSES = 64
BLOCK_BITS = 4.5  # approximate bits for the density of a block
# Numbers of classes to try. Other numbers, and joining classes, saved at most 0.8% of the bytes.
ROW_CLASSES, COLUMN_CLASSES = (1, 2, 4, 8, 16, 24), (1, 2, 4, 8, 12)
MOVES, LAST_MOVES = 3, 10


def encode_mask(layers: Sequence[Mask]) -> bytes:
    """Encodes a mask: booleans (units, fan_in) for every maskable layer, in order."""
    writer = Writer()
    for mask in layers:
        code_layer(writer, mask)
    return bytes([FORMAT]) + writer.coder.get_compressed().astype(WORD).tobytes()


def decode_mask(blob: bytes, shapes: Sequence[tuple[int, int]]) -> list[Mask]:
    """Decodes layers of these shapes (units, fan_in). Raises StoreDamagedError for other bytes."""
    if not blob or blob[0] != FORMAT or (len(blob) - 1) % WORD.itemsize:
        got = f"{len(blob)} bytes that begin with {list(blob[:1])}"
        raise StoreDamagedError(f"a mask must be the byte {FORMAT} and 32-bit words, got {got}")
    reader = Reader(np.frombuffer(blob[1:], WORD))
    try:
        layers = [code_layer(reader, np.zeros(shape, np.bool_)) for shape in shapes]
    except AssertionError:  # the coder raises it for words that it cannot have written
        raise StoreDamagedError("a stored mask is damaged: its words cannot be decoded") from None
    if not reader.coder.maybe_exhausted():
        raise StoreDamagedError("a stored mask is damaged or of larger layers: bytes are left over")
    return layers


class Writer:
    """Encodes values. `Reader` has the same methods and decodes the values in the same order."""

    def __init__(self) -> None:
        self.coder: Any = stream.queue.RangeEncoder()

    def code(self, values: Any, model: Any) -> Integers:
        """Codes integers by a model; a reader uses only their number."""
        values = np.asarray(values, np.int64)
        if values.size:
            self.coder.encode(values.astype(np.int32), model)
        return values

    def numbers(self, values: Any, size: int) -> Integers:
        """Codes equally likely numbers from 0 to size - 1; for size 1 nothing is written."""
        return self.code(values, stream.model.Uniform(size)) if size > 1 else values

    def number(self, value: int, size: int) -> int:
        """Codes one number as `numbers` does."""
        return int(self.numbers([value], size)[0])


class Reader(Writer):
    """Decodes 32-bit words. Raises AssertionError for words that `Writer` cannot have written."""

    def __init__(self, words: NDArray[Any]) -> None:
        # The coder needs words in the byte order of this machine.
        self.coder = stream.queue.RangeDecoder(words.astype(np.uint32))

    def code(self, values: Any, model: Any) -> Integers:
        """Decodes `len(values)` integers."""
        count = len(values)
        return self.coder.decode(model, count).astype(np.int64) if count else np.zeros(0, np.int64)


def density(level: int) -> float:
    """p(level), the share of ones in a block: a fraction of 2^20, hence exact in a float."""
    octave, part = divmod(abs(level), HALVING)
    smaller = (2 * HALVING - part) / (1 << (6 + octave))
    return smaller if level <= 0 else 1 - smaller


@cache
def _weights_at(level: int) -> stream.model.Model:
    return stream.model.Bernoulli(density(level), perfect=False)


def code_layer(coder: Writer, mask: Mask) -> Mask:
    """Codes a layer's mask (units, fan_in). A reader gets zeros and returns the decoded mask."""
    labels, spans = [], []
    for axis in find_classes(mask):
        most = max(1, min(len(axis), MAX_CLASSES))
        classes = 1 + coder.number(int(axis.max(initial=0)), most)
        labels.append(coder.numbers(axis, classes))
        ends = np.cumsum(np.bincount(labels[-1], minlength=classes)).tolist()
        spans.append([slice(*pair) for pair in pairwise([0, *ends])])
    # Sort rows and columns by class, so that each block is a rectangle at a known place.
    by_row, by_column = (np.argsort(axis, kind="stable") for axis in labels)
    grouped, places = mask[by_row].take(by_column, axis=1), list(product(*spans))
    ones = np.array([np.count_nonzero(grouped[place]) for place in places])
    sizes = np.array([grouped[place].size for place in places])
    (lowest, step, levels), codes = _choose_levels(ones, sizes)
    lowest = coder.number(lowest + LAST_LEVEL, LEVELS) - LAST_LEVEL
    step = 1 << coder.number(step.bit_length() - 1, STEPS)
    levels = 1 + coder.number(levels - 1, LEVELS)
    codes = coder.numbers(codes, MIXED + levels)
    if lowest + step * (int(codes.max()) - MIXED) > LAST_LEVEL:
        raise StoreDamagedError("stored positions are damaged: their density does not exist")
    for place, code in zip(places, codes.tolist(), strict=True):
        block = grouped[place]
        if code < MIXED:
            block[:] = code == ONES
            continue
        weights = coder.code(block.ravel(), _weights_at(lowest + step * (code - MIXED)))
        block[:] = weights.reshape(block.shape)
    return grouped[np.argsort(by_row)].take(np.argsort(by_column), axis=1)


def _choose_levels(ones: Integers, sizes: Integers) -> tuple[tuple[int, int, int], Integers]:
    """The lowest level, step and number of levels with the fewest bits, and each block's code."""
    mixed = (ones > 0) & (ones < sizes)
    codes = np.where(ones > 0, ONES, ZEROS)
    if not mixed.any():
        return (0, 1, 1), codes
    p = np.array([density(level) for level in range(-LAST_LEVEL, LAST_LEVEL + 1)])
    zeros = sizes - ones
    bits = -np.outer(ones[mixed], np.log2(p)) - np.outer(zeros[mixed], np.log2(1 - p))
    best = np.inf
    for step in (1 << exponent for exponent in range(STEPS)):
        index = step * bits[:, ::step].argmin(1)
        lowest = int(index.min())
        levels = 1 + (int(index.max()) - lowest) // step
        total = bits[np.arange(len(index)), index].sum() + codes.size * np.log2(MIXED + levels)
        if total < best:
            best, palette = total, (lowest - LAST_LEVEL, step, levels)
            codes[mixed] = MIXED + (index - lowest) // step
    return palette, codes


@np.errstate(invalid="ignore")  # matrix kernels may read past an edge and warn of those values
def find_classes(mask: Mask) -> Classes:
    """The class of each row and of each column of a mask (units, fan_in), numbered from 0."""
    single = np.zeros(len(mask), np.int64), np.zeros(mask.shape[1], np.int64)
    if mask.all() or not mask.any():
        return single
    weights = mask.astype(np.float32)  # floats, so that matrix products count ones
    best, fewest = single, np.inf
    for row_classes, column_classes in product(ROW_CLASSES, COLUMN_CLASSES):
        parts = _parts(weights.sum(1), row_classes), _parts(weights.sum(0), column_classes)
        moved = _move(weights, *parts, MOVES)
        bits = _bits(weights, *moved)
        if bits < fewest:
            best, fewest = moved, bits
    return _move(weights, *best, LAST_MOVES)


def _parts(counts: Floats, classes: int) -> Integers:
    """The class of each row or column: sorted by the number of ones, cut into equal parts."""
    places = np.argsort(np.argsort(counts, kind="stable"))
    return _numbered(places * classes // len(counts))


def _move(weights: Floats, rows: Integers, columns: Integers, times: int) -> Classes:
    """Moves every row, then every column, to the class with the fewest bits; `times` times."""
    for _ in range(times):
        rows = _numbered(_nearest(weights, rows, columns))
        columns = _numbered(_nearest(weights.T, columns, rows))
    return rows, columns


def _nearest(weights: Floats, rows: Integers, columns: Integers) -> Integers:
    """The best class of each row, given the columns' classes and the present block densities."""
    along, ones, sizes = _count(weights, rows, columns)
    # A prior of 0.8 weights, so that a block with only zeros can still accept a row with a one.
    density = (ones + 0.4) / (sizes + 0.8)
    zeros = np.bincount(columns) - along
    gain: Counts = along @ np.log2(density).T + zeros @ np.log2(1 - density).T
    return gain.argmax(1)


def _bits(weights: Floats, rows: Integers, columns: Integers) -> float:
    """The bits of the classes plus the bits of the weights at the densities of their blocks."""
    _, ones, sizes = _count(weights, rows, columns)
    counts = (sizes, ones, sizes - ones)
    all_weights, of_ones, of_zeros = (count * np.log2(np.maximum(count, 1)) for count in counts)
    labels = len(rows) * np.log2(ones.shape[0]) + len(columns) * np.log2(ones.shape[1])
    return float((all_weights - of_ones - of_zeros).sum() + labels + BLOCK_BITS * ones.size)


def _count(weights: Floats, rows: Integers, columns: Integers) -> tuple[Floats, Counts, Counts]:
    """The ones of each row by column class, (units, classes); ones and sizes of all blocks."""
    along = weights @ _one_hot(columns)
    ones = np.matmul(_one_hot(rows).T, along, dtype=np.float64)
    return along, ones, np.outer(np.bincount(rows), np.bincount(columns)).astype(np.float64)


def _numbered(labels: Integers) -> Integers:
    """The same classes, numbered without gaps."""
    return np.unique(labels, return_inverse=True)[1]


def _one_hot(labels: Integers) -> NDArray[np.float32]:
    return np.eye(labels.max(initial=0) + 1, dtype=np.float32)[labels]
