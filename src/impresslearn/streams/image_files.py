"""Image files as examples: one tensor where they fit in memory, read anew each epoch otherwise.

`list_images` finds CLASS/IMAGE files; `ImageFiles` is the `Dataset` over them; `load_images` turns
it into what learners take. Used by the ImageNet stream and by folders of your own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.data import MEMORY_LIMIT, Augmentation, Examples, as_examples
from impresslearn.errors import InputError, MissingDataError, MissingDependencyError
from impresslearn.streams.base import LabelledData

if TYPE_CHECKING:
    from PIL import Image as PillowImage

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})


def list_images(folder: Path) -> dict[str, list[Path]]:
    """The image files of each sub-folder, both sorted by name; other files are left out.

    Raises MissingDataError where there is no such folder, InputError where a class, or the whole
    folder, holds no image.
    """
    if not folder.is_dir():
        raise MissingDataError(f"no image folder at {folder}; expected {folder}/CLASS/IMAGE files")
    found = {
        directory.name: sorted(f for f in directory.iterdir() if f.suffix.lower() in SUFFIXES)
        for directory in sorted(folder.iterdir())
        if directory.is_dir() and not directory.name.startswith(".")
    }
    empty = [name for name, files in found.items() if not files]
    if empty or not found:
        place = folder / empty[0] if empty else folder
        raise InputError(f"no image below {place}; expected {folder}/CLASS/IMAGE files")
    return found


@dataclass(frozen=True, eq=False)
class ImageFiles(Dataset):
    """Image files as pairs of a (3, h, w) float32 tensor and a label.

    size: the shorter side is resized to it and the centre square kept; None leaves images as they
    are. mean, std: three numbers, applied after scaling to [0, 1]. augment: called on each image
    as a batch of one, with a generator that each `DataLoader` worker seeds for itself.
    """

    files: Sequence[Path]
    targets: Sequence[str]
    size: int | None = None
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    augment: Augmentation | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        pixels = torch.from_numpy(_read_rgb(self.files[index], self.size)).permute(2, 0, 1)
        mean, std = (torch.tensor(values).view(3, 1, 1) for values in (self.mean, self.std))
        image = (pixels.float() / 255 - mean) / std
        if self.augment is not None:
            image = self.augment(image[None], torch.default_generator)[0]
        return image, self.targets[index]

    def subset(self, indices: np.ndarray) -> ImageFiles:
        """The files at these positions."""
        positions = indices.tolist()
        return replace(
            self,
            files=[self.files[i] for i in positions],
            targets=[self.targets[i] for i in positions],
        )


def image_files(
    images: dict[str, list[Path]],
    classes: Sequence[str],
    size: int | None,
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0),
    std: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> ImageFiles:
    """The files of these classes, class by class, out of what `list_images` found."""
    pairs = [(file, name) for name in classes for file in images[name]]
    return ImageFiles([file for file, _ in pairs], [name for _, name in pairs], size, mean, std)


def load_images(
    dataset: ImageFiles,
    augment: Augmentation | None = None,
    memory_limit: int = MEMORY_LIMIT,
    workers: int = 2,
) -> LabelledData:
    """The files as examples: in one tensor if it takes at most `memory_limit` bytes.

    Beyond that, as `StreamedExamples` read by `workers` processes, augmented while they are read.
    Raises InputError for a file that is no image, or images of several shapes without a size.
    """
    examples = as_examples(dataset, memory_limit=memory_limit, workers=workers)
    if augment is None:
        return examples
    if isinstance(examples, Examples):
        return replace(examples, augment=augment)
    return replace(examples, dataset=replace(dataset, augment=augment))


def _read_rgb(path: Path, size: int | None) -> np.ndarray:
    """(h, w, 3) uint8."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError(
            "reading image folders needs pillow: pip install 'impresslearn[vision]'"
        ) from None
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    except (OSError, Image.DecompressionBombError) as error:
        raise InputError(f"cannot read the image {path}: {error}") from None
    if size is not None:
        image = _resize_and_crop(image, size)
    return np.array(image)


def _resize_and_crop(image: PillowImage.Image, size: int) -> PillowImage.Image:
    from PIL import Image

    width, height = image.size
    scale = size / min(width, height)
    width, height = max(size, round(width * scale)), max(size, round(height * scale))
    left, top = (width - size) // 2, (height - size) // 2
    if (width, height) != image.size:
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return image.crop((left, top, left + size, top + size))
