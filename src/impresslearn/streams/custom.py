"""Streams of a user's data: arrays in memory, or a folder of images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from impresslearn.checks import check_mapping, check_name, composed
from impresslearn.data import Label, Preprocessing, as_examples, classes_of, label_array
from impresslearn.data.images import image_folder
from impresslearn.errors import InputError, MissingDataError, error_prefix
from impresslearn.streams.stream import Loader, Stream, Task


def from_arrays(tasks: Mapping[str, Sequence[Any]], name: str = "own") -> Stream:
    """A stream of data in memory, checked and converted at once.

    - tasks: task name -> (train, test), in the order of the mapping; each part is anything that
      `as_examples` takes
    - name: of the stream
    """
    check_mapping("tasks", tasks, "{name: (train, test)}")
    made = []
    for task, parts in tasks.items():
        task = check_name(task)
        kinds = [type(part).__name__ for part in parts] if isinstance(parts, (tuple, list)) else []
        if len(kinds) != 2 or all(hasattr(part, "shape") for part in parts):
            line = f"needs (train, test), each as (inputs, labels); got {type(parts).__name__}"
            raise InputError(f"task {task!r} {line} of {', '.join(kinds)}".removesuffix(" of "))
        loaders, labels = [], []
        for part, data in zip(("train", "test"), parts, strict=True):
            with error_prefix(f"task {task!r}, {part} of (train, test)"):
                examples = as_examples(data)
            loaders.append(partial(replace, examples))
            labels.append(classes_of(examples.labels))
        made.append(_task(task, loaders, labels))
    return Stream(name, tuple(made))


def from_folder(root: str | Path, size: int | None = None) -> Stream:
    """A stream of the image folders ROOT/TASK/{train,test}/CLASS/IMAGE.

    - root: tasks come in the order of their folder names; labels are the names of class folders
    - size: pixels of the shorter side after resizing, of which the centre square is kept; by
      default images are not resized and must share one shape

    Inputs are (n, 3, h, w) in [0, 1].
    """
    root, layout = Path(root), Preprocessing(size=size)
    if not root.is_dir():
        raise MissingDataError(f"no folder {root}; expected {root}/TASK/train/CLASS/IMAGE files")
    made = []
    for folder in sorted(root.iterdir()):
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        loaders, labels = [], []
        for part in ("train", "test"):
            labels.append(classes_of(label_array(image_folder(folder / part).targets)))
            loaders.append(partial(as_examples, folder / part, layout=layout))
        made.append(_task(composed(folder.name), loaders, labels))
    if not made:
        raise InputError(f"no task in {root}; expected {root}/TASK/train/CLASS/IMAGE files")
    return Stream(root.resolve().name, tuple(made))


def _task(name: str, loaders: Sequence[Loader], labels: Sequence[tuple[Label, ...]]) -> Task:
    (train, test), (classes, test_labels) = loaders, labels
    for label in test_labels:
        if label not in classes:
            raise InputError(f"task {name!r}: the test part has label {label!r}, which train lacks")
    return Task(name, classes, train, test)
