"""Split ImageNet: tasks of ten classes each, cut from an image folder that you have."""

from functools import partial
from pathlib import Path

from impresslearn.data import MEMORY_LIMIT, Preprocessing
from impresslearn.data.images import class_images
from impresslearn.errors import InputError
from impresslearn.streams import Stream, Task
from impresslearn.streams.custom import load_images
from impresslearn.streams.draws import draw_class_groups
from impresslearn.streams.pixels import flip_and_shift

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's training pixels


def split_imagenet(
    root: str | Path,
    tasks: int | None = None,
    classes_per_task: int = 10,
    size: int = 224,
    seed: int = 0,
    memory_limit: int = MEMORY_LIMIT,
) -> Stream:
    """The classes of ROOT/train, in a seeded order, cut into tasks "imagenet-00", ...

    - root: holds train/CLASS/IMAGE and, as the test set, val/CLASS/IMAGE: ImageNet,
      Tiny-ImageNet, or any folder of this layout.
    - tasks: by default all classes are used.
    - size: pixels of the shorter side after resizing; the centre square is kept.
    - memory_limit: splits of more bytes are read from disk in each epoch.

    Inputs are (n, 3, size, size), normalised; labels are the folder names. Training images are
    mirrored at random and shifted by up to a sixteenth of their size.
    Raises InputError for classes without test images, MissingDataError for a missing folder.
    """
    root = Path(root)
    load = partial(
        load_images,
        preprocessing=Preprocessing(size=size, mean=MEAN, std=STD),
        memory_limit=memory_limit,
    )
    train, test = class_images(root / "train"), class_images(root / "val")
    made = []
    groups = draw_class_groups(list(train), tasks, classes_per_task, seed)
    for number, group in enumerate(groups):
        classes = tuple(sorted(group))
        files, test_files = [], []
        for name in classes:
            if name not in test:
                raise InputError(f"class {name!r} has no folder in {root / 'val'}")
            files += train[name]
            test_files += test[name]
        load_train = partial(load, files, augment=partial(flip_and_shift, pixels=size // 16))
        load_test = partial(load, test_files)
        made.append(Task(f"imagenet-{number:02d}", classes, load_train, load_test))
    return Stream("split_imagenet", tuple(made))
