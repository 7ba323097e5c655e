"""Lists and reads image files, for folders of classes, single files and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.data.paths import naming
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError, MissingDataError, MissingDependencyError

if TYPE_CHECKING:
    from PIL import Image as PillowImage

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})
ORIENTATION = 0x0112
"""The Exif tag that says how a camera was held."""


def class_images(folder: Path) -> dict[str, list[Path]]:
    """The image files of each sub-folder, both sorted by name.

    Hidden files and folders, and files that are no images by their suffix, are left out. Raises
    MissingDataError where there is no such folder, InputError where a sub-folder, or the whole
    folder, holds no image.
    """
    expected = f"expected {folder}/CLASS/IMAGE files"
    with naming(folder):
        if not folder.exists():
            raise MissingDataError(f"no image folder at {folder}; {expected}")
        if not folder.is_dir():
            raise InputError(f"{folder} is a file; {expected}, or read it with FileReader")
        found = {
            directory.name: _images(directory)
            for directory in sorted(folder.iterdir())
            if directory.is_dir() and directory.name[0] != "."
        }
    empty = [name for name, files in found.items() if not files]
    if empty or not found:
        place = folder / empty[0] if empty else folder
        raise InputError(f"no image below {place}; {expected}")
    return found


def flat_images(folder: Path) -> list[Path]:
    """The image files of a folder, sorted by name; its sub-folders are not searched."""
    with naming(folder):
        files = _images(folder)
    if not files:
        raise InputError(f"no image in {folder}; its sub-folders are not searched")
    return files


@dataclass(frozen=True, eq=False)
class ImageFiles(Dataset):
    """Image files as pairs of a tensor (c, h, w) and the name of the file's folder.

    shape: (height, width) that all images must have, unless preprocessing has a size: then the
    shorter side is resized to it and the centre square kept. preprocessing: arranges and normalises
    pixels in [0, 1], and reads one channel instead of red, green, blue where its shape asks for one
    number a pixel; where there is nothing to do, pixels stay uint8.
    """

    files: Sequence[Path]
    shape: tuple[int, int]
    preprocessing: Preprocessing | None = None

    @property
    def targets(self) -> list[str]:
        """The label of each file."""
        return [file.parent.name for file in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        path = self.files[index]
        with naming(path):
            pixels = torch.from_numpy(self._pixels(path)).permute(2, 0, 1)
            wanted = self.preprocessing
            if wanted is not None and (wanted.shape is not None or wanted.normalises):
                pixels = wanted.arranged(pixels[None].float() / 255)[0]
        return pixels, path.parent.name

    def _pixels(self, path: Path) -> np.ndarray:
        """(h, w, c) uint8."""
        wanted = self.preprocessing or Preprocessing()
        grey = wanted.shape is not None and prod(wanted.shape) == prod(self.shape)
        with _opened(path) as image:
            if wanted.size is None and image.size != self.shape[::-1]:
                (width, height), (first, other) = image.size, self.shape
                raise InputError(
                    f"{path} has {width}x{height} pixels, the first image {other}x{first}; "
                    "give a size to resize all of them to"
                )
            if image.mode == "P" and "transparency" in image.info:
                image = image.convert("RGBA")
            image = image.convert("L" if grey else "RGB")
            if wanted.size is not None:
                image = _square(image, wanted.size)
        return np.array(image).reshape(*self.shape, -1)


def image_files(files: Sequence[Path], preprocessing: Preprocessing | None = None) -> ImageFiles:
    """The files as a data set, after a look at the first.

    Transparency is dropped, as the field's readers do; images are turned as their Exif tag says.
    Raises InputError for a first file that is no image, MissingDependencyError without Pillow.
    """
    if preprocessing is not None and preprocessing.size is not None:
        return ImageFiles(files, (preprocessing.size, preprocessing.size), preprocessing)
    with naming(files[0]), _opened(files[0]) as first:
        return ImageFiles(files, (first.height, first.width), preprocessing)


def _images(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SUFFIXES and file.is_file() and file.name[0] != "."
    )


@contextmanager
def _opened(path: Path) -> Iterator[PillowImage.Image]:
    """An image, upright and of 8 bits a channel."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingDependencyError(
            "reading images needs pillow: pip install 'impresslearn[vision]'"
        ) from None
    # Given a path, Pillow maps uncompressed files to memory, and of turned ones mixes the pixels.
    with path.open("rb") as stream:
        try:
            image = Image.open(stream)
        except Image.UnidentifiedImageError:
            raise InputError(f"cannot read the image {path}: Pillow knows no such form") from None
        except Image.DecompressionBombError:
            raise InputError(f"{path} has more pixels than can be read safely") from None
        if image.mode.startswith(("I", "F")):  # Pillow would cut off all above 255
            raise InputError(f"{path} has more than 8 bits a channel; save it with 8")
        turned = image.getexif().get(ORIENTATION, 1) != 1
        yield ImageOps.exif_transpose(image) if turned else image


def _square(image: PillowImage.Image, side: int) -> PillowImage.Image:
    """The centre square that is left where the shorter side is resized to `side`.

    Cut out while resizing: of a long and narrow image the whole would take any amount of memory.
    """
    from PIL import Image

    scale = side / min(image.size)
    edges = []
    for length in image.size:
        resized = max(side, round(length * scale))
        start = (resized - side) // 2
        edges.append([place * length / resized for place in (start, start + side)])
    (left, right), (top, bottom) = edges
    box = (left, top, right, bottom)
    return image.resize((side, side), Image.Resampling.BILINEAR, box=box)
