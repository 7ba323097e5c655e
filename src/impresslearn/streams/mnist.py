"""Rotated and permuted MNIST: the streams of the paper's first experiments.

The 70,000 images are held once as bytes (55 MB); a task's tensors (a few hundred MB in float32) are
made when asked. They are read, or downloaded, by torchvision from its usual layout,
ROOT/MNIST/raw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from impresslearn.streams._torchvision import load_mnist
from impresslearn.streams.base import Stream
from impresslearn.streams.draws import (
    check_fraction,
    check_whole,
    draw_angles,
    seeded,
    stratified_sample,
)
from impresslearn.streams.pixels import Pixels, Splits, permuted_stream, rotated_stream

MEAN, STD = (0.1307,), (0.3081,)
"""Of the training pixels in [0, 1]."""


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
    may lie a degree apart; angles: the angles themselves, whole degrees of 0 to 359, in which case
    `tasks` is not used; root, download: where the data lie, and
    whether to fetch them if they do not; validation: the fraction of the training images to hold
    out; train_size: how many of the others to train on (all by default). Both are stratified, and
    the same for all tasks. Inputs: (n, 1, 28, 28), turned with black corners, then normalised by
    mean 0.1307 and standard deviation 0.3081; labels: 0 to 9.
    Raises InputError for settings outside these ranges, MissingDataError and
    MissingDependencyError where there is nothing to read the images from or with.
    """
    chosen = draw_angles(tasks, seed, angles)
    splits = _splits(seed, root, download, validation, train_size)
    return rotated_stream("rotated_mnist", splits, chosen)


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
    check_whole("tasks", tasks, 1)
    splits = _splits(seed, root, download, validation, train_size)
    return permuted_stream("permuted_mnist", splits, tasks, seed)


def _splits(
    seed: int, root: str | Path, download: bool, validation: float, train_size: int | None
) -> Splits:
    check_fraction("validation", validation, zero=True)
    if train_size is not None:
        check_whole("train_size", train_size, 1)
    raw = load_mnist(root, download)
    train, test = (
        Pixels(torch.from_numpy(images).unsqueeze(1), labels, mean=MEAN, std=STD)
        for images, labels in (
            (raw.train_images, raw.train_labels),
            (raw.test_images, raw.test_labels),
        )
    )
    splits = Splits(train, test).hold_out(validation, seed)
    if train_size is None:
        return splits
    labels = splits.train.labels
    check_whole("train_size", train_size, len(set(labels.tolist())), len(labels))
    positions = stratified_sample(labels, train_size, seeded(seed, "train_size"))
    return replace(splits, train=splits.train.subset(positions))
