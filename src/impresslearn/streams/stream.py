"""`Task`, whose data are made at each access, and `Stream`, a sequence of tasks or of your data."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, SupportsIndex

import numpy as np

from impresslearn.checks import (
    check_integer,
    check_mapping,
    check_name,
    check_number,
    clear_calls,
    did_you_mean,
)
from impresslearn.data import Examples, Label, StreamedExamples, as_examples, classes_of
from impresslearn.errors import InputError, UnknownTaskError, error_prefix
from impresslearn.streams.draws import hold_out
from impresslearn.tables import SHOWN, remaining, table_of

LabelledData = Examples | StreamedExamples
Loader = Callable[[], LabelledData]


@dataclass(frozen=True, eq=False)
class Task:
    """A name, K classes, a training set and a test set.

    - name: the name of the task, unique in its stream
    - classes: the labels that may occur, sorted
    - load_train, load_test: functions that make the data
    - settings: how the task differs from others, as plain values such as `{"angle": 137}`
    """

    name: str
    classes: tuple[Label, ...]
    # With functions instead of tensors, a stream of 110 permuted MNIST tasks holds pixels once.
    load_train: Loader = field(repr=False)
    load_test: Loader = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    @clear_calls
    def train(self) -> LabelledData:
        """The training examples. Each access makes them anew, so keep them in a variable."""
        return self.load_train()

    @property
    @clear_calls
    def test(self) -> LabelledData:
        """The test examples, made anew at each access."""
        return self.load_test()


@dataclass(frozen=True, eq=False, repr=False)
class Stream(Sequence[Task]):
    """An immutable sequence of tasks.

    `stream[3]` and `stream["rotated-137"]` are tasks; `stream[:10]` is a stream of the same name.

    - name: the name of the stream
    - tasks: the tasks in the order in which they are to be learned

    Raises InputError for a repeated task name, and UnknownTaskError for an unknown task name.
    """

    name: str
    tasks: tuple[Task, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", tuple(self.tasks))
        for name, count in Counter(self.names).items():
            if count > 1:
                raise InputError(f"stream {self.name!r} has two tasks named {name!r}")

    @property
    def names(self) -> tuple[str, ...]:
        """The task names, in order."""
        return tuple(task.name for task in self.tasks)

    def for_validation(self, fraction: float = 0.2, seed: int = 0) -> "Stream":
        """A stream for choosing settings: held-out training examples replace every test set.

        - fraction: the share of training examples to hold out, stratified by class; default 0.2.
          The training sets no longer have them
        - seed: the seed of the draw

        Loading a task raises InputError if a class has no example left to learn from.
        """
        if not 0 < check_number("fraction", fraction) < 1:
            raise InputError(f"fraction must be between 0 and 1, got {fraction!r}")
        check_integer("seed", seed, 0, 2**32)
        tasks = []
        for task in self.tasks:
            part = partial(_part, task, fraction, seed)
            train, test = partial(part, False), partial(part, True)
            tasks.append(replace(task, load_train=train, load_test=test))
        return Stream(self.name, tuple(tasks))

    def __len__(self) -> int:
        return len(self.tasks)

    def __contains__(self, item: object) -> bool:
        return item in self.names if isinstance(item, str) else item in self.tasks

    def __getitem__(self, key: SupportsIndex | str | slice) -> Any:
        if isinstance(key, slice):
            return Stream(self.name, self.tasks[key])
        if isinstance(key, str):
            if key not in self.names:
                hint = did_you_mean(key, self.names) or f"; it has {self!r}"
                raise UnknownTaskError(f"stream {self.name!r} has no task {key!r}{hint}")
            return self.tasks[self.names.index(key)]
        return self.tasks[key]

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:4]) + (", …" if len(self) > 4 else "")
        return f"Stream({self.name!r}, {len(self)} tasks: {shown})"

    def _repr_html_(self) -> str:
        rows = [{"task": each.name, "classes": len(each.classes)} for each in self.tasks[:SHOWN]]
        return table_of(rows, f"{self.name}: {len(self)} tasks", remaining(len(self))).html()


def _part(task: Task, fraction: float, seed: int, held_out: bool) -> LabelledData:
    """The training examples of a task that are held out, or all others."""
    examples = task.train
    with error_prefix(f"task {task.name!r}"):
        left, held = hold_out(examples.labels, fraction, seed, "validation")
        lost = np.setdiff1d(examples.labels, examples.labels[left]).tolist()
        if lost:
            line = f"validation={fraction:g} of {len(examples)} examples leaves none to learn from"
            raise InputError(f"{line} of class {lost[0]!r}; hold out fewer")
    return replace(examples.subset(held), augment=None) if held_out else examples.subset(left)


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
        if lacking := [label for label in test_labels if label not in classes]:
            line = f"the test part has label {lacking[0]!r}, which train lacks"
            raise InputError(f"task {task!r}: {line}")
        made.append(Task(task, classes, loaders[0], loaders[1]))
    return Stream(name, tuple(made))
