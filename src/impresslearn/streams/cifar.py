"""Split CIFAR-100: twenty tasks of five classes each, with no class in two tasks.

The data are torchvision's CIFAR100 under ROOT, or, only where `subset=True` says so, a smaller
archive of the same classes. An accuracy on a subset is not an accuracy on CIFAR-100.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from impresslearn.checks import check_number
from impresslearn.errors import InputError, MissingDataError
from impresslearn.streams.draws import check_fraction, draw_class_groups
from impresslearn.streams.pixels import Splits, image_task
from impresslearn.streams.stream import Stream
from impresslearn.streams.torchvision import RawImages, load_cifar100
from impresslearn.streams.transforms import flip_and_shift

MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)
"""Of the CIFAR-100 training pixels in [0, 1], by channel."""

SUBSET_FILE = "cifar100-subset.npz"


def split_cifar100(
    tasks: int = 20,
    classes_per_task: int = 5,
    seed: int = 0,
    root: str | Path = "data",
    download: bool = True,
    validation: float = 0.0,
    augment: bool = True,
    subset: bool = False,
    classes: Sequence[int] | None = None,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Stream:
    """CIFAR-100's 100 fine classes, in a seeded order, cut into tasks "cifar100-00", ...

    root, download: where the data lie, and whether to fetch them if they do not; validation: the
    fraction of the training images to hold out, stratified; augment: mirror training batches at
    random and shift them by up to 4 pixels; subset: read ROOT/cifar100-subset.npz instead, with
    train_images (n, 32, 32, 3) uint8, train_labels (n,), test_images, test_labels and class_names.
    classes: positions in the alphabetical list of classes, to cut into tasks instead of a seeded
    order of all; mean, std: of each channel, which inputs are normalised by: those of CIFAR-100, or
    those that a pretrained network wants.
    Inputs: (n, 3, 32, 32), normalised; labels: the class names; `settings["classes"]` has them in
    that order.
    Raises InputError for settings outside their ranges or an archive of another form,
    MissingDataError and MissingDependencyError where there is nothing to read from or with.
    """
    check_fraction("validation", validation)
    drawn = partial(draw_class_groups, per_task=classes_per_task, seed=seed, order=classes)
    drawn([""] * 100, tasks)  # bad settings fail before a read
    normalising = _by_channel("mean", mean), _by_channel("std", std)
    raw = _read_subset(Path(root)) if subset else _read_full(Path(root), download)
    groups = drawn(raw.class_names, tasks)
    splits = Splits.of(raw, *normalising).hold_out(validation, seed)
    made = (
        image_task(
            f"cifar100-{index:02d}",
            splits.of_classes(classes),
            {"classes": list(classes), "subset": subset},
            augment=flip_and_shift if augment else None,
        )
        for index, classes in enumerate(groups)
    )
    return Stream("split_cifar100", tuple(made))


def _by_channel(name: str, values: Sequence[float]) -> tuple[float, ...]:
    if len(values) != 3:
        raise InputError(f"{name} must be three numbers, one a channel, got {values!r}")
    least = {"mean": 0.0, "std": 1e-6}[name]
    return tuple(check_number(name, value, least) for value in values)


def _read_full(root: Path, download: bool) -> RawImages:
    try:
        return load_cifar100(root, download)
    except MissingDataError as error:
        there = (root / SUBSET_FILE).is_file()
        hint = f"; or pass subset=True to use {root / SUBSET_FILE}" if there else ""
        raise MissingDataError(f"{error}{hint}") from error


def _read_subset(root: Path) -> RawImages:
    path = root / SUBSET_FILE
    if not path.is_file():
        raise MissingDataError(f"no {path}: put the archive there, or pass subset=False")
    keys = ("train_images", "train_labels", "test_images", "test_labels", "class_names")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in keys}
    except (KeyError, ValueError, OSError, BadZipFile) as error:
        raise InputError(f"{path} is no archive of {', '.join(keys)}: {error}") from error
    names = tuple(map(str, arrays["class_names"].tolist()))
    for part in ("train", "test"):
        _check_part(f"{path}: {part}", arrays[f"{part}_images"], arrays[f"{part}_labels"], names)
    return RawImages(**{key: arrays[key] for key in keys[:4]}, class_names=names)


def _check_part(place: str, images: np.ndarray, labels: np.ndarray, names: tuple[str, ...]) -> None:
    pixels = images.shape[1:] == (32, 32, 3) and images.dtype == np.uint8 and len(images) > 0
    known = labels.dtype.kind in "iu" and np.isin(labels, range(len(names))).all()
    if not pixels or labels.shape != images.shape[:1] or not known:
        raise InputError(
            f"{place}_images must be (n, 32, 32, 3) uint8, and the labels (n,) positions in the "
            f"{len(names)} class_names, got {images.shape} {images.dtype} and {labels.shape} "
            f"{labels.dtype}"
        )
