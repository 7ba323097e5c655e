"""Normal random numbers that are the same, bit for bit, on every machine and version.

torch's differ between processor families, since a sine or a logarithm may be rounded otherwise by
each mathematical library. Here the polar method (Marsaglia and Bray, 1964) runs on NumPy's Philox
stream of whole numbers, and all arithmetic is +, -, *, / and the square root in float64, which
IEEE 754 rounds to one right answer; the logarithm is a series of these. Every operation is a pass
of its own over an array, so that no compiler can fuse two of them and round once.
"""

from __future__ import annotations

import numpy as np

CHUNK = 2**14
"""Pairs drawn at a time: their arrays fit the cache. The numbers do not depend on it."""
STREAM = 2
"""The part of Philox's counter that tells weights from random masks (0) and disjoint ones (1)."""
LOG_2 = 0.6931471805599453
SQRT_HALF = 0.7071067811865476
TERMS = 12
"""Of the logarithm's series, whose first term left out is below 1e-19 of the first."""


def standard_normals(count: int, seed: int, place: int) -> np.ndarray:
    """(count,) float32, of mean 0 and variance 1; `place` numbers the sequences of a seed."""
    stream = np.random.Philox(key=seed, counter=[0, STREAM, 0, place])
    normals = np.empty(count, dtype=np.float32)
    found = 0
    while found < count:
        pairs = min(CHUNK, count)
        uniform = (stream.random_raw(2 * pairs) >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
        x, y = uniform[::2], uniform[1::2]
        square = x * x + y * y
        inside = (square > 0) & (square < 1)
        square = square[inside]
        factor = np.sqrt(-2 * _log(square) / square)
        both = np.stack([x[inside] * factor, y[inside] * factor], axis=1).reshape(-1)
        both = both[: count - found]
        normals[found : found + both.size] = both
        found += both.size
    return normals


def _log(values: np.ndarray) -> np.ndarray:
    """Natural logarithms of positive numbers: log(m 2^e) = 2 artanh((m-1) / (m+1)) + e log 2."""
    mantissa, exponent = np.frexp(values)
    low = mantissa < SQRT_HALF
    mantissa = np.where(low, 2 * mantissa, mantissa)
    ratio = (mantissa - 1) / (mantissa + 1)
    square = ratio * ratio
    series = np.full_like(square, 1 / (2 * TERMS - 1))
    for term in range(TERMS - 1, 0, -1):
        series = series * square + 1 / (2 * term - 1)
    return 2 * ratio * series + (exponent - low) * LOG_2
