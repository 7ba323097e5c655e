"""`evaluate` and `class_incremental` evaluate one method on a stream of tasks.

In `evaluate` a method predicts with the task's name given (task-incremental, Task-IL). In
`class_incremental` it also predicts without it, and a label may then be any class of any task
(class-incremental, Class-IL).

Measures are computed from an accuracy matrix R. R[i][j] is the accuracy on task j after i tasks
were learned. Tasks are counted from 0 in the order of learning, so row 0 is the state before any
task, and task j has been learned in rows j + 1 to T, where T is the number of tasks.
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
from impresslearn.learner.presets import LearnerSettings
from impresslearn.streams import Task, from_arrays
from impresslearn.streams.stream import LabelledData
from impresslearn.tables import Table, format_value, table_of
from impresslearn.training.loop import Recipe

CHECKED_ALONE = 8  # inputs of a task, predicted once more alone
HELD_BYTES = 1024**3  # of test inputs kept in memory; the rest is loaded again for each score
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

    - `score(data, task)`: the accuracy in [0, 1]; define it if it is faster than `predict`
    - `learn_basis(name, data)`: learns one of the basis tasks, which come first
    - `zero_shot_score(data, classes)`: the accuracy before a task is learned, for forward transfer
    - `tasks_`: task name -> an object with `bytes`, and optionally `breakdown` (part -> bytes)
    - `recipe`: the `Recipe` for training a task, from which `compare` knows the training length
    - `progress`: not used by `evaluate`; `compare` sets it to False
    """

    def learn_task(self, name: str, data: Any) -> Any:
        """Learns a task from data, which are `Examples`: `inputs` (n, ...) and `labels` (n,)."""

    def predict(self, inputs: Any, task: str) -> Any:
        """Labels (n,) of inputs.

        - inputs: (n, ...), in the form in which the stream has them
        - task: the name of a learned task
        """


@dataclass(frozen=True)
class Evaluation:
    """The accuracies, sizes and times of one method on a stream.

    - tasks: task names, in the order they were learned
    - num_basis: the number of basis tasks, which come first in `tasks`
    - matrix: T + 1 rows of T accuracies, row i after i learned tasks; NaN where unknown
    - bytes, breakdown: task name -> bytes, and bytes by part, if the method reports them
    - images_per_task: training steps × batch size, the mean over the learned tasks; None if unknown
    - seconds: the time of all learning and scoring
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
        """The mean change after a task is learned: 1/(T-1) Σ_{j<T-1} R[T][j] - R[j+1][j].

        Negative if tasks are forgotten. Source: Lopez-Paz and Ranzato, "Gradient Episodic Memory
        for Continual Learning" (2017).
        """
        matrix = self.matrix
        return fmean(matrix[-1][j] - matrix[j + 1][j] for j in range(len(self.tasks) - 1))

    @property
    def forward_transfer(self) -> float | None:
        """The mean gain before a task is learned: 1/(T-1) Σ_{0<j<T} R[j][j] - R[0][j].

        R[j][j] is the accuracy on task j when only the tasks before it have been learned. R[0][j]
        is the accuracy before any task, which is b̄ in Lopez-Paz and Ranzato (2017). None if the
        method has no `zero_shot_score`.
        """
        matrix = self.matrix
        gain = fmean(matrix[j][j] - matrix[0][j] for j in range(1, len(self.tasks)))
        return None if math.isnan(gain) else gain

    @property
    def bytes_per_task(self) -> float | None:
        """The mean bytes of the learned tasks, without the basis tasks; None if unknown."""
        tasks = self.tasks[self.num_basis :] or self.tasks
        sizes = [self.bytes[task] for task in tasks if task in self.bytes]
        return fmean(sizes) if len(sizes) == len(tasks) else None

    def summary(self) -> Row:
        """The measures by name."""
        return {name: getattr(self, name) for name in MEASURES}

    def rows(self) -> list[Row]:
        """One dictionary per task.

        Keys: task, phase ("basis" or "learned"), accuracy_before and accuracy_learned (just before
        and just after learning the task), accuracy (at the end), bytes, and bytes_PART for each
        part of the breakdown. Unknown values are None.
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
        """A table with a row per task, and the measures below the rows."""
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

    - method: an object with `learn_task` and `predict` (see `Method`); it learns all tasks here
    - stream: a `Stream`, part of a stream, or {task name: (train, test)}; at least two tasks
    - basis: the number of basis tasks at the start of the stream, default 0. They are learned by
      `learn_basis` if the method has it
    - progress: whether to print a line before each task (default False), or how the line starts

    Raises InputError for a method without `learn_task` or `predict`, scores outside [0, 1], and
    predictions that are not one label per input. Errors name the method and the task.
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

    # A stream makes a test set anew at each access, and every test set is needed after every task.
    @cached(LRUCache(HELD_BYTES, getsizeof=_bytes_of))
    def test_set(number: int) -> LabelledData:
        return tasks[number].test

    def accuracies(learned: int) -> list[float]:
        return [_accuracy(method, task, test_set(k), k < learned) for k, task in enumerate(tasks)]

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
    """Raises InputError unless this is an object with `learn_task` and `predict`."""
    if isinstance(method, type):
        raise InputError(f"a method is an object, not a class: give {method.__name__}(...)")
    for verb in ("learn_task", "predict"):
        if not callable(getattr(method, verb, None)):
            line = "a method needs learn_task(name, data) and predict(inputs, task)"
            raise InputError(f"{line}; {type(method).__name__} has no {verb}")


def images_of(method: Any, examples: int) -> int | None:
    """Steps × batch size of training a task, by the method's recipe.

    None without a recipe, and for tasks that are readouts, which are not trained in steps.
    """
    settings = getattr(method, "settings", None)
    if isinstance(settings, LearnerSettings) and settings.spec.parametrisation.is_readout:
        return None
    recipe = getattr(method, "recipe", None) or getattr(method, "task_recipe", None)
    if not isinstance(recipe, Recipe):
        return None
    return recipe.total_steps(examples) * recipe.batch_for(examples)


def _bytes_of(test: LabelledData) -> int:
    return test.inputs.nbytes if isinstance(test, Examples) else 1


def learn(method: Any, verb: str, name: str, train: LabelledData) -> None:
    """Lets a method learn a task. Errors name the method and the task."""
    with error_prefix(f"task {name!r}"), users_code(lambda: f"{verb} of {type(method).__name__}"):
        getattr(method, verb)(name, train)


def _accuracy(method: Any, task: Task, test: LabelledData, learned: bool) -> float:
    """The accuracy on a task, from the method's own score or else from its predictions.

    NaN for a task that is not learned yet if the method has no `zero_shot_score`.
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
    """The mean of each answer of `ask` over a test set; for labels, the share that is right."""
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

    rows: one dictionary per task, with these keys:

    - task, inputs: the name of the task, and its number of test inputs.
    - class_il, task_il: the accuracy without and with the name of the task.
    - task_accuracy: the share of inputs whose most likely task is the right one.
    - unknown: the share of inputs that look like none of the tasks. In class_il they count with the
      label that their most likely task gives.

    task_accuracy and unknown are None for a method that does not infer tasks.
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
        """A table with a row per task, and a last row with their mean."""
        total = {"task": "mean", "inputs": sum(row["inputs"] for row in self.rows)}
        return table_of([*self.rows, total | self.summary()])

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def class_incremental(method: Any, stream: Tasks, *, progress: bool = False) -> ClassIncremental:
    """Learns the tasks that a method has not learned yet, then measures accuracies for each input.

    - method: an object with `learn_task(name, data)` and `predict(inputs, task)`. Without a task,
      it is asked for labels by `predict(inputs, per_input=True)` if it has `infer_tasks(inputs)`,
      which returns a `TaskGuess` per input, and by `predict(inputs, None)` otherwise. All inputs of
      a call are of one task, so a label must depend on its own input alone; a few are checked
    - stream: a `Stream`, part of a stream, or {task name: (train, test)}. A label that several
      tasks have is one class
    - progress: whether to print a line before each task; default False

    Raises InputError like `evaluate`, and if an input has another label alone.
    Source: van de Ven and Tolias, "Three scenarios for continual learning" (2019).
    """
    tasks = check_tasks(stream)
    check_method(method)
    if not tasks:
        raise InputError("the stream has no task")
    for number, task in enumerate(tasks):
        if task.name in getattr(method, "tasks_", {}):
            continue
        if progress:
            print_line(f"{type(method).__name__}: task {number + 1}/{len(tasks)} {task.name}")
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
    """For each input: labels without and with the task's name, and what `infer_tasks` inferred."""
    named = _answer_named(method, name, inputs)
    if not hasattr(method, "infer_tasks"):
        labels = np.asarray(method.predict(inputs, None))
        for place in range(min(len(labels), CHECKED_ALONE)):
            if method.predict(inputs[place : place + 1], None)[0] != labels[place]:
                line = f"predict(inputs, None) of {type(method).__name__} gives an input another"
                raise InputError(f"{line} label in a batch than alone; infer tasks for each input")
        return {"class_il": labels, **named}
    guesses = method.infer_tasks(inputs)
    return named | {
        "class_il": np.asarray(method.predict(inputs, per_input=True)),
        "task_accuracy": np.array([guess.best == name for guess in guesses]),
        "unknown": np.array([guess.unknown for guess in guesses]),
    }
