"""Evaluates methods on streams: `evaluate` one, `compare` several.

A method is any object with the verbs of `Method`, the library's own or a user's. It learns the
tasks in turn; before the first and after each its accuracy on every task is measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from numbers import Real
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from impresslearn.checks import check_choice, check_integer
from impresslearn.data import Examples, StreamedExamples
from impresslearn.data.paths import users_code
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.methods.results import Comparison, Evaluation
from impresslearn.streams import Stream, Task, from_arrays
from impresslearn.training.progress import ProgressChoice, progress_for

FEW = 8
"""Inputs of each task that are predicted to see what comes."""
HELD_BYTES = 1024**3
"""Test inputs kept in memory; beyond, they are made anew whenever they are scored."""


class Method(Protocol):
    """A method of continual learning.

    It may have more, which `evaluate` then uses: `learn_basis(name, data)`, for the tasks that come
    first; `zero_shot_score(data, classes)`, the accuracy in [0, 1] on labelled data of a task that
    was not learned, with its classes in sorted order; `tasks_`, task name -> an object with
    `bytes` and `role`. For others: `infer_task(inputs)`, which task unlabelled inputs are of, a
    `TaskGuess` or a name; and `save(path)`.
    """

    def learn_task(self, name: str, data: Any) -> Any:
        """Learns a task from labelled data, `Examples` with `inputs` and `labels`."""
        ...

    def predict(self, inputs: Any, task: str) -> Any:
        """The labels of inputs (n, ...) of a learned task."""
        ...

    def score(self, data: Any, task: str) -> float:
        """The accuracy in [0, 1] on labelled data of a learned task."""
        ...


def evaluate(
    method: Method,
    stream: Stream | Mapping[str, Sequence[Any]],
    *,
    basis: int = 0,
    progress: ProgressChoice = False,
) -> Evaluation:
    """Learns a stream task by task and measures the accuracy on all tasks before and after each.

    stream: of two tasks at least, or {task name: (train, test)} as `streams.from_arrays` takes it.
    basis: how many of the first tasks are learned by `learn_basis`, where the method has it.
    progress: True, False or "auto", a bar for the whole stream beside the method's own; or a log,
    as `training.progress` says, of the accuracies on the tasks learned.
    Raises InputError for a method without the verbs, for scores outside [0, 1] and predictions that
    are not one label an input; whatever a method raises names it and the task.
    """
    if not isinstance(stream, (Stream, Mapping)):
        stream = _checked_tasks(stream)
    tasks = list(from_arrays(stream) if isinstance(stream, Mapping) else stream)
    if len(tasks) < 2:
        raise InputError(f"an evaluation needs at least two tasks, the stream has {len(tasks)}")
    if check_integer("basis", basis, 0) > len(tasks):
        raise InputError(f"basis = {basis}, but the stream has only {len(tasks)} tasks")
    if isinstance(method, type):
        raise InputError(f"a method is an object, not a class: give {method.__name__}(...)")
    for verb in ("learn_task", "score"):
        if not callable(getattr(method, verb, None)):
            raise InputError(
                "a method needs learn_task(name, data), predict(inputs, task) and "
                f"score(data, task); {type(method).__name__} has no {verb}"
            )
    started = time.perf_counter()
    learned: set[str] = set()
    held: dict[str, Examples] = {}

    def test_set(task: Task) -> Examples | StreamedExamples:
        if task.name in held:
            return held[task.name]
        test, size = task.test, sum(each.inputs.nbytes for each in held.values())
        if isinstance(test, Examples) and size + test.inputs.nbytes <= HELD_BYTES:
            held[task.name] = test
        return test

    def row() -> list[float]:
        return [_accuracy(method, task, test_set(task), task.name in learned) for task in tasks]

    shown = progress_for(progress).titled("evaluation")
    with shown.track(len(tasks)) as advance:
        matrix = [row()]
        for place, task in enumerate(tasks):
            try:
                _learn(method, task, place < basis)
            except ImpressLearnError as error:
                raise type(error)(f"task {task.name!r}: {error}") from error
            learned.add(task.name)
            _check_predictions(method, task, test_set(task))
            matrix.append(row())
            seen = {f"accuracy/{tasks[i].name}": matrix[-1][i] for i in range(place + 1)}
            shown.log(place + 1, seen | {"average_accuracy": fmean(seen.values())})
            advance()
    kept = getattr(method, "tasks_", {})
    infos = {task.name: kept[task.name] for task in tasks if task.name in kept}
    sizes = {name: getattr(info, "bytes", None) for name, info in infos.items()}
    roles = {name: getattr(info, "role", None) for name, info in infos.items()}
    for name, size in sizes.items():
        if size is not None and not (isinstance(size, Real) and 0 <= float(size) < math.inf):
            kind = type(method).__name__
            raise InputError(f"task {name!r}: bytes of {kind} must be a number, got {size!r}")
    return Evaluation(
        tuple(task.name for task in tasks),
        tuple(map(tuple, matrix)),
        {name: size for name, size in sizes.items() if size is not None},
        {name: role for name, role in roles.items() if role is not None},
        time.perf_counter() - started,
    )


def _checked_tasks(stream: Any) -> Sequence[Task]:
    """Tasks in a sequence, such as a part of a stream."""
    if isinstance(stream, Sequence) and all(isinstance(each, Task) for each in stream):
        return stream
    given = type(stream).__name__
    raise InputError(f"stream must be a Stream, or map names to (train, test); got {given}")


def compare(
    methods: Mapping[str, Method],
    stream: Stream | Mapping[str, Sequence[Any]],
    *,
    basis: int | Mapping[str, int] = 0,
    progress: ProgressChoice = False,
) -> Comparison:
    """Evaluates methods, label -> method, on one stream in turn; arguments as of `evaluate`.

    basis: for all methods, or by label (others: 0). Raises InputError for an unknown label.
    """
    if not isinstance(methods, Mapping) or not methods:
        raise InputError("methods must map labels to methods, as in {'mine': MyMethod()}")
    counts = basis if isinstance(basis, Mapping) else dict.fromkeys(methods, basis)
    for label in counts:
        check_choice("a label of basis", label, methods)
    return Comparison(
        {
            label: evaluate(method, stream, basis=counts.get(label, 0), progress=progress)
            for label, method in methods.items()
        }
    )


def _learn(method: Method, task: Task, basis: bool) -> None:
    verb = "learn_basis" if basis and hasattr(method, "learn_basis") else "learn_task"
    with users_code(lambda: f"{verb} of {type(method).__name__}"):
        getattr(method, verb)(task.name, task.train)


def _check_predictions(method: Method, task: Task, test: Examples | StreamedExamples) -> None:
    """Raises InputError unless a few inputs get a label each: accuracies are what `score` says."""
    predict, kind = getattr(method, "predict", None), type(method).__name__
    if predict is None or isinstance(test, StreamedExamples) or test.integers:
        return  # of integers the inputs alone do not tell any more that they were
    inputs = test.inputs[:FEW]
    with users_code(lambda: f"task {task.name!r}: predict of {kind}"):
        shape = np.shape(predict(inputs, task.name))
    if shape != (len(inputs),):
        raise InputError(
            f"task {task.name!r}: predict of {kind} must give labels of shape ({len(inputs)},) for "
            f"{len(inputs)} inputs, got shape {shape}"
        )


def _accuracy(
    method: Method, task: Task, test: Examples | StreamedExamples, learned: bool
) -> float:
    """NaN where the method cannot answer for a task that it has not learned."""
    if not learned and not hasattr(method, "zero_shot_score"):
        return math.nan
    with users_code(lambda: f"task {task.name!r}: score of {type(method).__name__}"):
        if learned:
            value = method.score(test, task.name)
        else:
            value = method.zero_shot_score(test, task.classes)  # type: ignore[attr-defined]
    if not isinstance(value, Real) or not 0 <= value <= 1:
        raise InputError(
            f"task {task.name!r}: {type(method).__name__} must give an accuracy in [0, 1], "
            f"got {value!r}"
        )
    return float(value)
