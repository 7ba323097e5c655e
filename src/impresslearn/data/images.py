"""Finds and reads image files, for folders of classes, single files and streams."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from impresslearn.checks import composed, imported
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import ImpressLearnError, InputError, MissingDataError, warn_caller
from impresslearn.files import reason_of

SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png"),
    *(".pnm", ".ppm", ".tif", ".tiff", ".webp"),
)


@contextmanager
def reading(path: str | Path) -> Iterator[Path]:
    """A path; an exception inside the block becomes one line that names this file or folder."""
    path = Path(path)
    try:
        if not path.exists():
            raise MissingDataError(f"there is no file or folder {path}")
        if path.is_file() and not path.stat().st_size:
            raise InputError(f"{path} is empty: it has no bytes")
        yield path
    except ImpressLearnError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except Exception as error:  # NumPy, pandas and Pillow raise almost anything for damaged bytes
        line = reason_of(error)
        if "pickle" in line or "Python objects" in line:
            line = "Python objects could run code; save arrays of numbers or of strings"
        raise InputError(f"cannot read {path}: {line}") from None


def class_images(folder: Path) -> dict[str, list[Path]]:
    """Sub-folder -> its image files, both sorted by name; hidden files are left out."""
    expected = f"expected {folder}/CLASS/IMAGE files"
    if not folder.is_dir():
        line = f"no image folder at {folder}; {expected}"
        raise MissingDataError(f"{line}, or load the file and give (inputs, labels)")
    images: dict[str, list[Path]] = {}
    for directory in sorted(folder.iterdir()):
        if directory.is_dir() and not directory.name.startswith("."):
            files = flat_images(directory, f"; {expected}, or give {directory} if it holds classes")
            images.setdefault(composed(directory.name), []).extend(files)
    if not images:
        raise InputError(f"no image below {folder}; {expected}")
    return images


def flat_images(folder: Path, hint: str = "") -> list[Path]:
    """The image files of a folder, sorted by name; its sub-folders are not searched."""
    files: list[Path] = []
    others: list[str] = []
    for file in sorted(folder.iterdir()):
        if file.suffix.lower() in SUFFIXES and file.is_file() and file.name[0] != ".":
            files.append(file)
        elif file.name[0] != ".":
            others.append(file.name)
    line = f"{len(others)} entries of {folder} are not image files ({', '.join(others[:5])}); "
    line += f"{' '.join(SUFFIXES)} are read"
    if not files:
        raise InputError(f"no image in {folder} itself{hint}{f'; {line}' if others else ''}")
    if others:
        warn_caller(line)
    return files


@dataclass(frozen=True, eq=False)
class ImageFiles(Dataset):
    """Image files as pairs of a uint8 tensor (c, h, w) and the name of the file's folder.

    Transparency is dropped, and images are turned upright by their Exif tag.

    - `files`: paths of images.
    - `layout`: images are resized and cropped to its `size`; without a size all images must have
      the shape of the first. They become grey if its `shape` has one number per pixel.
    """

    files: Sequence[Path]
    layout: Preprocessing

    @property
    def targets(self) -> list[str]:
        """The label of each file."""
        return [file.parent.name for file in self.files]

    @cached_property
    def shape(self) -> torch.Size:
        """The shape of the first image."""
        return self._pixels(self.files[0]).shape

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        path = self.files[index]
        pixels = self._pixels(path)
        if pixels.shape != self.shape:
            sizes = [f"{width}x{height}" for _, height, width in (pixels.shape, self.shape)]
            raise InputError(
                f"{path} has {sizes[0]} pixels, the first image {sizes[1]}; give one size to all, "
                "by size=64 of Preprocessing, or by --prepare size=64"
            )
        return pixels, path.parent.name

    def _pixels(self, path: Path) -> Tensor:
        pillow = imported("PIL.Image", "reading images needs pillow", "vision")
        # Open the file here: given a path, Pillow maps uncompressed files to memory, and then
        # mixes up the pixels of images that are turned.
        with reading(path), path.open("rb") as stream:
            return torch.from_numpy(self.layout.pixels_of([pillow.open(stream)])[0])


def image_folder(folder: Path, layout: Preprocessing | None = None) -> ImageFiles:
    """The images FOLDER/CLASS/IMAGE. Raises as `class_images`."""
    files = chain.from_iterable(class_images(folder).values())
    return ImageFiles(list(files), layout or Preprocessing())
