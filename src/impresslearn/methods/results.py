"""Results of evaluations: as a table, in a notebook, and as plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import fsum, isnan
from typing import Any

from impresslearn.methods import metrics
from impresslearn.report.cells import cells_of

Row = dict[str, Any]
MEASURES = ("average_accuracy", "forgetting", "backward_transfer", "forward_transfer")


@dataclass(frozen=True)
class Evaluation:
    """The accuracies, bytes and time of one method on a stream.

    tasks: names in the order they were learned; matrix: T + 1 rows of T accuracies, row i when i
    tasks are learned (see `metrics`), NaN where the method cannot answer before it has learned;
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
        return metrics.average_accuracy(self.matrix)

    @property
    def forgetting(self) -> float:
        """How far tasks fell from their best accuracy."""
        return metrics.forgetting(self.matrix)

    @property
    def backward_transfer(self) -> float:
        """How far accuracies moved since right after learning."""
        return metrics.backward_transfer(self.matrix)

    @property
    def forward_transfer(self) -> float | None:
        """What earlier tasks did for later ones before these were learned; None if unknown."""
        return metrics.forward_transfer(self.matrix)

    def summary(self) -> dict[str, float | None]:
        """The measures by name, `bytes_per_task` (None where unknown) and `seconds`."""
        known = len(self.bytes) == len(self.tasks)
        return {name: getattr(self, name) for name in MEASURES} | {
            "bytes_per_task": fsum(self.bytes.values()) / len(self.tasks) if known else None,
            "seconds": self.seconds,
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
        """A plain row a method: its label as `method`, and what `Evaluation.summary` gives."""
        return [{"method": label, **each.summary()} for label, each in self.items()]

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
