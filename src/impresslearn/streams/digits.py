"""Rotated and permuted digits: streams of 8x8 images that need no download.

The images are scikit-learn's `load_digits` (1,797 digits of the UCI optical recognition set, ten
classes), so these streams are for demonstrations and tests: a task is made in milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from impresslearn.streams.base import Stream
from impresslearn.streams.draws import (
    check_fraction,
    check_whole,
    draw_angles,
    hold_out,
    spread_angles,
)
from impresslearn.streams.pixels import Pixels, Splits, permuted_stream, rotated_stream

MEAN, STD = 0.3053, 0.3761
"""Mean and standard deviation of all pixels of the data set, scaled to [0, 1]."""


def rotated_digits(
    tasks: int = 15,
    seed: int = 0,
    angles: Sequence[int] | None = None,
    validation: float = 0.0,
    test: float = 0.25,
) -> Stream:
    """Every task shows all digits turned counter-clockwise by one angle of its own.

    tasks: 1 to 360, with angles drawn from the seed and spread over the circle: up to 16 tasks are
    at least 22 degrees apart, up to 32 at least 11 (`draws.spread_angles`), since tasks of nearly
    equal angles cannot be told apart; angles: the angles themselves, whole degrees of 0 to 359, in
    which case `tasks` is not used; test: the fraction of the 1,797 digits to test on; validation:
    the fraction of the remaining ones to hold out. Both splits are stratified, and the same for all
    tasks. Inputs: (n, 1, 8, 8), scaled to [0, 1], turned, then standardised with the data set's
    mean and deviation; labels: 0 to 9.
    Raises InputError for settings outside these ranges.
    """
    chosen = draw_angles(tasks, seed, spread_angles(tasks, seed) if angles is None else angles)
    return rotated_stream("rotated_digits", _splits(seed, validation, test), chosen)


def permuted_digits(
    tasks: int = 15, seed: int = 0, validation: float = 0.0, test: float = 0.25
) -> Stream:
    """Every task shows all digits with their 64 pixels in an order of its own.

    Task i's order depends on (seed, i) only. Splits, shapes and errors as in `rotated_digits`.
    """
    check_whole("tasks", tasks, 1)
    return permuted_stream("permuted_digits", _splits(seed, validation, test), tasks, seed)


def _splits(seed: int, validation: float, test: float) -> Splits:
    check_fraction("test", test, zero=False)
    check_fraction("validation", validation, zero=True)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = Pixels(
        torch.from_numpy(images.astype(np.uint8)).reshape(-1, 1, 8, 8),
        labels.astype(np.int64),
        white=16.0,
        mean=(MEAN,),
        std=(STD,),
    )
    kept, held = hold_out(pixels.labels, test, seed, "test")
    return Splits(pixels.subset(kept), pixels.subset(held)).hold_out(validation, seed)
