"""Continual learning in numbers: the accuracy matrix, what is read off it, and how it is shown.

A matrix has T + 1 rows of T accuracies. Row i holds the accuracy on every task of the stream, by
its place in the order, when i tasks are learned; row 0 is the state before any task. So a task at
place j (0 to T - 1) is learned in the rows from j + 1 on. `own` fills matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from impresslearn.errors import InputError

Matrix = Sequence[Sequence[float]]


def check_matrix(matrix: Matrix) -> int:
    """T. Raises InputError unless the matrix has T + 1 rows of T accuracies and T is at least 2."""
    tasks = len(matrix) - 1
    if tasks < 2 or any(len(row) != tasks for row in matrix):
        lengths = sorted({len(row) for row in matrix})
        raise InputError(
            "an accuracy matrix has T + 1 rows of T accuracies for T >= 2 tasks, "
            f"got {len(matrix)} rows of {', '.join(map(str, lengths)) or 'none'}"
        )
    return tasks


def average_accuracy(matrix: Matrix, learned: int | None = None) -> float:
    """The mean accuracy over the tasks learned so far; by default over all, at the end.

    1/i Σ_{j<i} R[i][j] for i learned tasks (ACC of Lopez-Paz and Ranzato, 2017, for i = T).
    Raises InputError for a number of tasks outside 1 to T.
    """
    tasks = check_matrix(matrix)
    count = tasks if learned is None else learned
    if not 1 <= count <= tasks:
        raise InputError(f"learned must be 1 to {tasks} tasks, got {count}")
    return fsum(matrix[count][:count]) / count


def forgetting(matrix: Matrix) -> float:
    """How far the tasks fell from their best: 1/(T-1) Σ_{j<T-1} max_{j<i<T} R[i][j] - R[T][j].

    Chaudhry et al., "Riemannian Walk for Incremental Learning" (2018), with the best taken over the
    states since the task was learned. The last task is left out: it has had no time to be
    forgotten. 0 where nothing changes; negative where tasks got better afterwards.
    """
    tasks = check_matrix(matrix)
    lost = [
        max(matrix[i][j] for i in range(j + 1, tasks)) - matrix[tasks][j] for j in range(tasks - 1)
    ]
    return fsum(lost) / len(lost)


def backward_transfer(matrix: Matrix) -> float:
    """What later tasks did to earlier ones: 1/(T-1) Σ_{j<T-1} R[T][j] - R[j+1][j].

    Lopez-Paz and Ranzato, "Gradient Episodic Memory for Continual Learning" (2017). Negative where
    tasks are forgotten; unlike `forgetting` it starts from the accuracy right after learning.
    """
    tasks = check_matrix(matrix)
    return fsum(matrix[tasks][j] - matrix[j + 1][j] for j in range(tasks - 1)) / (tasks - 1)


def forward_transfer(matrix: Matrix) -> float:
    """What earlier tasks did for later ones before these were learned.

    1/(T-1) Σ_{0<j<T} R[j][j] - R[0][j] (Lopez-Paz and Ranzato, 2017). R[j][j] is the accuracy on a
    task when all before it are learned and it is not; R[0][j], their b̄, that of the method before
    any task. What a method with masks predicts for a task that it has not learned is a matter of
    definition: see `contenders`.
    """
    tasks = check_matrix(matrix)
    return fsum(matrix[j][j] - matrix[0][j] for j in range(1, tasks)) / (tasks - 1)


@dataclass(frozen=True)
class Trial:
    """What one method did on one seed: `matrix`, and per task, in the order they were learned, its
    name, how it is kept ("basis", "learned", …) and the bytes that learning it added.
    """

    method: str
    seed: int
    tasks: Sequence[str]
    roles: Sequence[str]
    added_bytes: Sequence[int]
    matrix: Matrix


def summary_of(trial: Trial) -> dict[str, float]:
    """The measures of a trial by name, and the mean of the bytes that a task added."""
    return {
        "average_accuracy": average_accuracy(trial.matrix),
        "forgetting": forgetting(trial.matrix),
        "backward_transfer": backward_transfer(trial.matrix),
        "forward_transfer": forward_transfer(trial.matrix),
        "bytes_per_task": fsum(trial.added_bytes) / len(trial.tasks),
    }


def summaries(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """{method, seeds, and each measure's mean over them}, a method an entry."""
    found = []
    for method in dict.fromkeys(trial.method for trial in trials):
        each = [summary_of(trial) for trial in trials if trial.method == method]
        means = {key: fsum(one[key] for one in each) / len(each) for key in each[0]}
        found.append({"method": method, "seeds": len(each), **means})
    return found


def shown(trials: Sequence[Trial]) -> dict[str, Any]:
    """The part of a result record that is measured: rows, and the figures and tables of them.

    Rows of three kinds: `learned` tasks so far (0 to T), the task evaluated and its `place` (1 to
    T), whether it is `seen`, and its accuracy; a task's role, bytes and final accuracy; the
    measures of a trial.
    """
    return {
        "figures": _figures(list(dict.fromkeys(trial.method for trial in trials))),
        "tables": [
            {
                "title": "All tasks",
                "columns": ["method"],
                "values": list(summary_of(trials[0])),
            },
            {
                "title": "By how a task is kept",
                "columns": ["method", "role"],
                "values": ["final_accuracy", "bytes"],
            },
        ],
        "rows": [row for trial in trials for row in _rows(trial)],
    }


def _rows(trial: Trial) -> Iterator[dict[str, Any]]:
    whose = {"method": trial.method, "seed": trial.seed}
    for learned, row in enumerate(trial.matrix):
        for place, (task, accuracy) in enumerate(zip(trial.tasks, row, strict=True), start=1):
            yield {
                **whose,
                "learned": learned,
                "task": task,
                "place": place,
                "seen": place <= learned,
                "accuracy": accuracy,
            }
    for place, task in enumerate(trial.tasks, start=1):
        yield {
            **whose,
            "task": task,
            "place": place,
            "role": trial.roles[place - 1],
            "bytes": trial.added_bytes[place - 1],
            "final_accuracy": trial.matrix[-1][place - 1],
        }
    yield whose | summary_of(trial)


def _figures(methods: Sequence[str]) -> list[dict[str, Any]]:
    line = {
        "kind": "line",
        "title": "Average accuracy over the tasks learned so far",
        "x": "learned",
        "y": "accuracy",
        "group": "method",
        "order": list(methods),
        "where": {"seen": True},
        "x_label": "tasks learned",
        "y_label": "average accuracy",
    }
    bars = {
        "kind": "bar",
        "title": "Bytes per task",
        "caption": "What learning a task adds to what is kept, averaged over all tasks of a run.",
        "x": "method",
        "y": "bytes_per_task",
    }
    maps = [
        {
            "kind": "heatmap",
            "title": f"{method}: accuracy in per cent",
            "caption": "To the right of the diagonal tasks are not learned yet.",
            "x": "place",
            "y": "learned",
            "value": "accuracy",
            "where": {"method": method},
            "x_label": "task, by its place in the order",
            "y_label": "tasks learned",
        }
        for method in methods
    ]
    return [line, bars, *maps]
