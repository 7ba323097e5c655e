"""torchvision's data sets as plain arrays, from a local copy where there is one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impresslearn.data.optional import import_torchvision
from impresslearn.errors import MissingDataError


@dataclass(frozen=True, eq=False)
class RawImages:
    """A data set as it was published.

    train_images, test_images: (n, h, w) or (n, h, w, 3) uint8; train_labels, test_labels: (n,)
    int64; class_names: position i names label i.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray
    class_names: tuple[str, ...]


def load_mnist(root: str | Path, download: bool) -> RawImages:
    """MNIST from ROOT/MNIST/raw: 60,000 and 10,000 images of 28x28.

    A local copy is used without touching the network; otherwise it is fetched if `download`.
    Raises MissingDataError where neither works, MissingDependencyError without torchvision.
    """
    train, test = _both_splits("MNIST", Path(root), Path("MNIST", "raw"), download)
    return RawImages(
        train.data.numpy(),
        train.targets.numpy(),
        test.data.numpy(),
        test.targets.numpy(),
        tuple(map(str, range(10))),
    )


def load_cifar100(root: str | Path, download: bool) -> RawImages:
    """CIFAR-100 with its fine labels from ROOT/cifar-100-python: 50,000 and 10,000 of 32x32x3.

    Errors and the use of a local copy as in `load_mnist`.
    """
    train, test = _both_splits("CIFAR100", Path(root), Path("cifar-100-python"), download)
    return RawImages(
        train.data,
        np.asarray(train.targets, dtype=np.int64),
        test.data,
        np.asarray(test.targets, dtype=np.int64),
        tuple(train.classes),
    )


def _both_splits(name: str, root: Path, folder: Path, download: bool) -> tuple[Any, Any]:
    data_set: Callable[..., Any] = getattr(import_torchvision("torchvision.datasets"), name)
    try:
        return data_set(root, train=True, download=download), data_set(root, train=False)
    except Exception as error:  # torchvision raises all kinds, assertions included, on bad files
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason.split(" You can use download=True")[0]
        advice = "" if download else ", or pass download=True"
        raise MissingDataError(
            f"no usable {name} in {root / folder} ({reason}): put its files there or point root "
            f"at a copy{advice}"
        ) from error
