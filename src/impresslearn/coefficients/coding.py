"""Entropy-codes integers: all tensors of a task, their models and their grids in one stream.

Numbers of a vector are independent draws, most of them near zero:

    P(0) = o / (1 + o),    P(+-k) = (1 - P(0)) / 2 · (1 - r) r^(k - 1),  k >= 1

Vectors that follow each other share a model (o, r) where that is shorter than two models. A matrix
has a number for each weight of a layer. Which of them are not zero is written as `masks.codec`
writes a mask, by classes of rows and columns; those that are not have

    P(+k) = p / 255 · (1 - r) r^(k - 1) = P(-k) p / (255 - p),  k >= 1

A range coder (`constriction`) writes everything. Its stream is cut after the last byte that the
decoder needs, where the coder alone would fill a word of four; integers that are all zero take no
byte. Masses are whole fractions of 2^24, so every machine decodes the same numbers.
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
WHOLE = 1 << 24
# Odds of zero, (4 + m) / 4 · 2^(e - 4): 16 octaves e of four parts m. Ratios are r / 32.
ODDS = np.array([((4 + k % 4) << (k // 4)) / 64 for k in range(64)])
RATIOS = np.arange(32) / 32
MODEL_BITS = 11  # 64 odds and 32 ratios
# Bits of a zero and of another number by the odds, of a size of 1 and of each further one by the
# ratio; a ratio of 0 leaves larger sizes the mass of one part in WHOLE.
ZERO_BITS, USED_BITS = np.log2(1 + 1 / ODDS), 1 + np.log2(1 + ODDS)
SIZE_BITS, FURTHER_BITS = -np.log2(1 - RATIOS), -np.log2(np.maximum(RATIOS, 1 / WHOLE))
# Steps and offsets have three bits beside the leading one, and any of 40 octaves from 2^-24 on.
PARTS, OCTAVES, LOWEST_OCTAVE = 8, 40, -24
SMALLEST_STEP, LARGEST_STEP = 2.0**LOWEST_OCTAVE, 15.0 * 2.0 ** (LOWEST_OCTAVE + OCTAVES - 4)
# A step is likely to be near the one before it: each further eighth of an octave has this share of
# the last one's probability.
NEARNESS = 13, 16

Levels = NDArray[np.int64]
StepsAndOffsets = tuple[NDArray[np.float32], NDArray[np.float32]]


def encode_levels(tensors: Sequence[Levels], grids: StepsAndOffsets | None = None) -> bytes:
    """Integers of magnitude up to LARGEST, with their grids if given, as bytes.

    - tensors: vectors, or matrices (units, fan_in).
    - grids: a step and an offset for each tensor, as `nearest_steps` rounds them; offsets may be 0
      or negative. The step of a tensor of zeros is not kept.

    Raises ValueError for a larger magnitude.
    """
    for levels in tensors:
        if np.abs(levels).max(initial=0) > LARGEST:
            raise ValueError(f"only integers from -{LARGEST} to {LARGEST} can be coded")
    writer = Writer()
    used = _flags(writer, [bool(levels.any()) for levels in tensors])
    if grids is not None:
        _code_grids(writer, used, grids)
    _code_tensors(writer, tensors, used)
    return _content(writer)


def decode_levels(
    content: bytes, shapes: Sequence[tuple[int, ...]], with_grids: bool = False
) -> tuple[list[Levels], StepsAndOffsets]:
    """The tensors of these shapes, and their grids. Raises ValueError for bytes of no such code."""
    if content[-1:] == b"\0":  # the shortest code never ends so
        raise ValueError("coded numbers are damaged: bytes are left over")
    padded = content.ljust(-(-len(content) // WORD) * WORD, b"\0")
    reader = Reader(np.frombuffer(padded, ">u4"))
    tensors = [np.zeros(shape, np.int64) for shape in shapes]
    steps, offsets = np.zeros((2, len(shapes)), np.float32)
    try:
        used = _flags(reader, [False] * len(shapes))
        if with_grids:
            steps, offsets = _code_grids(reader, used, (steps, offsets))
        return _code_tensors(reader, tensors, used), (steps, offsets)
    except AssertionError:  # the coder cannot have encoded these words
        raise ValueError("coded numbers are damaged: their words cannot be decoded") from None


def coded_bits(levels: Levels) -> float:
    """The code length of a vector in its own model, without the bits that tell the model."""
    return _fit(_counts(levels))[0]


def nearest_steps(values: Any) -> NDArray[np.float32]:
    """The nearest steps that a code can hold, from SMALLEST_STEP to LARGEST_STEP."""
    values = np.clip(np.asarray(values, np.float64), SMALLEST_STEP, LARGEST_STEP)
    mantissas, exponents = np.frexp(values)
    return np.ldexp(np.rint(mantissas * 2 * PARTS) / (2 * PARTS), exponents).astype(np.float32)


def _content(writer: Writer) -> bytes:
    """The shortest bytes that decode to what was written; zeros follow them."""
    words, (position, (lower, width)) = writer.coder.get_compressed(), writer.coder.pos()
    size = WORD * (position + 2)
    point = int.from_bytes(words.astype(">u4").tobytes().ljust(size, b"\0"), "big")
    # Any number from `first` on, up to first + width, decodes alike; `point` is one of them.
    first = point - (point - lower) % (1 << 64)
    for count in range(max(0, size - 3 * WORD), size + 1):
        unit = 1 << 8 * (size - count)
        number = -(-first // unit)
        if number * unit < first + width:
            return number.to_bytes(count, "big").rstrip(b"\0")
    raise AssertionError("the point itself is a code")


def _flags(coder: Writer, values: Sequence[bool]) -> list[bool]:
    """Booleans, each by how often the ones before it were true."""
    coded: list[bool] = []
    for value in values:
        coded.append(_flag(coder, value, coded))
    return coded


def _flag(coder: Writer, value: bool, before: Sequence[bool]) -> bool:
    likely = (2 * sum(before) + 1) / (2 * len(before) + 2)
    return bool(coder.code([value], stream.model.Bernoulli(likely, perfect=False))[0])


def _code_grids(coder: Writer, used: Sequence[bool], grids: StepsAndOffsets) -> StepsAndOffsets:
    """The steps of tensors that are used, and the offsets that are not 0."""
    steps, offsets = (values.copy() for values in grids)
    shifted = _flags(coder, [bool(offset) for offset in offsets])
    places = np.flatnonzero(shifted)
    signs = np.where(_flags(coder, [bool(offset < 0) for offset in offsets[places]]), -1, 1)
    offsets[places] = signs * _code_sizes(coder, np.abs(offsets[places]))
    steps[~np.array(used, bool)] = 0
    places = np.flatnonzero(used)
    steps[places] = _code_sizes(coder, steps[places])
    return steps, offsets


def _code_sizes(coder: Writer, sizes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Numbers as `nearest_steps` gives them, each by its distance from the one before."""
    mantissas, exponents = np.frexp(sizes)
    codes = np.rint(mantissas * 2 * PARTS).astype(np.int64) - PARTS
    codes += PARTS * (exponents - 1 - LOWEST_OCTAVE)
    for place, code in enumerate(codes):
        model = _near(int(codes[place - 1])) if place else stream.model.Uniform(PARTS * OCTAVES)
        codes[place] = coder.code([code], model)[0]
    octaves, parts = np.divmod(codes, PARTS)
    return np.ldexp((PARTS + parts) / PARTS, octaves + LOWEST_OCTAVE).astype(np.float32)


def _code_tensors(coder: Writer, tensors: Sequence[Levels], used: Sequence[bool]) -> list[Levels]:
    """The integers of used tensors, with the models of vectors before them; others as they are."""
    coded = []
    vectors = [levels for levels in tensors if levels.ndim == 1 and levels.any()]
    models = iter(_shared_models(vectors))  # none for a reader, whose tensors are zeros
    model: tuple[int, int] | None = None
    shares: list[bool] = []  # whether each vector has the model of the one before
    for levels, is_used in zip(tensors, used, strict=True):
        if not is_used or levels.ndim == 2:
            coded.append(_code_matrix(coder, levels) if is_used else levels)
            continue
        odds, ratio = wanted = next(models, (0, 0))
        if model is not None:
            shares.append(_flag(coder, wanted == model, shares))
        if model is None or not shares[-1]:
            model = coder.number(odds, len(ODDS)), coder.number(ratio, len(RATIOS))
        coded.append(coder.code(levels + LARGEST, _two_sided(*model)) - LARGEST)
    return coded


def _code_matrix(coder: Writer, levels: Levels) -> Levels:
    mask = code_layer(coder, levels != 0)
    values = levels[mask]
    sizes, positive = np.abs(values), values > 0
    share = 255 * bool(positive.any())
    if share and not positive.all():
        share = min(max(round(255 * float(positive.mean())), 1), 254)
    ratio = _fit(_counts(values))[1][1]
    if sizes.max(initial=1) > 1:
        ratio = max(ratio, 1)  # 0 where all are 1
    share, ratio = coder.number(share, 256), coder.number(ratio, len(RATIOS))
    positive = np.full(len(values), share == 255)
    if 0 < share < 255:
        likely = stream.model.Bernoulli((WHOLE * share // 255) / WHOLE, perfect=False)
        positive = coder.code(values > 0, likely) > 0
    further = coder.code(sizes - 1, _one_sided(ratio)) if ratio else 0
    coded = np.zeros(mask.shape, np.int64)
    coded[mask] = np.where(positive, 1, -1) * (1 + further)
    return coded


def _counts(levels: Levels) -> Levels:
    """What a model sees of integers: how many are zero, how many are not, and their sizes' sum."""
    used = np.count_nonzero(levels)
    return np.array([levels.size - used, used, np.abs(levels).sum()])


def _fit(counts: Levels) -> tuple[float, tuple[int, int]]:
    """The bits in the best model, and the model."""
    zeros, used, size = counts.tolist()
    of_zero = zeros * ZERO_BITS + used * USED_BITS
    of_size = used * SIZE_BITS + (size - used) * FURTHER_BITS
    odds, ratio = int(of_zero.argmin()), int(of_size.argmin())
    return float(of_zero[odds] + of_size[ratio]), (odds, ratio)


def _shared_models(vectors: Sequence[Levels]) -> list[tuple[int, int]]:
    """The model of each vector, which joins the ones before it where that saves bits."""
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
def _one_sided(ratio: int) -> stream.model.Model:
    """Sizes from 1 on."""
    return _categorical(_tail(WHOLE, ratio), 0)


@lru_cache(maxsize=256)
def _two_sided(odds: int, ratio: int) -> stream.model.Model:
    of_zero = (4 + odds % 4) << (odds // 4)
    tail = _tail(WHOLE * 64 // (64 + of_zero) // 2, ratio)
    return _categorical([*reversed(tail), 0, *tail], LARGEST)


@lru_cache(maxsize=PARTS * OCTAVES)
def _near(code: int) -> stream.model.Model:
    """A step or offset near the one of this code."""
    masses = [WHOLE * (NEARNESS[1] - NEARNESS[0]) // (2 * NEARNESS[1])]
    for _ in range(1, PARTS * OCTAVES):
        masses.append(masses[-1] * NEARNESS[0] // NEARNESS[1])
    distances = np.abs(np.arange(PARTS * OCTAVES) - code)
    return _categorical(1 + np.array(masses, np.int64)[distances], code)


def _categorical(masses: Any, rest: int) -> stream.model.Model:
    """Symbols of these masses; one of them gets what is left of WHOLE."""
    table = np.array(masses, np.int64)
    table[rest] += WHOLE - table.sum()
    return stream.model.Categorical(table / WHOLE, perfect=False)


def _tail(left: int, ratio: int) -> list[int]:
    """Masses of the sizes 1 to LARGEST, out of what is left: 1 at least, so any can be coded."""
    tail = []
    for _ in range(LARGEST):
        mass = left * (32 - ratio) // 32
        tail.append(max(mass, 1))
        left -= mass
    return tail
