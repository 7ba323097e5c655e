"""Clusters the rows and columns of a mask into classes of similar density, for its codec.

A trained mask is uneven in two directions at once: units and inputs that matter keep more weights,
and those that never learn keep whatever the draw of the scores gave them. Sorted into a few classes
of rows and of columns, what is left of the mask in a block of two classes looks like independent
draws, and the description costs

    Σ_blocks n H(ones / n)  +  rows · log2 R  +  columns · log2 C  +  BLOCK_BITS · R · C

bits for R classes of rows and C of columns. The search starts from many classes, moves each row and
column to the class that fits it best, then joins classes for as long as that saves bits. It uses
floats and may end elsewhere on another machine; the decoder is told the classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Counts = NDArray[np.float64]

MOST_CLASSES = 64
BLOCK_BITS = 4.5
"""About what the codec pays to tell the density of a block."""
START_ROWS, START_COLUMNS = 24, 12
MOVES = 20
ROUNDS = 4


@np.errstate(invalid="ignore")  # matrix kernels read past an edge and may warn of what lies there
def find_classes(mask: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    """The class of each row and of each column of a mask (units, fan_in), numbered from 0."""
    units, fan_in = mask.shape
    single = np.zeros(units, np.int64), np.zeros(fan_in, np.int64)
    if mask.all() or not mask.any():
        return single
    weights = mask.astype(np.float32)  # counting is then matrix products
    rows = sorted_places(weights.sum(1)) * START_ROWS // units
    columns = sorted_places(weights.sum(0)) * START_COLUMNS // fan_in
    rows, columns = _move(weights, rows, columns)
    for _ in range(ROUNDS):
        before = rows.max(), columns.max()
        rows, columns = _move(weights, *_join(weights, rows, columns))
        if (rows.max(), columns.max()) == before:
            break
    return min((rows, columns), single, key=lambda labels: _bits(weights, *labels))


def sorted_places(values: NDArray[Any]) -> Integers:
    """Where each value goes when they are sorted, equal ones in their order."""
    places = np.empty(len(values), np.int64)
    places[np.argsort(values, kind="stable")] = np.arange(len(values))
    return places


def _move(
    weights: NDArray[np.float32], rows: Integers, columns: Integers
) -> tuple[Integers, Integers]:
    """Every row, then every column, to the class in which it costs least, until none moves."""
    for _ in range(MOVES):
        rows, columns = _numbered(rows), _numbered(columns)
        better_rows = _numbered(_nearest(weights, rows, columns))
        better_columns = _nearest(weights.T, columns, better_rows)
        if np.array_equal(better_rows, rows) and np.array_equal(better_columns, columns):
            break
        rows, columns = better_rows, better_columns
    return rows, _numbered(columns)


def _nearest(weights: NDArray[np.float32], rows: Integers, columns: Integers) -> Integers:
    """The class of each row, given those of the columns, at the densities that the blocks have."""
    along = weights @ _one_hot(columns)
    ones, sizes = _count(along, rows, columns)
    density = (ones + 0.4) / (sizes + 0.8)
    zeros = np.bincount(columns) - along
    gain: Counts = along @ np.log2(density).T + zeros @ np.log2(1 - density).T
    return gain.argmax(1)


def _join(
    weights: NDArray[np.float32], rows: Integers, columns: Integers
) -> tuple[Integers, Integers]:
    """Pairs of classes made one, the best pair first, while that saves bits."""
    labels = [rows, columns]
    while True:
        ones, sizes = _count(weights @ _one_hot(labels[1]), *labels)
        down = _best_pair(ones, sizes, len(rows))
        across = _best_pair(ones.T, sizes.T, len(columns))
        axis, (gain, first, second) = (0, down) if down[0] >= across[0] else (1, across)
        if gain <= 0:
            return labels[0], labels[1]
        labels[axis] = _numbered(np.where(labels[axis] == second, first, labels[axis]))


def _best_pair(ones: Counts, sizes: Counts, labels: int) -> tuple[float, int, int]:
    """Bits that the best join of two classes of axis 0 saves, and the two classes."""
    classes = len(ones)
    if classes == 1:
        return 0.0, 0, 0
    apart = _entropy(ones, sizes).sum(1)
    together = _entropy(ones[:, None] + ones, sizes[:, None] + sizes).sum(2)
    gain = apart[:, None] + apart - together
    np.fill_diagonal(gain, -np.inf)
    first, second = divmod(int(gain.argmax()), classes)
    told = labels * np.log2(classes / (classes - 1)) + BLOCK_BITS * ones.shape[1]
    return float(gain[first, second] + told), first, second


def _bits(weights: NDArray[np.float32], rows: Integers, columns: Integers) -> float:
    ones, sizes = _count(weights @ _one_hot(columns), rows, columns)
    labels = len(rows) * np.log2(ones.shape[0]) + len(columns) * np.log2(ones.shape[1])
    return float(_entropy(ones, sizes).sum() + labels + BLOCK_BITS * ones.size)


def _count(along: NDArray[np.float32], rows: Integers, columns: Integers) -> tuple[Counts, Counts]:
    """Ones and weights of every block; along: (units, column classes), the ones of each row."""
    ones = np.matmul(_one_hot(rows).T, along, dtype=np.float64)
    return ones, np.outer(np.bincount(rows), np.bincount(columns)).astype(np.float64)


def _entropy(ones: Counts, sizes: Counts) -> Counts:
    """Bits of the weights of each block, drawn independently at the block's density."""
    counts = (sizes, ones, sizes - ones)
    all_weights, of_ones, of_zeros = (each * np.log2(np.maximum(each, 1)) for each in counts)
    return all_weights - of_ones - of_zeros


def _numbered(labels: Integers) -> Integers:
    """The same classes, numbered without gaps."""
    return np.unique(labels, return_inverse=True)[1]


def _one_hot(labels: Integers) -> NDArray[np.float32]:
    return np.eye(labels.max(initial=0) + 1, dtype=np.float32)[labels]
