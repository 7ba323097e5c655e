"""Image files: the one reader of them, for folders of classes, single files and streams.

`class_images` lists CLASS/IMAGE files, `flat_images` those of one folder; `image_files` makes the
`Dataset` that reads them one by one, so that `as_examples` can hold or stream them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.errors import (
    ImpressLearnError,
    InputError,
    MissingDataError,
    MissingDependencyError,
)

if TYPE_CHECKING:
    from PIL import Image as PillowImage

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".tif", ".tiff"})
LARGEST_SIZE = 8192
"""Pixels to a side that images are resized to at most."""
ORIENTATION = 0x0112
"""The Exif tag that says how a camera was held."""


def class_images(folder: Path) -> dict[str, list[Path]]:
    """The image files of each sub-folder, both sorted by name.

    Hidden files and folders, and files that are no images by their suffix, are left out. Raises
    MissingDataError where there is no such folder, InputError where a sub-folder, or the whole
    folder, holds no image.
    """
    expected = f"expected {folder}/CLASS/IMAGE files"
    with _named(folder):
        if not folder.exists():
            raise MissingDataError(f"no image folder at {folder}; {expected}")
        if not folder.is_dir():
            raise InputError(f"{folder} is a file; {expected}, or read it with read_examples")
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
    with _named(folder):
        files = _images(folder)
    if not files:
        raise InputError(f"no image in {folder}; its sub-folders are not searched")
    return files


@dataclass(frozen=True, eq=False)
class ImageFiles(Dataset):
    """Image files as pairs of a tensor (c, h, w) and the name of the file's folder.

    shape: (height, width) that all images must have, unless size is given: then the shorter side
    is resized to it and the centre square kept. grey: whether to read one channel instead of
    red, green, blue. arrange: from a (1, c, h, w) float batch in [0, 1] to inputs; None leaves
    uint8 pixels.
    """

    files: Sequence[Path]
    shape: tuple[int, int]
    size: int | None = None
    grey: bool = False
    arrange: Callable[[Tensor], Tensor] | None = None

    @property
    def targets(self) -> list[str]:
        """The label of each file."""
        return [file.parent.name for file in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        path = self.files[index]
        with _named(path):
            pixels = torch.from_numpy(self._pixels(path)).permute(2, 0, 1)
            if self.arrange is not None:
                pixels = self.arrange(pixels[None].float() / 255)[0]
        return pixels, path.parent.name

    def _pixels(self, path: Path) -> np.ndarray:
        """(h, w, c) uint8."""
        with _opened(path) as image:
            _check_mode(path, image.mode)
            upright = _upright(image)
            if self.size is None and _shape(upright) != self.shape:
                raise InputError(
                    f"{path} has {_times(_shape(upright))} pixels, the first image "
                    f"{_times(self.shape)}; give a size to resize all of them to"
                )
            if upright.mode == "P" and "transparency" in upright.info:
                upright = upright.convert("RGBA")
            converted = upright.convert("L" if self.grey else "RGB")
            if self.size is not None:
                converted = _square(converted, self.size)
        return np.array(converted).reshape(*self.shape, -1)


def image_files(files: Sequence[Path], size: int | None = None) -> ImageFiles:
    """The files as a data set, after a look at the first.

    Transparency is dropped, as the field's readers do; images are turned as their Exif tag says.
    Raises InputError for a size out of range and for a first file that is no image,
    MissingDependencyError without Pillow.
    """
    if size is not None:
        if type(size) is not int or not 1 <= size <= LARGEST_SIZE:
            raise InputError(
                f"size must be a whole number of pixels from 1 to {LARGEST_SIZE}, got {size!r}"
            )
        return ImageFiles(files, (size, size), size)
    with _named(files[0]), _opened(files[0]) as first:
        return ImageFiles(files, _shape(_upright(first)))


def _images(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SUFFIXES and file.is_file() and file.name[0] != "."
    )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns whatever reading a file or folder raises into one line that names it."""
    try:
        yield
    except ImpressLearnError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    except Exception as error:  # Pillow's decoders raise almost anything for damaged bytes
        line = str(error).split("\n", 1)[0] or type(error).__name__
        raise InputError(f"cannot read {path}: {line}") from None


@contextmanager
def _opened(path: Path) -> Iterator[PillowImage.Image]:
    try:
        from PIL import Image
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
        yield image


def _check_mode(path: Path, mode: str) -> None:
    if mode.startswith(("I", "F")):  # Pillow would cut off all above 255
        raise InputError(f"{path} has more than 8 bits a channel; save it with 8")


def _upright(image: PillowImage.Image) -> PillowImage.Image:
    from PIL import ImageOps

    turned = image.getexif().get(ORIENTATION, 1) != 1
    return ImageOps.exif_transpose(image) if turned else image


def _square(image: PillowImage.Image, side: int) -> PillowImage.Image:
    """The centre square that is left where the shorter side is resized to `side`.

    Cut out while resizing: of a long and narrow image the whole would take any amount of memory.
    """
    from PIL import Image

    scale = side / min(image.size)
    if scale == 1:
        across, down = ((length - side) // 2 for length in image.size)
        return image.crop((across, down, across + side, down + side))
    edges = []
    for length in image.size:
        resized = max(side, round(length * scale))
        start = (resized - side) // 2
        edges.append([place * length / resized for place in (start, start + side)])
    (left, right), (top, bottom) = edges
    box = (left, top, right, bottom)
    return image.resize((side, side), Image.Resampling.BILINEAR, box=box)


def _shape(image: PillowImage.Image) -> tuple[int, int]:
    return image.height, image.width


def _times(shape: tuple[int, int]) -> str:
    return f"{shape[1]}x{shape[0]}"
