"""Base images held once as uint8, from which the tasks of a stream make their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import Augmentation, Examples, classes_of
from impresslearn.streams.draws import check_fraction
from impresslearn.streams.draws import hold_out as hold_out_positions
from impresslearn.streams.stream import Task
from impresslearn.streams.torchvision import RawImages

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

    def of_classes(self, classes: Sequence[str]) -> Pixels:
        """The examples of these classes only."""
        return self.subset(np.flatnonzero(np.isin(self.labels, list(classes))))

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

    @classmethod
    def of(cls, raw: RawImages, mean: tuple[float, ...], std: tuple[float, ...]) -> Splits:
        """A published data set; images in colour have the names of their classes as labels."""

        def pixels(images: np.ndarray, labels: np.ndarray) -> Pixels:
            tensor = torch.from_numpy(images)
            if len(mean) == 1:
                return Pixels(tensor.unsqueeze(1), labels, mean=mean, std=std)
            names = np.asarray(raw.class_names)[labels]
            return Pixels(tensor.permute(0, 3, 1, 2), names, mean=mean, std=std)

        train = pixels(raw.train_images, raw.train_labels)
        return cls(train, pixels(raw.test_images, raw.test_labels))

    def hold_out(self, validation: float, seed: int) -> Splits:
        """These splits with a stratified fraction of the training examples held out."""
        if check_fraction("validation", validation) == 0:
            return self
        kept, held = hold_out_positions(self.train.labels, validation, seed, "validation")
        return replace(self, train=self.train.subset(kept), validation=self.train.subset(held))

    def of_classes(self, classes: Sequence[str]) -> Splits:
        """The examples of these classes only."""
        held = None if self.validation is None else self.validation.of_classes(classes)
        return Splits(self.train.of_classes(classes), self.test.of_classes(classes), held)


def image_task(
    name: str,
    splits: Splits,
    settings: Mapping[str, Any],
    transform: Transform | None = None,
    augment: Augmentation | None = None,
) -> Task:
    """A task over these splits; the augmentation goes to the training examples only."""
    held = splits.validation
    return Task(
        name,
        classes_of(splits.train.labels),
        load_train=partial(splits.train.examples, transform, augment),
        load_test=partial(splits.test.examples, transform),
        load_validation=None if held is None else partial(held.examples, transform),
        settings=settings,
    )
