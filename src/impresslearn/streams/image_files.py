"""Image files as examples: in memory where they fit, read anew each epoch otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from impresslearn.data import MEMORY_LIMIT, Augmentation, as_examples
from impresslearn.data.images import image_files
from impresslearn.streams.base import LabelledData


def load_images(
    files: Sequence[Path],
    size: int | None = None,
    arrange: Callable[[Tensor], Tensor] | None = None,
    augment: Augmentation | None = None,
    memory_limit: int = MEMORY_LIMIT,
    workers: int = 2,
) -> LabelledData:
    """The files as examples; a file's label is the name of its folder.

    size, arrange: as of `ImageFiles`; beyond `memory_limit` bytes `workers` processes read them.
    Raises InputError for a file that is no image, or images of several shapes without a size.
    """
    images = replace(image_files(files, size), arrange=arrange)
    examples = as_examples(images, memory_limit=memory_limit, workers=workers)
    return replace(examples, augment=augment)
