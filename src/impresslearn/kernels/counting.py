"""The compiled loops of `selection`: counting, narrowing a bracket, keeping what lies above."""

from __future__ import annotations

import numpy as np
from numba import types

from impresslearn.kernels.compiling import compiled

FLOAT, COUNT = types.float32, types.int64
FLOATS = types.Array(FLOAT, 1, "C", readonly=True)  # takes writable ones too

FEW = 64  # numbers inside the bracket that are cheaper to sort than to count again
BLOCK = 64
MAX_PASSES = 12


@compiled(COUNT(FLOATS, FLOAT))
def count_at_least(values, threshold):
    # An index and a branch: of the ways to write this, the one that compiles to vector code. A sum
    # of comparisons runs eight times slower.
    count = 0
    for place in range(values.size):
        if values[place] >= threshold:
            count += 1
    return count


@compiled(types.Tuple((FLOAT, COUNT))(FLOATS, COUNT, FLOAT, FLOAT))
def narrow(values, count, low, high):
    """(threshold, how many reach it); (nan, 0) with NaN among them, (0, -1) outside the bracket."""
    if count_at_least(values, np.float32(-np.inf)) != values.size:
        return np.float32(np.nan), 0
    at_low, at_high = count_at_least(values, low), count_at_least(values, high)
    if not at_low >= count > at_high:
        return np.float32(0), -1
    for _ in range(MAX_PASSES):
        if at_low - at_high <= FEW:
            break
        share = np.float32((at_low - count) / (at_low - at_high))
        middle = low + (high - low) * min(max(share, np.float32(0.02)), np.float32(0.98))
        if not low < middle < high:
            break
        at_middle = count_at_least(values, middle)
        if at_middle >= count:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
    inside = np.empty(at_low - at_high, dtype=np.float32)
    filled = 0
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        hits = 0
        for place in range(block.size):
            if (block[place] >= low) & (block[place] < high):
                hits += 1
        if hits:  # rarely, so that nearly all blocks are counted in vector code
            for value in block:
                if low <= value < high:
                    inside[filled] = value
                    filled += 1
    inside.sort()
    threshold = inside[at_low - count]
    return threshold, at_high + (inside.size - np.searchsorted(inside, threshold))


@compiled(FLOAT[::1](FLOATS, FLOATS, FLOAT, types.boolean))
def keep_above(scores, weight, threshold, magnitude):
    """weight where the score, or its magnitude, reaches the threshold; 0 elsewhere."""
    result = np.empty_like(weight)
    if magnitude:
        for place in range(weight.size):
            result[place] = weight[place] if abs(scores[place]) >= threshold else np.float32(0)
    else:
        for place in range(weight.size):
            result[place] = weight[place] if scores[place] >= threshold else np.float32(0)
    return result


@compiled(FLOAT[::1](FLOATS, FLOATS, FLOATS))
def signed_product(left, right, signs):
    """left * right * sign(signs), element by element."""
    product = np.empty_like(left)
    for place in range(left.size):
        value = left[place] * right[place]
        sign = signs[place]
        product[place] = value if sign > 0 else (-value if sign < 0 else np.float32(0))
    return product
