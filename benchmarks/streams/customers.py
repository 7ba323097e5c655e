"""Customers of one service: many small, related tasks, each with few examples."""

from functools import partial
from pathlib import Path

import numpy as np

from impresslearn.checks import check_integer
from impresslearn.data import Examples
from impresslearn.streams import Stream, Task
from impresslearn.streams.draws import seeded, stratified_sample
from impresslearn.streams.pixels import Pixels, rotate
from impresslearn.streams.standard import mnist_splits

CLASSES, TEST_SIZE = 5, 500
BASIS, BASIS_SIZE = 12, 2000  # masks are learned from the first customers, with more images


def mnist_customers(
    tasks: int = 200,
    seed: int = 0,
    root: str | Path = "data",
    download: bool = True,
    train_size: int = 100,
) -> Stream:
    """Each task shows five classes of MNIST, turned by the customer's angle, in few images.

    - tasks: the number of customers, "customer-0", ... Angle, classes and images of a customer
      depend on its number and the seed alone.
    - root, download: as in `rotated_mnist`.
    - train_size: training images per customer, stratified. Customers may share images, but no
      training image is another customer's test image.

    Inputs are as in `rotated_mnist`; `task.settings` holds the angle (degrees) and the classes.
    Raises InputError for settings out of range, MissingDataError without MNIST.
    """
    check_integer("tasks", tasks, 1)
    all_train, all_test = mnist_splits(root, download)
    made = []
    for number in range(tasks):
        generator = seeded(seed, "customer", number)
        angle = float(generator.uniform(0, 360))
        classes = sorted(generator.permutation(10)[:CLASSES].tolist())
        size = BASIS_SIZE if number < BASIS else train_size
        train = _draw(size, all_train, classes, generator)
        test = _draw(TEST_SIZE, all_test, classes, generator)
        load_train = partial(_turned, all_train, train, angle)
        load_test = partial(_turned, all_test, test, angle)
        settings = {"angle": angle, "classes": classes}
        task = Task(f"customer-{number}", tuple(classes), load_train, load_test, settings=settings)
        made.append(task)
    return Stream("mnist_customers", tuple(made))


def _draw(
    size: int, pixels: Pixels, classes: list[int], generator: np.random.RandomState
) -> np.ndarray:
    """Positions of `size` images of these classes."""
    candidates = np.flatnonzero(np.isin(pixels.labels, classes))
    check_integer("train_size", size, len(classes), len(candidates) + 1)
    return candidates[stratified_sample(pixels.labels[candidates], size, generator)]


def _turned(pixels: Pixels, positions: np.ndarray, angle: float) -> Examples:
    return pixels.subset(positions).examples(partial(rotate, degrees=angle))
