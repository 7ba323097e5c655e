"""Images, held once as uint8 for all tasks, and transforms that make each task's inputs from them.

Transforms take and return tensors (n, c, h, w) on any device, and do not change their argument.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.data import Augmentation, Examples, Preprocessing, classes_of
from impresslearn.streams.stream import Task

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Pixels:
    """Images and labels of one split.

    - images: (n, c, h, w) uint8
    - labels: (n,) integers or strings
    - white: the pixel value that becomes 1
    - preprocessing: normalises pixels in [0, 1]
    """

    images: Tensor
    labels: np.ndarray
    white: float = 255.0
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    def subset(self, positions: np.ndarray) -> "Pixels":
        """A copy of the examples at these positions."""
        images = self.images[torch.from_numpy(positions)]
        return replace(self, images=images, labels=self.labels[positions])

    def examples(
        self, transform: Transform | None = None, augment: Augmentation | None = None
    ) -> Examples:
        """Float32 examples: scaled to [0, 1], then transformed, then normalised."""
        scaled = self.images.float().div_(self.white)
        if transform is not None:
            scaled = transform(scaled)
        return Examples(self.preprocessing.arranged(scaled), self.labels, augment)


def image_task(
    name: str,
    train: Pixels,
    test: Pixels,
    settings: Mapping[str, Any],
    transform: Transform | None = None,
    augment: Augmentation | None = None,
) -> Task:
    """A task from a training and a test split; only training examples are augmented."""
    load_train = partial(train.examples, transform, augment)
    load_test = partial(test.examples, transform)
    return Task(name, classes_of(train.labels), load_train, load_test, settings=settings)


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Rotates images counter-clockwise about their centre, with bilinear interpolation.

    Corners are filled with 0. 90 degrees give `torch.rot90(images, 1, (-2, -1))` up to rounding.
    """
    count, channels, height, width = images.shape
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    # Coordinates run from -1 to 1 on both axes, whatever the aspect ratio. In float64 a quarter
    # turn maps pixels exactly to pixels.
    theta = torch.tensor(
        [[cosine, -sine * height / width, 0.0], [sine * width / height, cosine, 0.0]],
        dtype=torch.float64,
    )
    grid = F.affine_grid(theta[None], [1, 1, height, width], align_corners=False).to(images)
    # Treat all images as channels of a single image, so that one grid is enough.
    planes = images.reshape(1, count * channels, height, width)
    return F.grid_sample(planes, grid, align_corners=False).reshape(images.shape)


def permute_pixels(images: Tensor, order: Tensor) -> Tensor:
    """Moves pixel `order[j]` to place j (counted row by row), in every channel alike."""
    return images.flatten(-2).index_select(-1, order.to(images.device)).reshape(images.shape)


def flip_and_shift(batch: Tensor, generator: torch.Generator, pixels: int = 4) -> Tensor:
    """Flips each image left to right with probability 1/2, and shifts it by up to `pixels`.

    - batch: (n, c, h, w), larger than `pixels`; the image is reflected at its border
    - generator: the source of randomness, on any device
    - pixels: the largest shift in each direction
    """
    count, _, height, width = batch.shape
    source = generator.device
    shifts = torch.randint(-pixels, pixels + 1, (2, count, 1), generator=generator, device=source)
    mirror = torch.randint(0, 2, (count, 1), generator=generator, device=source)
    shifts, mirror = shifts.to(batch.device), mirror.to(batch.device)
    padded = F.pad(batch, (pixels,) * 4, mode="reflect")
    # A view of all crops (n, c, 2 * pixels + 1, 2 * pixels + 1, h, w); it copies nothing.
    crops = padded.unfold(2, height, 1).unfold(3, width, 1)
    rows, columns = shifts[:, :, 0] + pixels
    moved = crops[torch.arange(count, device=batch.device), :, rows, columns]
    # Flip after the crop: a flip before it would reverse the sideways shifts.
    return torch.where(mirror[:, :, None, None].bool(), moved.flip(-1), moved)
