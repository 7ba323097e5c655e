"""Image files in the shape, and with the normalisation, that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from impresslearn.data.images import ImageFiles, image_files
from impresslearn.data.preprocessing import Preprocessing


def image_dataset(
    files: Sequence[Path], arrangement: Preprocessing, size: int | None
) -> ImageFiles:
    """The files as a data set of arranged inputs; errors are those of `image_files`."""
    images = image_files(files, size)
    grey = arrangement.is_grey(*images.shape)
    return replace(images, grey=grey, arrange=arrangement.arranged)
