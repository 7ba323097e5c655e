"""Streams of images: customers with few examples each, and tasks cut from an image folder."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from impresslearn.data import Augmentation, Examples, Preprocessing, as_examples
from impresslearn.data.images import ImageFiles, class_images
from impresslearn.errors import InputError
from impresslearn.streams import Stream, Task
from impresslearn.streams.draws import draw_class_groups, seeded, stratified_sample
from impresslearn.streams.pixels import Pixels, flip_and_shift, rotate
from impresslearn.streams.standard import mnist_splits
from impresslearn.streams.stream import LabelledData

CLASSES, SIZE, TEST_SIZE = 5, 100, 500  # of a customer
BASIS, BASIS_SIZE = 12, 2000  # masks are learned from the first customers, with more images
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's training pixels


def mnist_customers(root: str | Path, tasks: int = 200, seed: int = 0) -> Stream:
    """Each task shows five classes of MNIST, turned by the customer's angle, in few images.

    - tasks: the number of customers, "customer-0", ... Angle, classes and images of a customer
      depend on its number and the seed alone.
    - root: as in `rotated_mnist`; nothing is downloaded.

    Images are stratified. Customers may share some, but no training image is another customer's
    test image. Inputs are as in `rotated_mnist`; `task.settings` holds the angle (degrees) and the
    classes. Raises MissingDataError without MNIST.
    """
    all_train, all_test = mnist_splits(root, download=False)
    made = []
    for number in range(tasks):
        generator = seeded(seed, "customer", number)
        angle = float(generator.uniform(0, 360))
        classes = sorted(generator.permutation(10)[:CLASSES].tolist())
        size = BASIS_SIZE if number < BASIS else SIZE
        train = _draw(size, all_train, classes, generator)
        test = _draw(TEST_SIZE, all_test, classes, generator)
        load_train = partial(_turned, all_train, train, angle)
        load_test = partial(_turned, all_test, test, angle)
        settings = {"angle": angle, "classes": classes}
        made.append(Task(f"customer-{number}", tuple(classes), load_train, load_test, settings))
    return Stream("mnist_customers", tuple(made))


def _draw(
    size: int, pixels: Pixels, classes: list[int], generator: np.random.RandomState
) -> np.ndarray:
    """Positions of `size` images of these classes."""
    candidates = np.flatnonzero(np.isin(pixels.labels, classes))
    return candidates[stratified_sample(pixels.labels[candidates], size, generator)]


def _turned(pixels: Pixels, positions: np.ndarray, angle: float) -> Examples:
    return pixels.subset(positions).examples(partial(rotate, degrees=angle))


def _images(
    files: list[Path], preprocessing: Preprocessing, augment: Augmentation | None = None
) -> LabelledData:
    examples = as_examples(ImageFiles(files, preprocessing))
    return replace(preprocessing.apply_to(examples), augment=augment)


def split_imagenet(
    root: str | Path,
    tasks: int | None = None,
    classes_per_task: int = 10,
    size: int = 224,
    seed: int = 0,
) -> Stream:
    """The classes of ROOT/train, in a seeded order, cut into tasks "imagenet-00", ...

    - root: holds train/CLASS/IMAGE and, as the test set, val/CLASS/IMAGE: ImageNet,
      Tiny-ImageNet, or any folder of this layout.
    - tasks: by default all classes are used.
    - size: pixels of the shorter side after resizing; the centre square is kept.

    Inputs are (n, 3, size, size), normalised; labels are the folder names. Training images are
    mirrored at random and shifted by up to a sixteenth of their size.
    Raises InputError for classes without test images, MissingDataError for a missing folder.
    """
    root = Path(root)
    preprocessing = Preprocessing(size=size, mean=MEAN, std=STD)
    load = partial(_images, preprocessing=preprocessing)
    train, test = class_images(root / "train"), class_images(root / "val")
    made = []
    groups = draw_class_groups(list(train), tasks, classes_per_task, seed)
    for number, group in enumerate(groups):
        classes = tuple(sorted(group))
        files, test_files = [], []
        for name in classes:
            if name not in test:
                raise InputError(f"class {name!r} has no folder in {root / 'val'}")
            files += train[name]
            test_files += test[name]
        load_train = partial(load, files, augment=partial(flip_and_shift, pixels=size // 16))
        load_test = partial(load, test_files)
        made.append(Task(f"imagenet-{number:02d}", classes, load_train, load_test))
    return Stream("split_imagenet", tuple(made))
