"""Finds and reads image files, for folders of classes, single files and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.checks import composed
from impresslearn.data.examples import pixels_of_images, upright
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import (
    ImpressLearnError,
    InputError,
    MissingDataError,
    MissingDependencyError,
    warn_caller,
)
from impresslearn.files import reason_of

if TYPE_CHECKING:
    from PIL import Image as PillowImage

SUFFIXES = frozenset(
    {
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".avif", ".jp2"),
        *(".ppm", ".pgm", ".pbm", ".pnm", ".tif", ".tiff"),
    }
)


def existing(path: str | Path) -> Path:
    """The path of a file or folder. Raises MissingDataError if there is none."""
    path = Path(path)
    with naming(path):
        if not path.exists():
            raise MissingDataError(f"there is no file or folder {path}")
        if path.is_file() and not path.stat().st_size:
            raise InputError(f"{path} is empty: it has no bytes")
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turns an exception while a file or folder is read into one line that names it."""
    try:
        yield
    except ImpressLearnError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except ValueError as error:
        # NumPy has a line for reading objects and another one for mapping them.
        if not any(words in str(error) for words in ("allow_pickle", "Python objects in dtype")):
            raise InputError(f"cannot read {path}: {reason_of(error)}") from None
        line = "holds Python objects, which could run code; save arrays of numbers or of strings"
        raise InputError(f"{path} {line}") from None
    except Exception as error:  # NumPy, pandas and Pillow raise almost anything for damaged bytes
        raise InputError(f"cannot read {path}: {reason_of(error)}") from None


def class_images(folder: Path) -> dict[str, list[Path]]:
    """The image files of each sub-folder, both sorted by name; hidden files are left out.

    Raises MissingDataError for a missing folder, InputError if a sub-folder, or the whole
    folder, holds no image.
    """
    expected = f"expected {folder}/CLASS/IMAGE files"
    if not folder.exists():
        raise MissingDataError(f"no image folder at {folder}; {expected}")
    if not folder.is_dir():
        raise InputError(f"{folder} is a file, no image folder; load it and give (inputs, labels)")
    images: dict[str, list[Path]] = {}
    for directory in sorted(folder.iterdir()):
        if directory.is_dir() and not directory.name.startswith("."):
            place = f"below {directory}; {expected}"
            below = [each.name for each in sorted(directory.iterdir()) if each.is_dir()]
            if below:
                place += f", or give {directory} if its folders are the classes"
            images.setdefault(composed(directory.name), []).extend(flat_images(directory, place))
            if below:
                names = f"{len(below)} ({', '.join(below[:5])})"
                warn_caller(f"folders in {directory} are not searched: {names}; {expected}")
    if not images:
        raise InputError(f"no image below {folder}; {expected}")
    return images


def flat_images(folder: Path, place: str = "") -> list[Path]:
    """The image files of a folder, sorted by name; its sub-folders are not searched."""
    files: list[Path] = []
    others: list[Path] = []
    for file in sorted(folder.iterdir()):
        if file.is_file() and not file.name.startswith("."):
            (files if file.suffix.lower() in SUFFIXES else others).append(file)
    line = ""
    if others:
        kinds = ", ".join(sorted({file.suffix or "none" for file in others})[:5])
        line = (
            f"{len(others)} of the files in {folder} are no images by their suffix ({kinds}); "
            f"{' '.join(sorted(SUFFIXES))} are read"
        )
    if not files:
        where = place or f"in {folder} itself; give a folder with image files in it"
        raise InputError(f"no image {where}{f'; {line}' if line else ''}")
    if line:
        warn_caller(line)
    return files


@dataclass(frozen=True, eq=False)
class ImageFiles(Dataset):
    """Image files as pairs of a tensor (c, h, w) and the name of the file's folder.

    - `files`: paths of images.
    - `shape`: (height, width) of all images, unless the preprocessing has a size.
    - `preprocessing`: its `size` resizes and crops, its `shape` and normalisation are applied, and
      a shape with one number per pixel makes images grey. Without both, pixels stay uint8.
    """

    files: Sequence[Path]
    shape: tuple[int, int]
    preprocessing: Preprocessing

    @property
    def targets(self) -> list[str]:
        """The label of each file."""
        return [file.parent.name for file in self.files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        path, wanted = self.files[index], self.preprocessing
        grey = wanted.shape is not None and prod(wanted.shape) == prod(self.shape)
        with naming(path), _opened(path) as image:
            if wanted.size is None and image.size != self.shape[::-1]:
                (width, height), (first, other) = image.size, self.shape
                raise InputError(
                    f"{path} has {width}x{height} pixels, the first image {other}x{first}; "
                    "give one size to all, by size=64 of Preprocessing or from_folder, or by "
                    "--prepare size=64"
                )
            pixels = torch.from_numpy(pixels_of_images([image], grey, wanted.size)[0])
            if wanted.shape is not None or wanted.normalises:
                pixels = wanted.arranged(pixels[None].float() / 255)[0]
        return pixels, path.parent.name


def image_files(files: Sequence[Path], preprocessing: Preprocessing | None = None) -> ImageFiles:
    """The files as a data set, in which all images have the shape of the first.

    Transparency is dropped; images are turned as their Exif tag says. Raises InputError for a first
    file that is not an image, MissingDependencyError without Pillow.
    """
    preprocessing = preprocessing or Preprocessing()
    if preprocessing.size is not None:
        return ImageFiles(files, (preprocessing.size, preprocessing.size), preprocessing)
    with naming(files[0]), _opened(files[0]) as first:
        return ImageFiles(files, (first.height, first.width), preprocessing)


@contextmanager
def _opened(path: Path) -> Iterator[PillowImage.Image]:
    """An image, upright and with 8 bits per channel."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingDependencyError(
            "reading images needs pillow: pip install 'impresslearn[vision]'"
        ) from None
    # Given a path, Pillow maps uncompressed files to memory, and of turned ones mixes the pixels.
    with path.open("rb") as stream:
        yield upright(Image.open(stream))
