"""What an evaluation found: shown as a table, in a notebook, and as plain rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import fsum
from typing import Any

from impresslearn.errors import visible
from impresslearn.methods import metrics

Cells = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Evaluation:
    """A method on a stream.

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

    def rows(self) -> list[dict[str, Any]]:
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
        return f"{_text(Comparison({'all tasks': self})._cells())}\n\n{_text(self._cells())}"

    def _repr_html_(self) -> str:
        return _html(Comparison({"all tasks": self})._cells()) + _html(self._cells())

    def _cells(self) -> Cells:
        shown = ("accuracy_before", "accuracy_learned", "accuracy")
        return [
            ("task", "kept as", "before", "learned", "at the end", "bytes"),
            *(
                (
                    visible(row["task"]),
                    row["role"] or "-",
                    *(_percent(row[name]) for name in shown),
                    _bytes(row["bytes"]),
                )
                for row in self.rows()
            ),
        ]


@dataclass(frozen=True)
class Comparison(Mapping[str, Evaluation]):
    """Methods on one stream: label -> `Evaluation`, in the order they were given."""

    evaluations: Mapping[str, Evaluation]

    def __getitem__(self, label: str) -> Evaluation:
        return self.evaluations[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def rows(self) -> list[dict[str, Any]]:
        """A plain row a method: its label as `method`, and what `Evaluation.summary` gives."""
        return [{"method": label, **each.summary()} for label, each in self.items()]

    def __str__(self) -> str:
        return _text(self._cells())

    def _repr_html_(self) -> str:
        return _html(self._cells())

    def _cells(self) -> Cells:
        signed = ("forgetting", "backward_transfer", "forward_transfer")
        names = ("average_accuracy", *signed, "bytes_per_task", "seconds")
        return [
            ("method", *(name.replace("_", " ") for name in names)),
            *(
                (
                    visible(row["method"]),
                    _percent(row["average_accuracy"]),
                    *(_percent(row[name], "+") for name in signed),
                    _bytes(row["bytes_per_task"]),
                    f"{row['seconds']:.1f}",
                )
                for row in self.rows()
            ),
        ]


def _known(value: float) -> float | None:
    return value if value == value else None


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{100 * value:{sign}.1f}%"


def _bytes(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _text(cells: Cells) -> str:
    """Columns of equal width, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        rest = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *rest]))
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _html(cells: Cells) -> str:
    head, *body = [[escape(cell) for cell in row] for row in cells]
    lines = [f"<tr><th>{'</th><th>'.join(head)}</th></tr>"]
    lines += [f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in body]
    return f"<table>{''.join(lines)}</table>"
