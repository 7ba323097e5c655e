"""The measures of continual learning, computed from an accuracy matrix.

The matrix has T + 1 rows of T accuracies. Row i holds the accuracy on every task of the stream, by
its place in the order, when i tasks are learned; row 0 is the state before any task. So the task at
place j (0 to T - 1) is learned in the rows from j + 1 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, isnan

from impresslearn.checks import check_integer
from impresslearn.errors import InputError

Matrix = Sequence[Sequence[float]]


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
    """The mean accuracy over the tasks learned so far: 1/i Σ_{j<i} R[i][j] for i learned tasks.

    - matrix: T + 1 rows of T accuracies
    - learned: i, from 1 to T; by default T

    ACC of Lopez-Paz and Ranzato (2017) for i = T. Raises InputError for i out of range.
    """
    tasks = check_matrix(matrix)
    count = tasks if learned is None else check_integer("learned", learned, 1, tasks + 1)
    return fsum(matrix[count][:count]) / count


def forgetting(matrix: Matrix) -> float:
    """How far the tasks fell from their best: 1/(T-1) Σ_{j<T-1} max_{j<i<T} R[i][j] - R[T][j].

    - matrix: T + 1 rows of T accuracies

    Chaudhry et al., "Riemannian Walk for Incremental Learning" (2018), with the best taken over the
    states since the task was learned. The last task is left out: it has had no time to be
    forgotten. Negative where tasks got better afterwards.
    """
    tasks = check_matrix(matrix)
    lost = [
        max(matrix[i][j] for i in range(j + 1, tasks)) - matrix[tasks][j] for j in range(tasks - 1)
    ]
    return fsum(lost) / len(lost)


def backward_transfer(matrix: Matrix) -> float:
    """What later tasks did to earlier ones: 1/(T-1) Σ_{j<T-1} R[T][j] - R[j+1][j].

    - matrix: T + 1 rows of T accuracies

    Lopez-Paz and Ranzato, "Gradient Episodic Memory for Continual Learning" (2017). Negative where
    tasks are forgotten; unlike `forgetting` it starts from the accuracy right after learning.
    """
    tasks = check_matrix(matrix)
    return fsum(matrix[tasks][j] - matrix[j + 1][j] for j in range(tasks - 1)) / (tasks - 1)


def forward_transfer(matrix: Matrix) -> float | None:
    """What earlier tasks did for later ones: 1/(T-1) Σ_{0<j<T} R[j][j] - R[0][j].

    - matrix: T + 1 rows of T accuracies, NaN where the method could not answer

    Lopez-Paz and Ranzato (2017). R[j][j] is the accuracy on a task when all before it are learned
    and it is not; R[0][j], their b̄, that of the method before any task. None where a method cannot
    answer before it learns.
    """
    tasks = check_matrix(matrix)
    gain = fsum(matrix[j][j] - matrix[0][j] for j in range(1, tasks)) / (tasks - 1)
    return None if isnan(gain) else gain
