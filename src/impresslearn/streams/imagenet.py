"""Split ImageNet: tasks of ten classes each, cut from an image folder that you have.

ImageNet itself at 224 pixels, Tiny-ImageNet at 64, or any folder of the same layout. A task's
images become one tensor where they fit in memory and are read anew each epoch where they do not.
"""

from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from impresslearn.data import MEMORY_LIMIT, Preprocessing
from impresslearn.data.images import class_images
from impresslearn.errors import InputError
from impresslearn.streams.custom import load_images
from impresslearn.streams.draws import check_fraction, draw_class_groups, hold_out
from impresslearn.streams.stream import Stream, Task
from impresslearn.streams.transforms import flip_and_shift

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the ImageNet training pixels in [0, 1], by channel."""


def split_imagenet(
    root: str | Path,
    tasks: int | None = None,
    classes_per_task: int = 10,
    size: int = 224,
    seed: int = 0,
    validation: float = 0.0,
    augment: bool = True,
    memory_limit: int = MEMORY_LIMIT,
    workers: int = 2,
) -> Stream:
    """The classes of ROOT/train, in a seeded order, cut into tasks "imagenet-00", ...

    root: holds train/CLASS/IMAGE and val/CLASS/IMAGE; val is the test set. tasks: as many as the
    classes allow by default. size: the shorter side is resized to it (bilinear), then the centre
    square kept. validation: the fraction of the training images to hold out, stratified. augment:
    mirror training images at random and shift them by up to a sixteenth of their size.
    memory_limit: the bytes up to which a split becomes one tensor; beyond, `workers` processes
    read it. Inputs: (n, 3, size, size), normalised; labels: the folder names; `settings["classes"]`
    has them in the order drawn.
    Raises InputError for settings outside their ranges or classes without test images,
    MissingDataError for a missing folder, MissingDependencyError without pillow.
    """
    preprocessing = Preprocessing(size=size, mean=MEAN, std=STD)
    check_fraction("validation", validation)
    root = Path(root)
    train, test = class_images(root / "train"), class_images(root / "val")
    groups = draw_class_groups(list(train), tasks, classes_per_task, seed)
    untested = [name for group in groups for name in group if name not in test]
    if untested:
        raise InputError(f"class {untested[0]!r} has no folder in {root / 'val'}")
    load = partial(
        load_images, preprocessing=preprocessing, memory_limit=memory_limit, workers=workers
    )
    shift = partial(flip_and_shift, pixels=size // 16) if augment else None
    made = []
    for index, classes in enumerate(groups):
        files, test_files = (
            list(chain.from_iterable(images[name] for name in sorted(classes)))
            for images in (train, test)
        )
        held: list[Path] = []
        if validation > 0:
            labels = np.array([file.parent.name for file in files])
            kept, out = hold_out(labels, validation, seed, "validation")
            files, held = [files[i] for i in kept], [files[i] for i in out]
        made.append(
            Task(
                f"imagenet-{index:02d}",
                tuple(sorted(classes)),
                load_train=partial(load, files, augment=shift),
                load_test=partial(load, test_files),
                load_validation=partial(load, held) if held else None,
                settings={"classes": list(classes)},
            )
        )
    return Stream("split_imagenet", tuple(made))
