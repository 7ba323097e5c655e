"""The standard streams: rotated and permuted digits and MNIST, and split CIFAR-100.

The small digits are scikit-learn's `load_digits` (1,797 images of 8x8). They need no download, and
a task is made in milliseconds.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from impresslearn.checks import check_integer, clear_calls
from impresslearn.data import Preprocessing, classes_of
from impresslearn.errors import InputError, MissingDataError
from impresslearn.streams.draws import draw_angles, draw_class_groups, hold_out, seeded
from impresslearn.streams.pixels import Pixels, flip_and_shift, image_task, permute_pixels, rotate
from impresslearn.streams.stream import Stream
from impresslearn.streams.torchvision import channels_first, load_images

# Mean and standard deviation of pixels in [0, 1], over all digits and over MNIST's training images.
DIGITS_MEAN, DIGITS_STD = (0.3053,), (0.3761,)
MNIST_MEAN, MNIST_STD = (0.1307,), (0.3081,)
CIFAR_MEAN, CIFAR_STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)

Splits = tuple[Pixels, Pixels]  # training and test images


@clear_calls
def rotated_digits(tasks: int = 15, seed: int = 0, angles: Sequence[int] | None = None) -> Stream:
    """Each task has all small digits, rotated counter-clockwise by another angle.

    - tasks: 1 to 360, default 15. Their angles are spread over the circle, because task inference
      confuses similar angles: at least 22 degrees apart for up to 16 tasks, 11 for up to 32.
    - seed: the seed of the angles and the split; a stratified quarter of the digits is test data.
    - angles: integers from 0 to 359 in place of drawn angles; `tasks` is then not used.

    Inputs are (n, 1, 8, 8), scaled to [0, 1], rotated with black corners, then normalised. Labels
    are 0 to 9.
    """
    return _rotated("rotated_digits", _digits(seed), draw_angles(tasks, seed, angles, spread=True))


@clear_calls
def permuted_digits(tasks: int = 15, seed: int = 0) -> Stream:
    """Each task has all small digits, with their 64 pixels in a random order.

    - tasks: at least 1, default 15.
    - seed: the seed of the split and the orders; the order of task i depends only on (seed, i).

    Inputs and labels are as in `rotated_digits`.
    """
    check_integer("tasks", tasks, 1)
    return _permuted("permuted_digits", _digits(seed), tasks, seed)


@clear_calls
def rotated_mnist(
    tasks: int = 20,
    seed: int = 0,
    root: str | Path = "data",
    download: bool = True,
    angles: Sequence[int] | None = None,
) -> Stream:
    """Each task has all of MNIST, rotated counter-clockwise by another angle.

    - tasks: 1 to 360, default 20. Their angles are drawn uniformly, as in the paper, so the angles
      of two tasks may differ by only one degree.
    - seed: the seed of the angles.
    - root: the folder of the data, in torchvision's layout: ROOT/MNIST/raw.
    - download: whether to download missing data, default True.
    - angles: as in `rotated_digits`.

    Inputs are (n, 1, 28, 28), rotated with black corners, then normalised. Labels are 0 to 9.
    """
    chosen = draw_angles(tasks, seed, angles)
    return _rotated("rotated_mnist", mnist_splits(root, download), chosen)


@clear_calls
def permuted_mnist(
    tasks: int = 110, seed: int = 0, root: str | Path = "data", download: bool = True
) -> Stream:
    """Each task, including the first, has all of MNIST with its 784 pixels in a random order.

    - tasks: at least 1, default 110.
    - seed: the seed of the orders; the order of task i depends only on (seed, i).
    - root, download: as in `rotated_mnist`; so are inputs (not rotated) and labels.
    """
    check_integer("tasks", tasks, 1)
    return _permuted("permuted_mnist", mnist_splits(root, download), tasks, seed)


@clear_calls
def split_cifar100(
    tasks: int = 20,
    classes_per_task: int = 5,
    seed: int = 0,
    root: str | Path = "data",
    download: bool = True,
    augment: bool = True,
    subset: bool = False,
    classes: Sequence[int] | None = None,
    mean: Sequence[float] = CIFAR_MEAN,
    std: Sequence[float] = CIFAR_STD,
) -> Stream:
    """CIFAR-100 split into tasks "cifar100-00", ..., which have no class in common.

    - tasks, classes_per_task: default 20 and 5; at most 100 classes in all.
    - seed: the seed of the order of the classes.
    - root: the folder of the data, in torchvision's layout: ROOT/cifar-100-python.
    - download: whether to download missing data, default True.
    - augment: whether training images are flipped at random and shifted by up to 4 pixels.
    - subset: read ROOT/cifar100-subset.npz instead, with train_images (n, 32, 32, 3) uint8,
      train_labels (n,), test_images, test_labels and class_names. Accuracies on a subset are not
      accuracies on CIFAR-100.
    - classes: positions in the alphabetical list of classes, in place of a seeded order of all.
    - mean, std: pixels are normalised by these, one number or one per channel. For a pretrained
      network, use the numbers that it was trained with.

    Inputs are (n, 3, 32, 32), normalised. Labels are the class names. `task.settings["classes"]`
    has the classes in the order in which they were drawn.
    """
    # Settings are checked before data are read, as the order does not depend on class names.
    preprocessing = Preprocessing(mean=mean, std=std)
    groups = draw_class_groups(range(100), tasks, classes_per_task, seed, classes)
    splits = _cifar_subset(Path(root)) if subset else load_images("CIFAR100", root, download)
    train, test = (replace(part, preprocessing=preprocessing) for part in splits)
    # In alphabetical order, because archives may list the names in another order.
    class_names = classes_of(train.labels)
    if len(class_names) != 100:
        raise InputError(f"the images of CIFAR-100 need 100 classes, got {len(class_names)}")
    augmentation = flip_and_shift if augment else None
    made = []
    for number, group in enumerate(groups):
        names = [class_names[place] for place in group]
        part, tested = (each.subset(np.isin(each.labels, names)) for each in (train, test))
        settings = {"classes": names, "subset": subset}
        name = f"cifar100-{number:02d}"
        made.append(image_task(name, part, tested, settings, augment=augmentation))
    return Stream("split_cifar100", tuple(made))


def _rotated(name: str, splits: Splits, angles: Sequence[int]) -> Stream:
    tasks = []
    for angle in angles:
        turn = partial(rotate, degrees=angle)
        tasks.append(image_task(f"rotated-{angle}", *splits, {"angle": angle}, turn))
    return Stream(name, tuple(tasks))


def _permuted(name: str, splits: Splits, tasks: int, seed: int) -> Stream:
    pixels = splits[0].images[0, 0].numel()
    made = []
    for number in range(tasks):
        order = torch.from_numpy(seeded(seed, "permutation", number).permutation(pixels))
        settings = {"permutation": number, "seed": seed}
        permute = partial(permute_pixels, order=order)
        made.append(image_task(f"permuted-{number}", *splits, settings, permute))
    return Stream(name, tuple(made))


def _digits(seed: int) -> Splits:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    tensor = torch.from_numpy(images.astype(np.uint8)).reshape(-1, 1, 8, 8)
    preprocessing = Preprocessing(mean=DIGITS_MEAN, std=DIGITS_STD)
    pixels = Pixels(tensor, labels.astype(np.int64), 16.0, preprocessing)
    train, test = hold_out(pixels.labels, 0.25, seed, "test")
    return pixels.subset(train), pixels.subset(test)


def mnist_splits(root: str | Path, download: bool) -> Splits:
    """All of MNIST, not rotated."""
    preprocessing = Preprocessing(mean=MNIST_MEAN, std=MNIST_STD)
    train, test = load_images("MNIST", root, download)
    return replace(train, preprocessing=preprocessing), replace(test, preprocessing=preprocessing)


def _cifar_subset(root: Path) -> Splits:
    path = root / "cifar100-subset.npz"
    if not path.is_file():
        raise MissingDataError(f"no {path}: put the archive there, or pass subset=False")
    splits = []
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = archive["class_names"]
            for part in ("train", "test"):
                images = channels_first(archive[f"{part}_images"])
                splits.append(Pixels(images, names[archive[f"{part}_labels"]]))
    except Exception as error:  # NumPy raises almost anything for damaged bytes
        raise InputError(
            f"{path} must be an archive of train_images, train_labels, test_images, test_labels "
            f"and class_names: {error}"
        ) from error
    return splits[0], splits[1]
