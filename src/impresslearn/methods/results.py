"""Results of evaluations: as a table, in a notebook, and as plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import fsum
from typing import Any

from impresslearn.errors import visible
from impresslearn.methods import metrics

Row = dict[str, Any]
DIFFERENCES = ("forgetting", "backward_transfer", "forward_transfer")


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
        return {
            "average_accuracy": self.average_accuracy,
            "forgetting": self.forgetting,
            "backward_transfer": self.backward_transfer,
            "forward_transfer": self.forward_transfer,
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
                "accuracy_before": _known(self.matrix[place][place]),
                "accuracy_learned": self.matrix[place + 1][place],
                "accuracy": self.matrix[-1][place],
            }
            for place, task in enumerate(self.tasks)
        ]

    def __str__(self) -> str:
        return f"{_text([self.summary()])}\n\n{_text(self.rows())}"

    def _repr_html_(self) -> str:
        return _html([self.summary()]) + _html(self.rows())


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

    def __str__(self) -> str:
        return _text(self.rows())

    def _repr_html_(self) -> str:
        return _html(self.rows())


def _known(value: float) -> float | None:
    return value if value == value else None


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    """The names of the columns, and each row, as they are shown."""
    head = [name.replace("_", " ") for name in rows[0]]
    return [head, *([_cell(name, value) for name, value in row.items()] for row in rows)]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return visible(value)
    if name == "seconds":
        return f"{value:.1f}"
    if name.startswith("bytes"):
        return f"{value:,.0f}"
    return f"{100 * value:{'+' if name in DIFFERENCES else ''}.1f}%"


def _text(rows: Sequence[Row]) -> str:
    """Columns of equal width, the first one to the left."""
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        rest = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *rest]))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _html(rows: Sequence[Row]) -> str:
    lines = [f"<tr><td>{'</td><td>'.join(map(escape, row))}</td></tr>" for row in _cells(rows)]
    lines[0] = lines[0].replace("td>", "th>")
    return f"<table>{''.join(lines)}</table>"
