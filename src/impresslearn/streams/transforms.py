"""Pixel transforms as single tensor operations over a whole set or batch of images.

All take and give (n, c, h, w), on any device, and leave their argument alone.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from impresslearn.errors import InputError

CHUNK_PIXELS = 4 * 1024**2
"""Pixels rotated at a time: bounds the working memory beside the result."""


def rotate(images: Tensor, degrees: float) -> Tensor:
    """The images turned counter-clockwise about their centre; corners that come in are 0.

    images: (n, c, h, w) floating point; bilinear interpolation, same shape back. A turn of 90
    degrees is `torch.rot90(images, 1, (-2, -1))` up to rounding. Raises InputError for another
    shape or for integer pixels.
    """
    _check_images(images)
    if not images.is_floating_point():
        raise InputError(f"rotate needs floating-point pixels, got {images.dtype}")
    count, channels, height, width = images.shape
    grid = _rotation_grid(height, width, degrees).to(images)
    # One grid serves all: images are laid out as the channels of a single image.
    planes = images.reshape(1, count * channels, height, width)
    size = max(1, CHUNK_PIXELS // (height * width))
    turned = torch.empty_like(planes)
    for start in range(0, count * channels, size):
        turned[:, start : start + size] = F.grid_sample(
            planes[:, start : start + size],
            grid,
            mode="bilinear",
            padding_mode="zeros",
            align_corners=False,
        )
    return turned.reshape(images.shape)


def permute_pixels(images: Tensor, order: Tensor) -> Tensor:
    """The images with pixel `order[j]` at place j (row-major), the same in every channel.

    images: (n, c, h, w) of any dtype; order: (h * w,) int64, a permutation. Raises InputError where
    the order has another length.
    """
    _check_images(images)
    pixels = images.shape[-2] * images.shape[-1]
    if order.shape != (pixels,):
        raise InputError(f"order must have shape ({pixels},), got {tuple(order.shape)}")
    return images.flatten(-2).index_select(-1, order.to(images.device)).reshape(images.shape)


def flip_and_shift(
    batch: Tensor, generator: torch.Generator | None = None, pixels: int = 4
) -> Tensor:
    """Each image mirrored left to right with chance 1/2 and shifted by up to `pixels` each way.

    batch: (n, c, h, w); what a shift brings in is the reflected border (`mode="reflect"` of
    `torch.nn.functional.pad`, followed by a random crop). generator: draws on its own device; None
    means torch's default generator, which a `DataLoader` seeds in each of its workers.
    """
    _check_images(batch)
    count, channels, height, width = batch.shape
    if not 0 <= pixels < min(height, width):
        raise InputError(f"a shift by {pixels} pixels needs larger images than {height}x{width}")
    source = torch.device("cpu") if generator is None else generator.device
    shifts = torch.randint(
        -pixels, pixels + 1, (2, count, 1), generator=generator, device=source
    ).to(batch.device)
    mirror = torch.randint(0, 2, (count, 1), generator=generator, device=source).to(batch.device)
    rows = _reflect(torch.arange(height, device=batch.device) + shifts[0], height)
    columns = torch.arange(width, device=batch.device)
    columns = torch.where(mirror.bool(), columns.flip(0), columns)
    columns = _reflect(columns + shifts[1], width)
    index = (rows[:, :, None] * width + columns[:, None, :]).reshape(count, 1, height * width)
    moved = batch.flatten(-2).gather(-1, index.expand(count, channels, height * width))
    return moved.reshape(batch.shape)


def _rotation_grid(height: int, width: int, degrees: float) -> Tensor:
    """(1, h, w, 2) sampling places, in float64 so that a quarter turn lands on the pixels."""
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    # Normalised coordinates run from -1 to 1 on both axes, whatever the aspect ratio.
    theta = torch.tensor(
        [
            [cosine, -sine * height / width, 0.0],
            [sine * width / height, cosine, 0.0],
        ],
        dtype=torch.float64,
    )
    return F.affine_grid(theta[None], [1, 1, height, width], align_corners=False)


def _reflect(positions: Tensor, size: int) -> Tensor:
    """Positions beyond 0..size-1 mirrored back in, the border pixel not repeated."""
    return (size - 1) - ((size - 1) - positions.abs()).abs()


def _check_images(images: Tensor) -> None:
    if images.ndim != 4:
        raise InputError(f"images must have shape (n, c, h, w), got {tuple(images.shape)}")
