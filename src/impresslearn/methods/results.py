"""Results of evaluations: the measures of continual learning, as a table and as plain rows.

The measures are computed from an accuracy matrix: T + 1 rows of T accuracies. Row i holds the
accuracy on every task of the stream, by its place in the order, when i tasks are learned; row 0 is
the state before any task. So the task at place j (0 to T - 1) is learned in the rows from j + 1 on.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isnan
from statistics import fmean
from typing import Any

from impresslearn.checks import check_integer
from impresslearn.errors import InputError
from impresslearn.report.cells import cells_of

Row = dict[str, Any]
Matrix = Sequence[Sequence[float]]
MEASURES = ("average_accuracy", "forgetting", "backward_transfer", "forward_transfer")


def check_matrix(matrix: Matrix) -> int:
    """The number of tasks T. Raises InputError for a matrix of another shape and for T below 2."""
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
    count = tasks if learned is None else check_integer("learned", learned, 1, tasks + 1)
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


def forward_transfer(matrix: Matrix) -> float | None:
    """What earlier tasks did for later ones before these were learned; None where it is unknown.

    1/(T-1) Σ_{0<j<T} R[j][j] - R[0][j] (Lopez-Paz and Ranzato, 2017). R[j][j] is the accuracy on a
    task when all before it are learned and it is not; R[0][j], their b̄, that of the method before
    any task. It is unknown where a method cannot answer before it learns (NaN in the matrix).
    """
    tasks = check_matrix(matrix)
    gain = fsum(matrix[j][j] - matrix[0][j] for j in range(1, tasks)) / (tasks - 1)
    return None if isnan(gain) else gain


@dataclass(frozen=True)
class Evaluation:
    """The accuracies, bytes and time of one method on a stream.

    tasks: names in the order they were learned; matrix: T + 1 rows of T accuracies, row i when i
    tasks are learned, NaN where the method cannot answer before it has learned;
    bytes, roles: by task name, what learning a task added and how the task is kept, where the
    method says so; seconds: of all learning and scoring.
    """

    tasks: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]
    bytes: Mapping[str, int]
    roles: Mapping[str, str]
    seconds: float

    @property
    def average_accuracy(self) -> float:
        """The mean accuracy over all tasks at the end."""
        return average_accuracy(self.matrix)

    @property
    def forgetting(self) -> float:
        """How far tasks fell from their best accuracy."""
        return forgetting(self.matrix)

    @property
    def backward_transfer(self) -> float:
        """How far accuracies moved since right after learning."""
        return backward_transfer(self.matrix)

    @property
    def forward_transfer(self) -> float | None:
        """What earlier tasks did for later ones before these were learned; None if unknown."""
        return forward_transfer(self.matrix)

    def summary(self) -> dict[str, float | None]:
        """The measures by name, `bytes_per_task` (None where unknown) and `seconds`."""
        known = len(self.bytes) == len(self.tasks)
        return {name: getattr(self, name) for name in MEASURES} | {
            "bytes_per_task": fsum(self.bytes.values()) / len(self.tasks) if known else None,
            "seconds": self.seconds,
        }

    def over(self, tasks: Container[str]) -> dict[str, float | None]:
        """`learned_accuracy` at the end and `learned_bytes`, means over these tasks alone.

        Raises InputError where none of them was learned.
        """
        rows = [row for row in self.rows() if row["task"] in tasks]
        if not rows:
            raise InputError(f"none of these tasks was learned; there are {', '.join(self.tasks)}")
        sizes = [row["bytes"] for row in rows]
        return {
            "learned_accuracy": fmean(row["accuracy"] for row in rows),
            "learned_bytes": None if None in sizes else fmean(sizes),
        }

    def rows(self) -> list[Row]:
        """A plain row a task: task, role, bytes, and the accuracy before it was learned, right
        after (`accuracy_learned`) and at the end; None where unknown.
        """
        return [
            {
                "task": task,
                "role": self.roles.get(task),
                "bytes": self.bytes.get(task),
                "accuracy_before": None if isnan(before := self.matrix[place][place]) else before,
                "accuracy_learned": self.matrix[place + 1][place],
                "accuracy": self.matrix[-1][place],
            }
            for place, task in enumerate(self.tasks)
        ]

    def chart(self) -> Any:
        """The average accuracy over the tasks learned so far, and at the end against bytes a task,
        as an Altair chart.
        """
        return Comparison({"": self}).chart()

    def __str__(self) -> str:
        return f"{cells_of([self.summary()]).text()}\n\n{cells_of(self.rows()).text()}"

    def _repr_html_(self) -> str:
        return cells_of([self.summary()]).html() + cells_of(self.rows()).html()


@dataclass(frozen=True)
class Comparison(Mapping[str, Evaluation]):
    """Evaluations of several methods on one stream, label -> `Evaluation`."""

    evaluations: Mapping[str, Evaluation]

    def __getitem__(self, label: str) -> Evaluation:
        return self.evaluations[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def rows(self) -> list[Row]:
        """A plain row a method: its label as `method`, and what `Evaluation.summary` gives.

        Where one learned basis tasks first, also accuracy and bytes over the tasks that came after.
        """
        rows: list[Row] = [{"method": label, **each.summary()} for label, each in self.items()]
        mixed = [each for each in self.values() if set(each.roles.values()) >= {"basis", "learned"}]
        after = [
            task
            for task in (mixed[0].tasks if mixed else ())
            if all(each.roles.get(task) == "learned" for each in mixed)
            and all(task in each.tasks for each in self.values())
        ]
        if after:
            for row, each in zip(rows, self.values(), strict=True):
                row |= each.over(after)
        return rows

    def chart(self) -> Any:
        """`Evaluation.chart` with a line and a point for each method."""
        from impresslearn.report.charts import comparison_chart  # Altair takes a second to import

        rows = (
            {"method": label, "task": task, "learned": learned, "accuracy": accuracy}
            | {"bytes": each.bytes.get(task)}
            for label, each in self.items()
            for learned, row in enumerate(each.matrix)
            for task, accuracy in zip(each.tasks, row, strict=True)
        )
        return comparison_chart(list(rows))

    def __str__(self) -> str:
        return cells_of(self.rows()).text()

    def _repr_html_(self) -> str:
        return cells_of(self.rows()).html()
