"""`from_arrays`: makes a stream of the user's data."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from impresslearn.checks import check_mapping, check_name
from impresslearn.data import as_examples, classes_of
from impresslearn.errors import InputError, error_prefix
from impresslearn.streams.stream import Stream, Task


def from_arrays(tasks: Mapping[str, Sequence[Any]], name: str = "own") -> Stream:
    """A stream of data in memory, checked and converted at once.

    - tasks: task name -> (train, test), in the order of the mapping; each part is anything that
      `as_examples` takes, such as the path of an image folder. If all tasks together do not fit in
      memory, make a `Stream` of `Task` objects, which load their data at each access
    - name: the name of the stream, default "own"
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
        classes, test_labels = labels
        for label in test_labels:
            if label not in classes:
                line = f"the test part has label {label!r}, which train lacks"
                raise InputError(f"task {task!r}: {line}")
        train, test = loaders
        made.append(Task(task, classes, train, test))
    return Stream(name, tuple(made))
