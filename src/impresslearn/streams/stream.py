"""A task and a stream of tasks: names, classes, and data that are made at each access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, SupportsIndex

import numpy as np

from impresslearn.checks import check_integer, check_number, clear_calls, did_you_mean
from impresslearn.data import Examples, Label, StreamedExamples
from impresslearn.errors import InputError, UnknownTaskError, error_prefix
from impresslearn.streams.draws import hold_out

LabelledData = Examples | StreamedExamples
Loader = Callable[[], LabelledData]


@dataclass(frozen=True, eq=False)
class Task:
    """A name, K classes, a training set and a test set.

    - name: of the task, unique in its stream
    - classes: the labels that may occur, sorted
    - load_train, load_test: functions that make the data
    - settings: what sets this task apart, as plain values such as `{"angle": 137}`
    """

    name: str
    classes: tuple[Label, ...]
    # Functions, not tensors: a stream of 110 permuted MNIST tasks holds the pixels once.
    load_train: Loader = field(repr=False)
    load_test: Loader = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    @clear_calls
    def train(self) -> LabelledData:
        """The training examples, made at each access: keep them in a variable to use them twice."""
        return self.load_train()

    @property
    @clear_calls
    def test(self) -> LabelledData:
        """The test examples, made at each access."""
        return self.load_test()


@dataclass(frozen=True, eq=False, repr=False)
class Stream(Sequence[Task]):
    """An immutable sequence of tasks.

    `stream[3]` and `stream["rotated-137"]` are tasks, `stream[:10]` is a stream of the same name.

    - name: of the stream
    - tasks: in the order they are learned

    Raises InputError for a repeated task name, UnknownTaskError for the name of no task.
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

    def for_validation(self, fraction: float = 0.2, seed: int = 0) -> Stream:
        """The stream to choose settings on: held-out training examples replace every test set.

        - fraction: of the training examples to hold out, stratified by class; training then leaves
          these examples out
        - seed: of the draw

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


def _part(task: Task, fraction: float, seed: int, held_out: bool) -> LabelledData:
    """The training examples that are held out, or the others."""
    examples = task.train
    with error_prefix(f"task {task.name!r}"):
        left, held = hold_out(examples.labels, fraction, seed, "validation")
        lost = np.setdiff1d(examples.labels, examples.labels[left]).tolist()
        if lost:
            line = f"validation={fraction:g} of {len(examples)} examples leaves none to learn from"
            raise InputError(f"{line} of class {lost[0]!r}; hold out fewer")
    if held_out:
        return replace(examples.subset(held), augment=None)
    return examples.subset(left)
