"""Rotated and permuted MNIST: each task shows all of MNIST, or of small digits, in its own way.

The small digits are scikit-learn's `load_digits` (1,797 images of 8x8): no download, and a task is
made in milliseconds, for demonstrations and tests.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from impresslearn.checks import check_integer
from impresslearn.streams.draws import (
    check_fraction,
    draw_angles,
    hold_out,
    seeded,
    spread_angles,
    stratified_sample,
)
from impresslearn.streams.pixels import Pixels, Splits, image_task
from impresslearn.streams.stream import Stream
from impresslearn.streams.torchvision import load_mnist
from impresslearn.streams.transforms import permute_pixels, rotate

DIGITS_MEAN, DIGITS_STD = (0.3053,), (0.3761,)
MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)
"""Of the pixels in [0, 1]: of all digits, of MNIST's training images."""


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
    tasks. Inputs: (n, 1, 8, 8), scaled to [0, 1], turned with black corners, then normalised by the
    data set's mean and deviation; labels: 0 to 9.
    Raises InputError for settings outside these ranges.
    """
    chosen = draw_angles(tasks, seed, spread_angles(tasks, seed) if angles is None else angles)
    return _rotated("rotated_digits", _digits(seed, validation, test), chosen)


def permuted_digits(
    tasks: int = 15, seed: int = 0, validation: float = 0.0, test: float = 0.25
) -> Stream:
    """Every task shows all digits with their 64 pixels in an order of its own.

    Task i's order depends on (seed, i) only. Splits, shapes and errors as in `rotated_digits`.
    """
    check_integer("tasks", tasks, 1)
    return _permuted("permuted_digits", _digits(seed, validation, test), tasks, seed)


def rotated_mnist(
    tasks: int = 20,
    seed: int = 0,
    root: str | Path = "data",
    download: bool = True,
    angles: Sequence[int] | None = None,
    validation: float = 0.0,
    train_size: int | None = None,
) -> Stream:
    """Every task shows all of MNIST turned counter-clockwise by one angle of its own.

    tasks: 1 to 360, with distinct angles drawn uniformly from the seed as in the paper, so that two
    may lie a degree apart; angles: as of `rotated_digits`; root, download: where the data lie
    (torchvision's layout, ROOT/MNIST/raw), and whether to fetch them if they do not; validation:
    the fraction of the training images to hold out; train_size: how many of the others to train on
    (all by default). Both are stratified, and the same for all tasks. Inputs: (n, 1, 28, 28),
    turned with black corners, then normalised; labels: 0 to 9.
    Raises InputError for settings outside these ranges, MissingDataError and
    MissingDependencyError where there is nothing to read the images from or with.
    """
    chosen = draw_angles(tasks, seed, angles)
    return _rotated("rotated_mnist", _mnist(seed, root, download, validation, train_size), chosen)


def permuted_mnist(
    tasks: int = 110,
    seed: int = 0,
    root: str | Path = "data",
    download: bool = True,
    validation: float = 0.0,
    train_size: int | None = None,
) -> Stream:
    """Every task, the first included, shows all of MNIST with its 784 pixels in a new order.

    Task i's order depends on (seed, i) only. The other settings, shapes and errors are those of
    `rotated_mnist`.
    """
    check_integer("tasks", tasks, 1)
    splits = _mnist(seed, root, download, validation, train_size)
    return _permuted("permuted_mnist", splits, tasks, seed)


def _rotated(name: str, splits: Splits, angles: Sequence[int]) -> Stream:
    tasks = (
        image_task(f"rotated-{angle}", splits, {"angle": angle}, partial(rotate, degrees=angle))
        for angle in angles
    )
    return Stream(name, tuple(tasks))


def _permuted(name: str, splits: Splits, tasks: int, seed: int) -> Stream:
    count = splits.train.images[0, 0].numel()
    made = []
    for index in range(tasks):
        order = torch.from_numpy(seeded(seed, "permutation", index).permutation(count))
        transform = partial(permute_pixels, order=order)
        settings = {"permutation": index, "seed": seed}
        made.append(image_task(f"permuted-{index}", splits, settings, transform))
    return Stream(name, tuple(made))


def _digits(seed: int, validation: float, test: float) -> Splits:
    check_fraction("test", test, zero=False)
    check_fraction("validation", validation)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    tensor = torch.from_numpy(images.astype(np.uint8)).reshape(-1, 1, 8, 8)
    pixels = Pixels(tensor, labels.astype(np.int64), 16.0, DIGITS_MEAN, DIGITS_STD)
    kept, held = hold_out(pixels.labels, test, seed, "test")
    return Splits(pixels.subset(kept), pixels.subset(held)).hold_out(validation, seed)


def _mnist(
    seed: int, root: str | Path, download: bool, validation: float, train_size: int | None
) -> Splits:
    check_fraction("validation", validation)
    if train_size is not None:
        check_integer("train_size", train_size, 1)
    raw = load_mnist(root, download)
    splits = Splits.of(raw, MNIST_MEAN, MNIST_STD).hold_out(validation, seed)
    if train_size is None:
        return splits
    labels = splits.train.labels
    check_integer("train_size", train_size, len(set(labels.tolist())), len(labels) + 1)
    positions = stratified_sample(labels, train_size, seeded(seed, "train_size"))
    return replace(splits, train=splits.train.subset(positions))
