"""Entropy-codes integers: all tensors of a task in one stream, with their models and grids.

The integers are *levels*; a tensor's *grid*, a step and an offset, makes numbers of them. Levels of
a vector are independent draws, most of them near zero, from a model (o, r):

    P(0) = o / (1 + o),    P(+-k) = (1 - P(0)) / 2 · (1 - r) r^(k - 1),  k >= 1

A vector shares the model of the one before where that is shorter. A matrix has a level for each
weight of a layer. `masks.codec` writes which of them are not zero, and these have

    P(+k) = p / 255 · (1 - r) r^(k - 1),    P(-k) = (1 - p / 255) (1 - r) r^(k - 1),  k >= 1

A range coder (`constriction`) writes everything, in words of four bytes. The stream is cut after
the last byte that the decoder needs, so levels that are all zero take no byte. Probabilities are
multiples of 2^-24, so every machine decodes the same levels.

Functions with a `coder` both write and read: a `Writer` writes the values that it is given, and a
`Reader` only counts them. Both return the values of the stream, and callers go on with these.
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
# Odds o of zero, (4 + m) / 4 · 2^(e - 4): 16 octaves e of four parts m. Ratios r in steps of 1/32.
ODDS = np.array([((4 + k % 4) << (k // 4)) / 64 for k in range(64)])
RATIOS = np.arange(32) / 32
MODEL_BITS = 11  # 64 odds and 32 ratios
# Bits at each of the odds: of a zero, and of a nonzero level's sign. Bits at each of the ratios: of
# magnitude 1, and of each unit above 1. At ratio 0, larger magnitudes have the least mass, 1.
ZERO_BITS, NONZERO_BITS = np.log2(1 + 1 / ODDS), 1 + np.log2(1 + ODDS)
ONE_BITS, FURTHER_BITS = -np.log2(1 - RATIOS), -np.log2(np.maximum(RATIOS, 1 / TOTAL_MASS))
# Steps and offsets are floats with three bits of mantissa, in 40 octaves from 2^-24 on.
PARTS, OCTAVES, LOWEST_OCTAVE = 8, 40, -24
SMALLEST_STEP, LARGEST_STEP = 2.0**LOWEST_OCTAVE, 15.0 * 2.0 ** (LOWEST_OCTAVE + OCTAVES - 4)
# A step's probability falls to 13/16 with each eighth of an octave from the step before it.
NEARNESS = 13, 16

Levels = NDArray[np.int64]
Flags = Sequence[bool]
StepsAndOffsets = tuple[NDArray[np.float32], NDArray[np.float32]]


def encode_levels(tensors: Sequence[Levels], grids: StepsAndOffsets | None = None) -> bytes:
    """Levels as bytes, with their grids if given. Raises ValueError for magnitudes above LARGEST.

    - tensors: vectors, or matrices (units, fan_in).
    - grids: a step and an offset for each tensor, as `nearest_steps` rounds them; offsets may be 0
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
    """The levels of these shapes, and their grids. Raises ValueError for bytes of no such code."""
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
    """The code length of a vector in its own model, without the bits of the model itself."""
    return _fit(_counts(levels))[0]


def nearest_steps(values: Any) -> NDArray[np.float32]:
    """The nearest steps that a code can hold, from SMALLEST_STEP to LARGEST_STEP."""
    values = np.clip(np.asarray(values, np.float64), SMALLEST_STEP, LARGEST_STEP)
    mantissas, exponents = np.frexp(values)
    return np.ldexp(np.rint(mantissas * 2 * PARTS) / (2 * PARTS), exponents).astype(np.float32)


def _content(writer: Writer) -> bytes:
    """The shortest bytes that, followed by zeros, decode to what was written."""
    words, (position, (lower, width)) = writer.coder.get_compressed(), writer.coder.pos()
    size = WORD * (position + 2)
    point = int.from_bytes(words.astype(">u4").tobytes().ljust(size, b"\0"), "big")
    # Taken as one integer, all bytes from `first` to below first + width decode alike, `point`
    # among them. The width is below 2^64, so no more than the last words can be saved.
    first = point - (point - lower) % (1 << 64)
    for count in range(max(0, size - 3 * WORD), size + 1):
        unit = 1 << 8 * (size - count)
        number = -(-first // unit)
        if number * unit < first + width:  # at the latest for all bytes, those of `point`
            break
    return number.to_bytes(count, "big").rstrip(b"\0")


def _flags(coder: Writer, values: Sequence[bool]) -> list[bool]:
    """Booleans; each is expected to be true as often as the ones before it."""
    coded: list[bool] = []
    for value in values:
        coded.append(_flag(coder, value, coded))
    return coded


def _flag(coder: Writer, value: bool, before: Sequence[bool]) -> bool:
    p_true = (sum(before) + 0.5) / (len(before) + 1)  # the estimate of Krichevsky and Trofimov
    return bool(coder.code([value], stream.model.Bernoulli(p_true, perfect=False))[0])


def _code_grids(coder: Writer, nonzero: Flags, grids: StepsAndOffsets) -> StepsAndOffsets:
    """The steps of nonzero tensors, and the offsets that are not 0; the others come back as 0."""
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
    """Numbers as `nearest_steps` gives them, each by its distance from the one before."""
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
    """The levels of nonzero tensors. A vector's model comes first, if it is not the last one's."""
    coded = []
    vectors = [levels for levels in tensors if levels.ndim == 1 and levels.any()]
    models = iter(_shared_models(vectors))  # none for a reader, whose tensors are zeros
    model: tuple[int, int] | None = None
    shared: list[bool] = []  # whether each vector has the model of the one before
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
    """The levels of a layer's weights: where they are nonzero, their signs, their magnitudes."""
    mask = code_layer(coder, levels != 0)
    values = levels[mask]
    magnitudes, positive = np.abs(values), values > 0
    # p of the module's docstring. At 0 and 255 no sign is written: all are the same.
    p = 255 * bool(positive.any())
    if p and not positive.all():
        p = min(max(round(255 * float(positive.mean())), 1), 254)
    _, (_, ratio) = _fit(_counts(values))
    if magnitudes.max(initial=1) > 1:
        ratio = max(ratio, 1)  # a ratio of 0 says that all magnitudes are 1, and none is written
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
    """All that a model's bits depend on: how many zeros, how many others, the sum of magnitudes."""
    nonzero = np.count_nonzero(levels)
    return np.array([levels.size - nonzero, nonzero, np.abs(levels).sum()])


def _fit(counts: Levels) -> tuple[float, tuple[int, int]]:
    """The bits in the best model, and that model: the indices of its odds and of its ratio."""
    zeros, nonzero, total = counts.tolist()
    sign_bits = zeros * ZERO_BITS + nonzero * NONZERO_BITS
    magnitude_bits = nonzero * ONE_BITS + (total - nonzero) * FURTHER_BITS
    odds, ratio = int(sign_bits.argmin()), int(magnitude_bits.argmin())
    return float(sign_bits[odds] + magnitude_bits[ratio]), (odds, ratio)


def _shared_models(vectors: Sequence[Levels]) -> list[tuple[int, int]]:
    """The model of each vector, which joins the run of vectors before it where that saves bits."""
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
    """Of magnitudes minus 1."""
    return _categorical(_tail(TOTAL_MASS, ratio), 0)


@lru_cache(maxsize=256)
def _two_sided(odds: int, ratio: int) -> stream.model.Model:
    """Of levels plus LARGEST."""
    of_zero = (4 + odds % 4) << (odds // 4)  # ODDS[odds] · 64
    tail = _tail(TOTAL_MASS * 64 // (64 + of_zero) // 2, ratio)
    return _categorical([*reversed(tail), 0, *tail], LARGEST)


@lru_cache(maxsize=PARTS * OCTAVES)
def _near(code: int) -> stream.model.Model:
    """Of the code of a step or offset that follows one with this code."""
    masses = [TOTAL_MASS * (NEARNESS[1] - NEARNESS[0]) // (2 * NEARNESS[1])]
    for _ in range(1, PARTS * OCTAVES):
        masses.append(masses[-1] * NEARNESS[0] // NEARNESS[1])
    distances = np.abs(np.arange(PARTS * OCTAVES) - code)
    return _categorical(1 + np.array(masses, np.int64)[distances], code)


def _categorical(masses: Any, rest: int) -> stream.model.Model:
    """Of symbols 0, 1, … with these masses; the symbol `rest` gets what is left of TOTAL_MASS."""
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
