"""Base images held once as uint8, from which the tasks of a stream make their tensors.

`Pixels` is one split (images, labels, how to scale them); `Splits` the two or three of a data set.
`image_task` turns splits and a transform into a `Task`; `rotated_stream` and `permuted_stream` do
it for every angle or permutation. The data-set files beside this one only load and describe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import Augmentation, Examples, classes_of
from impresslearn.streams.base import Loader, Stream, Task
from impresslearn.streams.draws import check_fraction, draw_permutation
from impresslearn.streams.draws import hold_out as hold_out_positions
from impresslearn.streams.transforms import permute_pixels, rotate

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Pixels:
    """Images and labels of one split.

    images: (n, c, h, w) uint8; labels: (n,) integers or strings; white: the pixel value that
    becomes 1; mean, std: one number a channel, taken off and divided by after that scaling.
    """

    images: Tensor
    labels: np.ndarray
    white: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def subset(self, indices: np.ndarray) -> Pixels:
        """A copy of the examples at these positions."""
        return replace(
            self, images=self.images[torch.from_numpy(indices)], labels=self.labels[indices]
        )

    def examples(
        self, transform: Transform | None = None, augment: Augmentation | None = None
    ) -> Examples:
        """Float32 examples: scaled to [0, 1], then transformed, then normalised."""
        scaled = self.images.float().div_(self.white)
        if transform is not None:
            scaled = transform(scaled)
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return Examples(scaled.sub_(mean).div_(std), self.labels, augment)


@dataclass(frozen=True, eq=False)
class Splits:
    """The splits of a data set; validation is None where none was asked for."""

    train: Pixels
    test: Pixels
    validation: Pixels | None = None

    def hold_out(self, validation: float, seed: int) -> Splits:
        """These splits with a stratified fraction of the training examples held out."""
        if check_fraction("validation", validation, zero=True) == 0:
            return self
        kept, held = hold_out_positions(self.train.labels, validation, seed, "validation")
        return replace(self, train=self.train.subset(kept), validation=self.train.subset(held))

    def select(self, classes: Sequence[str]) -> Splits:
        """The examples of these classes only."""
        train, test = (_of_classes(part, classes) for part in (self.train, self.test))
        held = None if self.validation is None else _of_classes(self.validation, classes)
        return Splits(train, test, held)


def image_task(
    name: str,
    splits: Splits,
    settings: Mapping[str, Any],
    transform: Transform | None = None,
    augment: Augmentation | None = None,
) -> Task:
    """A task over these splits; the augmentation goes to the training examples only."""
    validation: Loader | None = None
    if splits.validation is not None:
        validation = partial(splits.validation.examples, transform)
    return Task(
        name,
        classes_of(splits.train.labels),
        load_train=partial(splits.train.examples, transform, augment),
        load_test=partial(splits.test.examples, transform),
        load_validation=validation,
        settings=settings,
    )


def rotated_stream(name: str, splits: Splits, angles: Sequence[int]) -> Stream:
    """One task "rotated-ANGLE" for each angle in degrees, counter-clockwise."""
    return Stream(
        name,
        tuple(
            image_task(f"rotated-{angle}", splits, {"angle": angle}, partial(rotate, degrees=angle))
            for angle in angles
        ),
    )


def permuted_stream(name: str, splits: Splits, tasks: int, seed: int) -> Stream:
    """Tasks "permuted-0", "permuted-1", ...; the i-th permutation depends on (seed, i) alone."""
    count = splits.train.images[0, 0].numel()
    made = []
    for index in range(tasks):
        order = draw_permutation(count, seed, index)
        settings = {"permutation": index, "seed": seed}
        transform = partial(permute_pixels, order=order)
        made.append(image_task(f"permuted-{index}", splits, settings, transform))
    return Stream(name, tuple(made))


def _of_classes(pixels: Pixels, classes: Sequence[str]) -> Pixels:
    return pixels.subset(np.flatnonzero(np.isin(pixels.labels, list(classes))))
