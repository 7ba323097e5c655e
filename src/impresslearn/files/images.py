"""Image files as inputs: RGB, or grey where the shape asks for one number a pixel; in [0, 1].

`class_images` lists CLASS/IMAGE files, `flat_images` those of one folder; `ImageDataset` reads
them one by one, so that `as_examples` can hold them in memory or stream them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.data import as_inputs
from impresslearn.errors import InputError, MissingDependencyError
from impresslearn.files.paths import reading
from impresslearn.preprocessing import Preprocessing

if TYPE_CHECKING:
    from PIL import Image as PillowImage

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})


def class_images(folder: Path) -> list[Path]:
    """The CLASS/IMAGE files below a folder, sorted; hidden ones and other files are left out."""
    with reading(folder):
        classes = sorted(f for f in folder.iterdir() if f.is_dir() and f.name[0] != ".")
        files = [file for directory in classes for file in _images(directory)]
    if not files:
        raise InputError(f"no image below {folder}; expected {folder}/CLASS/IMAGE files")
    return files


def flat_images(folder: Path) -> list[Path]:
    """The image files of a folder, sorted by name; its sub-folders are not searched."""
    with reading(folder):
        files = _images(folder)
    if not files:
        raise InputError(f"no image in {folder}; its sub-folders are not searched")
    return files


@dataclass(frozen=True, eq=False)
class ImageDataset(Dataset):
    """Image files as pairs of a (c, h, w) float32 tensor, arranged, and a target.

    side: the shorter side is resized to it and the centre square kept; None leaves images as they
    are. expected: (width, height) that all images must have, None for any.
    """

    files: Sequence[Path]
    targets: Sequence[str]
    arrangement: Preprocessing
    side: int | None
    expected: tuple[int, int] | None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        path = self.files[index]
        with reading(path):
            pixels = torch.from_numpy(self._pixels(path)).permute(2, 0, 1)
            return self.arrangement.arranged(as_inputs(pixels[None]))[0], self.targets[index]

    def _pixels(self, path: Path) -> np.ndarray:
        """(h, w, c) uint8."""
        with _open(path) as image:
            if self.expected is not None and image.size != self.expected:
                raise InputError(
                    f"{path} has {_times(image.size)} pixels, the first image "
                    f"{_times(self.expected)}; give a size to resize all of them to"
                )
            if image.mode.startswith(("I", "F")):  # Pillow would cut off all above 255
                raise InputError(f"{path} has more than 8 bits a channel; save it with 8")
            width, height = (self.side, self.side) if self.side else image.size
            mode = "L" if self.arrangement.is_grey(height, width) else "RGB"
            converted = image.convert(mode)
        if self.side is not None:
            converted = _square(converted, self.side)
        return np.array(converted).reshape(height, width, -1)


def image_dataset(
    files: Sequence[Path], targets: Sequence[str], arrangement: Preprocessing, size: int | None
) -> ImageDataset:
    """The files as a data set.

    Raises InputError for a size below 1 and for a first file that is no image,
    MissingDependencyError without Pillow.
    """
    if size is not None:
        if type(size) is not int or size < 1:
            raise InputError(f"size must be a whole number of pixels from 1, got {size!r}")
        return ImageDataset(files, targets, arrangement, size, None)
    with reading(files[0]), _open(files[0]) as first:
        return ImageDataset(files, targets, arrangement, None, first.size)


def _images(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SUFFIXES and file.is_file() and file.name[0] != "."
    )


def _open(path: Path) -> PillowImage.Image:
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError(
            "reading images needs pillow: pip install 'impresslearn[vision]'"
        ) from None
    try:
        return Image.open(path)
    except Image.UnidentifiedImageError:
        raise InputError(f"{path} is no image that can be read") from None
    except Image.DecompressionBombError:
        raise InputError(f"{path} has more pixels than can be read safely") from None


def _square(image: PillowImage.Image, side: int) -> PillowImage.Image:
    """The centre square, after the shorter side was resized to `side`."""
    from PIL import Image

    scale = side / min(image.size)
    width, height = (max(side, round(length * scale)) for length in image.size)
    left, top = (width - side) // 2, (height - side) // 2
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return image.crop((left, top, left + side, top + side))


def _times(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
