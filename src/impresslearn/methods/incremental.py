"""`class_incremental`: accuracy when nobody names the task and inputs come one at a time.

Class-IL asks a method for a label among the classes of all tasks, Task-IL for a label among the
classes of a task that is named (van de Ven and Tolias 2019). `evaluate` measures the latter, after
each task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from impresslearn.data.conversion import users_code
from impresslearn.errors import InputError, error_prefix
from impresslearn.methods.evaluation import (
    Row,
    Tasks,
    check_labels,
    check_method,
    check_tasks,
    inputs_and_labels,
    learn,
    print_line,
)
from impresslearn.streams import Task
from impresslearn.tables import Table, table_of

MEASURES = ("class_il", "task_il", "task_accuracy", "unknown")


@dataclass(frozen=True)
class ClassIncremental:
    """Accuracies on single inputs after all tasks, without and with the name of the task.

    - rows: one per task: task; inputs, their number; class_il and task_il, the accuracies without
      and with the name; task_accuracy, how often the most likely task is right; unknown, the share
      that looks like none of the tasks. The last two are None for a method that infers no task.

    Inputs that look like none of the tasks count in class_il with their most likely task.
    """

    rows: tuple[Row, ...]

    def summary(self) -> Row:
        """The means of the measures over the tasks; None where a method infers no task."""
        means: Row = {}
        for name in MEASURES:
            values = [row[name] for row in self.rows if row[name] is not None]
            means[name] = fmean(values) if values else None
        return means

    def table(self) -> Table:
        """A row per task, and their mean."""
        total = {"task": "mean", "inputs": sum(row["inputs"] for row in self.rows)}
        return table_of([*self.rows, total | self.summary()])

    def __str__(self) -> str:
        return self.table().text(80)

    def _repr_html_(self) -> str:
        return self.table().html()


def class_incremental(method: Any, stream: Tasks, *, progress: bool = False) -> ClassIncremental:
    """Learns the tasks of a stream that a method has not learned, and asks it about single inputs.

    - method: an object with `learn_task(name, data)`, `predict(inputs, task)` and, to infer tasks,
      `infer_tasks(inputs)`, which gives a `TaskGuess` for each input. For a method without this
      verb `predict(inputs, None)` gives labels among the classes of all tasks, one input at a time
    - stream: a `Stream`, part of a stream, or {task name: (train, test)}; a label that several
      tasks have is one class
    - progress: whether to print a line before each task

    Raises InputError as `evaluate`.
    Source: van de Ven and Tolias, "Three scenarios for continual learning" (2019).
    """
    tasks = check_tasks(stream)
    check_method(method)
    if not tasks:
        raise InputError("the stream has no task")
    place = type(method).__name__
    known = getattr(method, "tasks_", {})
    for number, task in enumerate(tasks):
        if task.name in known:
            continue
        if progress:
            print_line(f"{place}: task {number + 1}/{len(tasks)} {task.name}")
        learn(method, "learn_task", task.name, task.train)
    return ClassIncremental(tuple(_row(method, task) for task in tasks))


def _row(method: Any, task: Task) -> Row:
    """Measures one task on its test set."""
    test, place = task.test, f"task {task.name!r}"
    if not len(test):
        raise InputError(f"{place} has no test inputs")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in MEASURES}
    for inputs, labels in inputs_and_labels(test):
        with error_prefix(place), users_code(lambda: f"predict of {type(method).__name__}"):
            answers = _answers(method, inputs, task.name)
        for name, values in answers.items():
            check_labels(method, place, values, labels)
            parts[name].append(values == labels if name in ("class_il", "task_il") else values)
    row: Row = {"task": task.name, "inputs": len(test)}
    for name, measured in parts.items():
        row[name] = float(np.concatenate(measured).mean()) if measured else None
    return row


def _answers(method: Any, inputs: Any, name: str) -> Mapping[str, np.ndarray]:
    """Labels without and with the task's name, whether it was inferred right, and unknown."""
    named = np.asarray(method.predict(inputs, name))
    if not hasattr(method, "infer_tasks"):
        return {"class_il": np.asarray(method.predict(inputs, None)), "task_il": named}
    guesses = method.infer_tasks(inputs)
    best = [guess.best for guess in guesses]
    return {
        "class_il": np.asarray(method.predict(inputs, best)),
        "task_il": named,
        "task_accuracy": np.array([task == name for task in best]),
        "unknown": np.array([guess.unknown for guess in guesses]),
    }
