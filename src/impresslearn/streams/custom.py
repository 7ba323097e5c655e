"""Streams of a user's own data: arrays in hand, or a folder of images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from impresslearn.checks import check_name
from impresslearn.data import (
    MEMORY_LIMIT,
    Augmentation,
    Label,
    Preprocessing,
    as_examples,
    classes_of,
)
from impresslearn.data.images import class_images, image_files
from impresslearn.errors import ImpressLearnError, InputError, MissingDataError
from impresslearn.streams.stream import LabelledData, Loader, Stream, Task

Part = tuple[tuple[Label, ...], Loader]
PARTS = {2: ("train", "test"), 3: ("train", "validation", "test")}


def from_arrays(tasks: Mapping[str, Sequence[Any]], name: str = "own") -> Stream:
    """A stream of data in hand, checked and converted at once.

    tasks: task name -> (train, test) or (train, validation, test), in the order of the mapping;
    each part is anything that `as_examples` takes: a pair (inputs, labels), a `Dataset`, a
    `DataLoader`, the path of an image folder, or `Examples`.
    Raises InputError that names the task and the part for data that cannot be used, for another
    number of parts, and for test or validation labels that training lacks.
    """
    if not isinstance(tasks, Mapping) or not tasks:
        raise InputError(
            "tasks must map task names to (train, test) or (train, validation, test), "
            f"got {'an empty mapping' if isinstance(tasks, Mapping) else type(tasks).__name__}"
        )
    return Stream(name, tuple(_array_task(key, parts) for key, parts in tasks.items()))


def from_folder(root: str | Path, size: int | None = None) -> Stream:
    """A stream of the image folders ROOT/TASK/{train,test,val}/CLASS/IMAGE; val may be absent.

    Tasks come in the order of their folder names; labels are the names of the class folders. size:
    the shorter side is resized to it, then the centre square kept; by default images stay as they
    are and must share one shape. Inputs: (n, 3, h, w) in [0, 1].
    Raises MissingDataError for a folder that is not there, InputError for one without images, for
    test classes that training lacks, and for a size below 1.
    """
    root, preprocessing = Path(root), Preprocessing(size=size)
    if not root.is_dir():
        raise MissingDataError(f"no folder {root}; expected {root}/TASK/train/CLASS/IMAGE files")
    folders = sorted(f for f in root.iterdir() if f.is_dir() and not f.name.startswith("."))
    if not folders:
        raise InputError(f"no task in {root}; expected {root}/TASK/train/CLASS/IMAGE files")
    tasks = (_folder_task(folder, preprocessing) for folder in folders)
    return Stream(root.resolve().name, tuple(tasks))


def load_images(
    files: Sequence[Path],
    preprocessing: Preprocessing,
    augment: Augmentation | None = None,
    memory_limit: int = MEMORY_LIMIT,
    workers: int = 2,
) -> LabelledData:
    """Image files as examples, prepared; a file's label is the name of its folder.

    Beyond `memory_limit` bytes `workers` processes read them anew each epoch. Raises InputError for
    a file that is no image, or images of several shapes without a size.
    """
    images = image_files(files, preprocessing)
    examples = as_examples(images, memory_limit=memory_limit, workers=workers)
    return replace(examples, augment=augment)


def _array_task(name: str, parts: Sequence[Any]) -> Task:
    check_name(name)
    if not isinstance(parts, (tuple, list)) or len(parts) not in PARTS:
        came = f"{len(parts)} parts" if isinstance(parts, (tuple, list)) else type(parts).__name__
        raise InputError(
            f"task {name!r} needs (train, test) or (train, validation, test), got {came}"
        )
    made: dict[str, Part] = {}
    for key, data in zip(PARTS[len(parts)], parts, strict=True):
        try:
            examples = as_examples(data)
        except ImpressLearnError as error:
            raise type(error)(f"task {name!r}, {key}: {error}") from error
        made[key] = classes_of(examples.labels), partial(replace, examples)
    return _task(name, made)


def _folder_task(folder: Path, preprocessing: Preprocessing) -> Task:
    places = {"train": "train", "test": "test"}
    if (folder / "val").is_dir():
        places["validation"] = "val"
    made: dict[str, Part] = {}
    for key, place in places.items():
        images = class_images(folder / place)
        files = list(chain.from_iterable(images.values()))
        made[key] = tuple(images), partial(load_images, files, preprocessing)
    return _task(folder.name, made)


def _task(name: str, parts: Mapping[str, Part]) -> Task:
    """A task of train, test and perhaps validation, each with its labels."""
    classes, train = parts["train"]
    for part, (labels, _) in parts.items():
        for label in labels:
            if label not in classes:
                raise InputError(
                    f"task {name!r}: the {part} part has label {label!r}, which train lacks"
                )
    return Task(name, classes, train, parts["test"][1], parts.get("validation", (None, None))[1])
