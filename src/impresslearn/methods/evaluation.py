"""Evaluates one method on a stream: `evaluate` and `class_incremental`, and what they return.

A method is any object with the verbs of `Method`, the library's or your own. It learns the tasks in
turn. Before the first task and after each task its accuracy on every task is measured.

`class_incremental` asks for labels of single inputs among the classes of all tasks (Class-IL) and
among the named task's (Task-IL; van de Ven and Tolias 2019). `evaluate` names the task.

Measures are computed from an accuracy matrix R of T + 1 rows of T accuracies. Row i holds the
accuracy on every task, in the order of learning, after i tasks; row 0 is the state before any task.
So task j (0 to T - 1) is learned in the rows from j + 1 on.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from statistics import fmean
from typing import Any, Protocol

import numpy as np
from cachetools import LRUCache, cached

from impresslearn.checks import check_integer, check_number, clear_calls
from impresslearn.data import Examples
from impresslearn.data.conversion import users_code
from impresslearn.errors import InputError, error_prefix, print_line
from impresslearn.streams import Task, from_arrays
from impresslearn.streams.stream import LabelledData
from impresslearn.tables import Table, format_value, table_of
from impresslearn.training.loop import Recipe

HELD_BYTES = 1024**3  # of test inputs kept in memory; the others are loaded again at each score
PREDICTED_AT_ONCE = 1000
MEASURES = (
    *("accuracy", "basis_accuracy", "average_accuracy", "forgetting", "backward_transfer"),
    *("forward_transfer", "bytes_per_task", "images_per_task", "seconds"),
)
SINGLE_INPUTS = ("class_il", "task_il", "task_accuracy", "unknown")

Row = dict[str, Any]
Tasks = Mapping[str, Sequence[Any]] | Sequence[Task]
Ask = Callable[[Any, str, Any], dict[str, np.ndarray]]


class Method(Protocol):
    """A method of continual learning: anything that learns tasks by name and predicts for them.

    `evaluate` also uses these attributes if a method has them:

    - `score(data, task)`: the accuracy in [0, 1]; give it if it is faster than `predict`
    - `learn_basis(name, data)`: learns one of the basis tasks, which come first
    - `zero_shot_score(data, classes)`: the accuracy on an unlearned task, for forward transfer
    - `tasks_`: task name -> an object with `bytes`, and perhaps `breakdown` (bytes by part)
    - `recipe`: the `Recipe` of task training, to compare training lengths
    - `progress`: `compare` sets it to False
    """

    def learn_task(self, name: str, data: Any) -> Any:
        """Learns a task.

        - name: of the task
        - data: `Examples`, with `inputs` (n, ...) and `labels` (n,)
        """

    def predict(self, inputs: Any, task: str) -> Any:
        """Labels (n,) of inputs.

        - inputs: (n, ...), as the stream has them
        - task: the name of a learned task
        """


@dataclass(frozen=True)
class Evaluation:
    """What one method reached on a stream.

    - tasks: names, in the order they were learned
    - num_basis: the number of basis tasks among them, which come first
    - matrix: T + 1 rows of T accuracies, row i after i learned tasks; NaN where unknown
    - bytes, breakdown: by task name, as far as the method has them
    - images_per_task: training steps × batch size, the mean over the learned tasks; None if unknown
    - seconds: of all learning and scoring
    """

    tasks: tuple[str, ...]
    num_basis: int
    matrix: tuple[tuple[float, ...], ...]
    bytes: Mapping[str, float]
    breakdown: Mapping[str, Mapping[str, float]]
    images_per_task: float | None
    seconds: float

    @property
    def accuracy(self) -> float:
        """The mean accuracy at the end over the learned tasks, without the basis tasks."""
        return fmean(self.matrix[-1][self.num_basis :] or self.matrix[-1])

    @property
    def basis_accuracy(self) -> float | None:
        """The mean accuracy at the end over the basis tasks; None without any."""
        return fmean(self.matrix[-1][: self.num_basis]) if self.num_basis else None

    @property
    def average_accuracy(self) -> float:
        """ACC, the mean accuracy at the end over all tasks (Lopez-Paz and Ranzato 2017)."""
        return fmean(self.matrix[-1])

    @property
    def forgetting(self) -> float:
        """The mean drop from the best accuracy: 1/(T-1) Σ_{j<T-1} max_{j<i<T} R[i][j] - R[T][j].

        The last task is left out, because nothing is learned after it. Negative if tasks improve
        afterwards. Source: Chaudhry et al., "Riemannian Walk for Incremental Learning" (2018).
        """
        drops = []
        for j in range(len(self.tasks) - 1):
            best = max(row[j] for row in self.matrix[j + 1 : -1])
            drops.append(best - self.matrix[-1][j])
        return fmean(drops)

    @property
    def backward_transfer(self) -> float:
        """The mean change since right after learning: 1/(T-1) Σ_{j<T-1} R[T][j] - R[j+1][j].

        Negative if tasks are forgotten. Source: Lopez-Paz and Ranzato, "Gradient Episodic Memory
        for Continual Learning" (2017).
        """
        matrix = self.matrix
        return fmean(matrix[-1][j] - matrix[j + 1][j] for j in range(len(self.tasks) - 1))

    @property
    def forward_transfer(self) -> float | None:
        """The mean gain before a task is learned: 1/(T-1) Σ_{0<j<T} R[j][j] - R[0][j].

        R[j][j] is the accuracy on task j when only the tasks before it are learned; R[0][j] the
        accuracy before any task, b̄ of Lopez-Paz and Ranzato (2017). None if the method has no
        answer before it learns.
        """
        matrix = self.matrix
        gain = fmean(matrix[j][j] - matrix[0][j] for j in range(1, len(self.tasks)))
        return None if math.isnan(gain) else gain

    @property
    def bytes_per_task(self) -> float | None:
        """The mean over the learned tasks, without the basis tasks; None if unknown."""
        tasks = self.tasks[self.num_basis :] or self.tasks
        sizes = [self.bytes[task] for task in tasks if task in self.bytes]
        return fmean(sizes) if len(sizes) == len(tasks) else None

    def summary(self) -> Row:
        """The measures by name."""
        return {name: getattr(self, name) for name in MEASURES}

    def rows(self) -> list[Row]:
        """A plain row per task.

        Keys: task, phase ("basis" or "learned"), accuracy_before and accuracy_learned (just before
        and after learning), accuracy (at the end), bytes, and bytes_PART for each part of the
        breakdown. Unknown values are None.
        """
        rows = []
        for place, task in enumerate(self.tasks):
            before = self.matrix[place][place]
            row: Row = {
                "task": task,
                "phase": "basis" if place < self.num_basis else "learned",
                "accuracy_before": None if math.isnan(before) else before,
                "accuracy_learned": self.matrix[place + 1][place],
                "accuracy": self.matrix[-1][place],
                "bytes": self.bytes.get(task),
            }
            parts = self.breakdown.get(task, {})
            rows.append(row | {f"bytes_{part}": size for part, size in parts.items()})
        return rows

    def table(self) -> Table:
        """A row per task, and the measures below."""
        keys = ("task", "phase", "accuracy_learned", "accuracy", "bytes")
        shown = [{key: row[key] for key in keys} for row in self.rows()]
        facts = []
        for name, value in self.summary().items():
            if value is not None:
                facts.append(f"{name.replace('_', ' ')} {format_value(name, value)}")
        return table_of(shown, note="; ".join(facts))

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


@clear_calls
def evaluate(
    method: Method, stream: Tasks, *, basis: int = 0, progress: bool | str = False
) -> Evaluation:
    """Learns a stream task by task and measures the accuracy on all tasks before and after each.

    - method: an object with `learn_task` and `predict`, see `Method`; it learns here
    - stream: a `Stream`, part of a stream, or {task name: (train, test)}; at least two tasks
    - basis: number of basis tasks, which come first; the method's `learn_basis`, if it has this
      verb, learns them
    - progress: whether to print a line before each task, or how such lines begin

    Raises InputError for a method without the verbs, scores outside [0, 1], and predictions that
    are not one label per input. Errors name the method and the task.
    """
    tasks = check_tasks(stream)
    if check_integer("basis", basis, 0) > len(tasks):
        raise InputError(f"basis = {basis}, but there are only {len(tasks)} tasks in the stream")
    check_method(method)
    if len(tasks) < 2:
        raise InputError(f"an evaluation needs at least two tasks, got {len(tasks)}")
    place = type(method).__name__ if progress is True else progress
    started = time.perf_counter()
    images: list[int | None] = []
    matrix: list[list[float]] = []

    # A stream makes its test sets at each access, and they are needed after every task.
    @cached(LRUCache(HELD_BYTES, getsizeof=_bytes_of))
    def test_set(number: int) -> LabelledData:
        return tasks[number].test

    def accuracies(learned: int) -> list[float]:
        row = []
        for number, task in enumerate(tasks):
            row.append(_accuracy(method, task, test_set(number), number < learned))
        return row

    for number, task in enumerate(tasks):
        if place:
            print_line(f"{place}: task {number + 1}/{len(tasks)} {task.name}")
        if number == 0:
            matrix.append(accuracies(0))
        is_basis = number < basis and hasattr(method, "learn_basis")
        verb = "learn_basis" if is_basis else "learn_task"
        train = task.train
        learn(method, verb, task.name, train)
        if number >= basis:
            images.append(images_of(method, len(train)))
        matrix.append(accuracies(number + 1))
    sizes, breakdown = {}, {}
    names = tuple(task.name for task in tasks)
    for name in names:
        info: Any = getattr(method, "tasks_", {}).get(name)
        if getattr(info, "bytes", None) is not None:
            sizes[name] = check_number(f"task {name!r}: bytes", info.bytes, 0)
        breakdown[name] = dict(getattr(info, "breakdown", {}))
    trained = [count for count in images if count is not None]
    return Evaluation(
        tasks=names,
        num_basis=basis,
        matrix=tuple(map(tuple, matrix)),
        bytes=sizes,
        breakdown=breakdown,
        images_per_task=fmean(trained) if trained and len(trained) == len(images) else None,
        seconds=time.perf_counter() - started,
    )


def check_tasks(stream: Any) -> Sequence[Task]:
    """The tasks of a `Stream` or mapping. Raises InputError for anything else."""
    if isinstance(stream, Mapping):
        return from_arrays(stream)
    if not isinstance(stream, Sequence) or not all(isinstance(task, Task) for task in stream):
        got = type(stream).__name__
        raise InputError(f"stream must be a Stream or {{name: (train, test)}}, got {got}")
    return stream


def check_method(method: Any) -> None:
    """Raises InputError unless this is an object with the verbs of a method."""
    if isinstance(method, type):
        raise InputError(f"a method is an object, not a class: give {method.__name__}(...)")
    for verb in ("learn_task", "predict"):
        if not callable(getattr(method, verb, None)):
            line = "a method needs learn_task(name, data) and predict(inputs, task)"
            raise InputError(f"{line}; {type(method).__name__} has no {verb}")


def images_of(method: Any, examples: int) -> int | None:
    """Steps × batch size of a learned task, by the method's recipe; None where it has none."""
    recipe = getattr(method, "recipe", None) or getattr(method, "task_recipe", None)
    if not isinstance(recipe, Recipe):
        return None
    return recipe.total_steps(examples) * recipe.batch_for(examples)


def _bytes_of(test: LabelledData) -> int:
    return test.inputs.nbytes if isinstance(test, Examples) else 1


def learn(method: Any, verb: str, name: str, train: LabelledData) -> None:
    """Lets a method learn a task; its errors name both."""
    with error_prefix(f"task {name!r}"), users_code(lambda: f"{verb} of {type(method).__name__}"):
        getattr(method, verb)(name, train)


def _accuracy(method: Any, task: Task, test: LabelledData, learned: bool) -> float:
    """The accuracy on a task, by a score of the method or from its predictions.

    NaN for a task that is not learned, where the method cannot answer.
    """
    kind, place = type(method).__name__, f"task {task.name!r}"
    verb = "score" if learned else "zero_shot_score"
    if hasattr(method, verb):
        with users_code(lambda: f"{place}: {verb} of {kind}"):
            value = getattr(method, verb)(test, task.name if learned else task.classes)
        if not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise InputError(f"{place}: {kind} must give an accuracy in [0, 1], got {value!r}")
        return float(value)
    if not learned:
        return math.nan
    return _measured(method, task, test, _answer_named)["task_il"]


def _measured(method: Any, task: Task, test: LabelledData, ask: Ask) -> dict[str, float]:
    """The means over a test set of what `ask` answers; of labels, the share that is right.

    Raises InputError for anything but an answer per input.
    """
    kind, place = type(method).__name__, f"task {task.name!r}"
    if not len(test):
        raise InputError(f"{place} has no test inputs")
    parts: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(test), PREDICTED_AT_ONCE):
        places = np.arange(start, min(start + PREDICTED_AT_ONCE, len(test)))
        labels = test.labels[places]
        with error_prefix(place), users_code(lambda: f"predict of {kind}"):
            answers = ask(method, task.name, test.inputs_at(places))
        for name, values in answers.items():
            if values.shape != labels.shape:
                line = f"{place}: predict of {kind} must give labels of shape {labels.shape}"
                raise InputError(f"{line} for {len(labels)} inputs, got shape {values.shape}")
            right = values == labels if name in ("class_il", "task_il") else values
            parts.setdefault(name, []).append(right)
    return {name: float(np.concatenate(each).mean()) for name, each in parts.items()}


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
        for name in SINGLE_INPUTS:
            values = [row[name] for row in self.rows if row[name] is not None]
            means[name] = fmean(values) if values else None
        return means

    def table(self) -> Table:
        """A row per task, and their mean."""
        total = {"task": "mean", "inputs": sum(row["inputs"] for row in self.rows)}
        return table_of([*self.rows, total | self.summary()])

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def class_incremental(method: Any, stream: Tasks, *, progress: bool = False) -> ClassIncremental:
    """Learns the tasks of a stream that a method has not learned, and asks it about single inputs.

    - method: an object with `learn_task(name, data)`, `predict(inputs, task)` and, to infer tasks,
      `infer_tasks(inputs)`, a `TaskGuess` for each input, and `predict(inputs, per_input=True)`;
      without these `predict(inputs, None)` gives labels among all classes, one input at a time
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
    rows = []
    for task in tasks:
        test = task.test
        row: Row = {"task": task.name, "inputs": len(test)} | dict.fromkeys(SINGLE_INPUTS)
        rows.append(row | _measured(method, task, test, _answers))
    return ClassIncremental(tuple(rows))


def _answer_named(method: Any, name: str, inputs: Any) -> dict[str, np.ndarray]:
    return {"task_il": np.asarray(method.predict(inputs, name))}


def _answers(method: Any, name: str, inputs: Any) -> dict[str, np.ndarray]:
    """Labels without and with the task's name, whether it was inferred right, and unknown."""
    named = _answer_named(method, name, inputs)
    if not hasattr(method, "infer_tasks"):
        return {"class_il": np.asarray(method.predict(inputs, None)), **named}
    guesses = method.infer_tasks(inputs)
    return named | {
        "class_il": np.asarray(method.predict(inputs, per_input=True)),
        "task_accuracy": np.array([guess.best == name for guess in guesses]),
        "unknown": np.array([guess.unknown for guess in guesses]),
    }
