"""Entropy-codes integers: all tensors of a task in one stream, with their models and grids.

The integers are called *levels*. A tensor has a *grid* (a step and an offset), and its values are
offset + step · level. The levels of a vector are coded as independent draws, whose probabilities
have two parameters o and r, the *model* of the vector:

    P(0) = o / (1 + o),    P(+-k) = (1 - P(0)) / 2 · (1 - r) r^(k - 1),  k >= 1

A vector shares the model of the previous vector if the code is then shorter. A matrix holds a level
for each weight of a layer. `masks.codec` writes the positions of its nonzero levels. With a share
p / 255 of positive levels, the values at these positions have the probabilities

    P(+k) = p / 255 · (1 - r) r^(k - 1),    P(-k) = (1 - p / 255) (1 - r) r^(k - 1),  k >= 1

A range coder (`constriction`) writes the stream in words of four bytes, cut after the last byte
that the decoder needs, so levels that are all zero take no byte. Probabilities are multiples of
2^-24, so that every machine decodes the same levels.

Functions with an argument `coder` write or read. A `Writer` encodes the values that it gets; a
`Reader` ignores them and uses only how many there are. Both return the values in the stream.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from constriction import stream
from numpy.typing import NDArray

from impresslearn.masks.codec import Reader, Writer, code_layer

LARGEST = 127  # the largest magnitude that can be coded
WORD = 4  # bytes
TOTAL_MASS = 1 << 24  # a symbol's mass is its probability times this, an integer
# Odds o are (4 + m) / 4 · 2^(e - 4): 16 octaves e with four parts m each. Ratios r: 0, 1/32, …
ODDS = np.array([((4 + k % 4) << (k // 4)) / 64 for k in range(64)])
RATIOS = np.arange(32) / 32
MODEL_BITS = 11  # 64 odds and 32 ratios
# For each odds: bits of a zero, and bits of a nonzero level's sign. For each ratio: bits of
# magnitude 1, and bits of each further unit. At ratio 0, magnitudes above 1 get mass 1.
ZERO_BITS, NONZERO_BITS = np.log2(1 + 1 / ODDS), 1 + np.log2(1 + ODDS)
ONE_BITS, FURTHER_BITS = -np.log2(1 - RATIOS), -np.log2(np.maximum(RATIOS, 1 / TOTAL_MASS))
# Steps and offsets are floats with three bits of mantissa. They cover 40 octaves, from 2^-24 up.
PARTS, OCTAVES, LOWEST_OCTAVE = 8, 40, -24
SMALLEST_STEP, LARGEST_STEP = 2.0**LOWEST_OCTAVE, 15.0 * 2.0 ** (LOWEST_OCTAVE + OCTAVES - 4)
# A step is less probable the further it is from the previous one, by 13/16 per eighth of an octave.
NEARNESS = 13, 16

Levels = NDArray[np.int64]
Flags = Sequence[bool]
StepsAndOffsets = tuple[NDArray[np.float32], NDArray[np.float32]]


def encode_levels(tensors: Sequence[Levels], grids: StepsAndOffsets | None = None) -> bytes:
    """Encodes levels, and their grids if given. Raises ValueError for magnitudes above LARGEST.

    - tensors: vectors, or matrices (units, fan_in).
    - grids: the steps and the offsets of all tensors, rounded by `nearest_steps`; offsets may be 0
      or negative. The step of a tensor of zeros is not kept.
    """
    if any(np.abs(levels).max(initial=0) > LARGEST for levels in tensors):
        raise ValueError(f"only integers from -{LARGEST} to {LARGEST} can be coded")
    writer = Writer()
    nonzero = _flags(writer, [bool(levels.any()) for levels in tensors])
    if grids is not None:
        _code_grids(writer, nonzero, grids)
    _code_tensors(writer, tensors, nonzero)
    return _content(writer)


def decode_levels(
    content: bytes, shapes: Sequence[tuple[int, ...]], with_grids: bool = False
) -> tuple[list[Levels], StepsAndOffsets]:
    """Decodes levels of these shapes, and their grids. Raises ValueError for damaged bytes."""
    if content[-1:] == b"\0":  # the encoder strips zeros from the end
        raise ValueError("coded numbers are damaged: bytes are left over")
    padded = content.ljust(-(-len(content) // WORD) * WORD, b"\0")
    reader = Reader(np.frombuffer(padded, ">u4"))
    tensors = [np.zeros(shape, np.int64) for shape in shapes]
    steps, offsets = np.zeros((2, len(shapes)), np.float32)
    try:
        nonzero = _flags(reader, [False] * len(shapes))
        if with_grids:
            steps, offsets = _code_grids(reader, nonzero, (steps, offsets))
        return _code_tensors(reader, tensors, nonzero), (steps, offsets)
    except AssertionError:  # the coder cannot have encoded these words
        raise ValueError("coded numbers are damaged: their words cannot be decoded") from None


def coded_bits(levels: Levels) -> float:
    """The code length of a vector with the best model, without the bits of the model itself."""
    return _fit(_counts(levels))[0]


def nearest_steps(values: Any) -> NDArray[np.float32]:
    """The nearest steps that a code can hold, from SMALLEST_STEP to LARGEST_STEP."""
    values = np.clip(np.asarray(values, np.float64), SMALLEST_STEP, LARGEST_STEP)
    mantissas, exponents = np.frexp(values)
    return np.ldexp(np.rint(mantissas * 2 * PARTS) / (2 * PARTS), exponents).astype(np.float32)


def _content(writer: Writer) -> bytes:
    """The shortest bytes that decode to what was written (the decoder appends zeros)."""
    words, (position, (lower, width)) = writer.coder.get_compressed(), writer.coder.pos()
    size = WORD * (position + 2)
    point = int.from_bytes(words.astype(">u4").tobytes().ljust(size, b"\0"), "big")
    # Read the bytes as one integer. All integers in [first, first + width) decode alike, and
    # `point` is one of them. The width is below 2^64, so only bytes of the last words can go.
    first = point - (point - lower) % (1 << 64)
    for count in range(max(0, size - 3 * WORD), size + 1):
        unit = 1 << 8 * (size - count)
        number = -(-first // unit)
        if number * unit < first + width:  # always true at count = size
            break
    return number.to_bytes(count, "big").rstrip(b"\0")


def _flags(coder: Writer, values: Sequence[bool]) -> list[bool]:
    """Codes booleans; the probability of true is estimated from the earlier ones."""
    coded: list[bool] = []
    for value in values:
        coded.append(_flag(coder, value, coded))
    return coded


def _flag(coder: Writer, value: bool, before: Sequence[bool]) -> bool:
    p_true = (sum(before) + 0.5) / (len(before) + 1)  # the estimate of Krichevsky and Trofimov
    return bool(coder.code([value], stream.model.Bernoulli(p_true, perfect=False))[0])


def _code_grids(coder: Writer, nonzero: Flags, grids: StepsAndOffsets) -> StepsAndOffsets:
    """Codes the steps of nonzero tensors and the nonzero offsets; others are returned as 0."""
    steps, offsets = (values.copy() for values in grids)
    shifted = _flags(coder, [bool(offset) for offset in offsets])
    places = np.flatnonzero(shifted)
    signs = np.where(_flags(coder, [bool(offset < 0) for offset in offsets[places]]), -1, 1)
    offsets[places] = signs * _code_steps(coder, np.abs(offsets[places]))
    steps[~np.array(nonzero, bool)] = 0
    places = np.flatnonzero(nonzero)
    steps[places] = _code_steps(coder, steps[places])
    return steps, offsets


def _code_steps(coder: Writer, steps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Codes steps from `nearest_steps`, each by its distance from the previous one."""
    mantissas, exponents = np.frexp(steps)
    # The number of a step, counted from SMALLEST_STEP: eight steps per octave.
    codes = np.rint(mantissas * 2 * PARTS).astype(np.int64) - PARTS
    codes += PARTS * (exponents - 1 - LOWEST_OCTAVE)
    model = stream.model.Uniform(PARTS * OCTAVES)
    for place, code in enumerate(codes):
        codes[place] = coder.code([code], model)[0]
        model = _near(int(codes[place]))
    octaves, parts = np.divmod(codes, PARTS)
    return np.ldexp((PARTS + parts) / PARTS, octaves + LOWEST_OCTAVE).astype(np.float32)


def _code_tensors(coder: Writer, tensors: Sequence[Levels], nonzero: Flags) -> list[Levels]:
    """Codes the levels of nonzero tensors, each vector after its model unless that is shared."""
    coded = []
    vectors = [levels for levels in tensors if levels.ndim == 1 and levels.any()]
    models = iter(_shared_models(vectors))  # empty for a reader, whose tensors are zeros
    model: tuple[int, int] | None = None
    shared: list[bool] = []  # for each vector but the first: whether it keeps the previous model
    for levels, is_nonzero in zip(tensors, nonzero, strict=True):
        if not is_nonzero:
            coded.append(levels)
        elif levels.ndim == 2:
            coded.append(_code_matrix(coder, levels))
        else:
            wanted = next(models, (0, 0))
            if model is not None:
                shared.append(_flag(coder, wanted == model, shared))
            if model is None or not shared[-1]:
                odds, ratio = wanted
                model = coder.number(odds, len(ODDS)), coder.number(ratio, len(RATIOS))
            coded.append(coder.code(levels + LARGEST, _two_sided(*model)) - LARGEST)
    return coded


def _code_matrix(coder: Writer, levels: Levels) -> Levels:
    """Codes the levels of a layer's weights: the nonzero positions, then signs and magnitudes."""
    mask = code_layer(coder, levels != 0)
    values = levels[mask]
    magnitudes, positive = np.abs(values), values > 0
    # p is defined in the module's docstring. At 0 and 255 all signs are equal and none is written.
    p = 255 * bool(positive.any())
    if p and not positive.all():
        p = min(max(round(255 * float(positive.mean())), 1), 254)
    _, (_, ratio) = _fit(_counts(values))
    if magnitudes.max(initial=1) > 1:
        ratio = max(ratio, 1)  # a ratio of 0 means that all magnitudes are 1 and none is written
    p, ratio = coder.number(p, 256), coder.number(ratio, len(RATIOS))
    positive = np.full(len(values), p == 255)
    if 0 < p < 255:
        signs = stream.model.Bernoulli((TOTAL_MASS * p // 255) / TOTAL_MASS, perfect=False)
        positive = coder.code(values > 0, signs) > 0
    further = coder.code(magnitudes - 1, _magnitudes(ratio)) if ratio else 0
    coded = np.zeros(mask.shape, np.int64)
    coded[mask] = np.where(positive, 1, -1) * (1 + further)
    return coded


def _counts(levels: Levels) -> Levels:
    """The number of zeros, the number of nonzero levels, and the sum of magnitudes."""
    nonzero = np.count_nonzero(levels)
    return np.array([levels.size - nonzero, nonzero, np.abs(levels).sum()])


def _fit(counts: Levels) -> tuple[float, tuple[int, int]]:
    """The code length with the best model, and the indices of its odds and its ratio."""
    zeros, nonzero, total = counts.tolist()
    sign_bits = zeros * ZERO_BITS + nonzero * NONZERO_BITS
    magnitude_bits = nonzero * ONE_BITS + (total - nonzero) * FURTHER_BITS
    odds, ratio = int(sign_bits.argmin()), int(magnitude_bits.argmin())
    return float(sign_bits[odds] + magnitude_bits[ratio]), (odds, ratio)


def _shared_models(vectors: Sequence[Levels]) -> list[tuple[int, int]]:
    """The model of each vector. A vector shares the model of those before it if this saves bits."""
    runs: list[list[Levels]] = []
    for own in map(_counts, vectors):
        before = np.sum(runs[-1], axis=0) if runs else own
        if runs and _fit(before + own)[0] < _fit(before)[0] + _fit(own)[0] + MODEL_BITS:
            runs[-1].append(own)
        else:
            runs.append([own])
    models = []
    for run in runs:
        models += [_fit(np.sum(run, axis=0))[1]] * len(run)
    return models


@lru_cache(maxsize=256)
def _magnitudes(ratio: int) -> stream.model.Model:
    """The distribution of magnitudes minus 1."""
    return _categorical(_tail(TOTAL_MASS, ratio), 0)


@lru_cache(maxsize=256)
def _two_sided(odds: int, ratio: int) -> stream.model.Model:
    """The distribution of levels plus LARGEST."""
    of_zero = (4 + odds % 4) << (odds // 4)  # ODDS[odds] · 64
    tail = _tail(TOTAL_MASS * 64 // (64 + of_zero) // 2, ratio)
    return _categorical([*reversed(tail), 0, *tail], LARGEST)


@lru_cache(maxsize=PARTS * OCTAVES)
def _near(code: int) -> stream.model.Model:
    """The distribution of the code of a step or offset, given the code of the previous one."""
    masses = [TOTAL_MASS * (NEARNESS[1] - NEARNESS[0]) // (2 * NEARNESS[1])]
    for _ in range(1, PARTS * OCTAVES):
        masses.append(masses[-1] * NEARNESS[0] // NEARNESS[1])
    distances = np.abs(np.arange(PARTS * OCTAVES) - code)
    return _categorical(1 + np.array(masses, np.int64)[distances], code)


def _categorical(masses: Any, rest: int) -> stream.model.Model:
    """A distribution with these masses; the symbol `rest` gets the remainder of TOTAL_MASS."""
    table = np.array(masses, np.int64)
    table[rest] += TOTAL_MASS - table.sum()
    return stream.model.Categorical(table / TOTAL_MASS, perfect=False)


def _tail(left: int, ratio: int) -> list[int]:
    """Masses of the magnitudes 1 to LARGEST, about `left` in all, each at least 1."""
    tail = []
    for _ in range(LARGEST):
        mass = left * (32 - ratio) // 32
        tail.append(max(mass, 1))
        left -= mass
    return tail
