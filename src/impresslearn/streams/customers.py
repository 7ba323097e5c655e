"""Customers of one service: many small, related tasks, each with few examples of its own."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from impresslearn.checks import check_integer
from impresslearn.data import Examples
from impresslearn.streams.draws import seeded, stratified_sample
from impresslearn.streams.mnist import MNIST_MEAN, MNIST_STD
from impresslearn.streams.pixels import Pixels, Splits
from impresslearn.streams.stream import Stream, Task
from impresslearn.streams.torchvision import load_mnist
from impresslearn.streams.transforms import rotate


def mnist_customers(
    tasks: int = 200,
    seed: int = 0,
    root: str | Path = "data",
    download: bool = True,
    classes_per_task: int = 5,
    train_size: int = 100,
    test_size: int = 500,
    basis: int = 12,
    basis_size: int = 2000,
) -> Stream:
    """Every task shows MNIST turned by an angle of its own, some of its classes and few images.

    tasks: "customer-0", ..., each drawn from (seed, its number) alone: an angle in [0, 360)
    degrees, classes_per_task of the ten digits, and its images of them, stratified, train_size to
    train and test_size to test on. basis: how many of the first have basis_size training images
    instead, for masks to be learned from. Two tasks may share images, never one's training with
    another's test images. root, download and inputs are those of `rotated_mnist`; labels: the
    task's digits; `settings` has its angle and classes.
    Raises InputError for settings out of range, MissingDataError and MissingDependencyError as
    `rotated_mnist`.
    """
    check_integer("tasks", tasks, 1)
    check_integer("basis", basis, 0, tasks + 1)
    check_integer("classes_per_task", classes_per_task, 2, 11)
    sizes = {"train_size": train_size, "test_size": test_size, "basis_size": basis_size}
    for name, size in sizes.items():
        check_integer(name, size, classes_per_task)
    splits = Splits.of(load_mnist(root, download), MNIST_MEAN, MNIST_STD)
    made = []
    for index in range(tasks):
        generator = seeded(seed, "customer", index)
        angle = float(generator.uniform(0, 360))
        classes = sorted(generator.permutation(10)[:classes_per_task].tolist())
        train, test = (
            partial(_examples, pixels, _drawn(name, sizes[name], pixels, classes, generator), angle)
            for name, pixels in (
                ("basis_size" if index < basis else "train_size", splits.train),
                ("test_size", splits.test),
            )
        )
        settings = {"angle": angle, "classes": classes}
        made.append(Task(f"customer-{index}", tuple(classes), train, test, settings=settings))
    return Stream("mnist_customers", tuple(made))


def _drawn(
    name: str,
    size: int,
    pixels: Pixels,
    classes: Sequence[int],
    generator: np.random.RandomState,
) -> np.ndarray:
    """Positions of so many images of these classes."""
    there = np.flatnonzero(np.isin(pixels.labels, classes))
    check_integer(name, size, len(classes), len(there) + 1)
    return there[stratified_sample(pixels.labels[there], size, generator)]


def _examples(pixels: Pixels, positions: np.ndarray, angle: float) -> Examples:
    return pixels.subset(positions).examples(partial(rotate, degrees=angle))
