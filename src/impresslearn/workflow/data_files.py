"""Data files as a task reads them: the settings by which files become inputs, kept with the task.

A task that was learned from normalised images is predicted on images normalised in the same way, so
what shapes the inputs is written into the task's note beside the fingerprint of its data, and is
taken from there when nothing else is said. How a file is laid out (label column, header) is not: it
belongs to the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from impresslearn.data import MEMORY_LIMIT, Examples, StreamedExamples
from impresslearn.errors import InputError
from impresslearn.files import NamedInputs, data_fingerprint, read_examples, read_inputs
from impresslearn.files.labels import read_labels
from impresslearn.tasks import TaskInfo, TaskTable

KEPT = ("shape", "size", "mean", "std")
DIGITS = 32
"""Hexadecimal digits of a fingerprint that are kept: 128 bits."""


@dataclass(frozen=True)
class Reading:
    """How files become inputs and labels: the settings of `read_examples`, None where not given."""

    label_column: str | int | None = None
    header: bool | None = None
    shape: Sequence[int] | None = None
    size: int | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None

    def examples(self, path: Path, labels: Path | None = None) -> Examples | StreamedExamples:
        """Labelled examples of a file or folder."""
        return read_examples(path, labels, **asdict(self))

    def inputs(self, path: Path) -> NamedInputs:
        """Inputs without labels, and a name for each."""
        return read_inputs(path, **asdict(self))

    def labels(self, path: Path) -> np.ndarray:
        """The labels of a file beside the inputs; the label column is that of a .csv file."""
        column = self.label_column if path.suffix.lower() == ".csv" else None
        return read_labels(path, column, self.header, MEMORY_LIMIT)

    def kept(self) -> dict[str, Any]:
        """What shapes the inputs, as far as it was given: JSON values for a task's note."""
        given = {name: getattr(self, name) for name in KEPT}
        return {
            name: list(value) if isinstance(value, (tuple, list)) else value
            for name, value in given.items()
            if value is not None
        }

    def completed(self, kept: Mapping[str, Any]) -> Reading:
        """The same, with what a task kept in the place of what was not given."""
        given = self.kept()
        return replace(
            self, **{name: kept[name] for name in KEPT if name in kept and name not in given}
        )

    def standardised(self, examples: Examples | StreamedExamples) -> Reading:
        """The same, with one mean and one standard deviation measured over all inputs.

        Raises InputError for streamed examples and where all inputs are the same number.
        """
        if isinstance(examples, StreamedExamples):
            raise InputError(
                "the data are too large to measure their mean and standard deviation; give them"
            )
        mean = float(f"{examples.inputs.double().mean():.6g}")
        std = float(f"{examples.inputs.double().std(correction=0):.6g}")
        if not std > 0:
            raise InputError(f"all inputs are {mean:g}; they cannot be standardised")
        return replace(self, mean=mean, std=std)


def shape_of(examples: Examples | StreamedExamples) -> tuple[int, ...]:
    """The shape of one input."""
    if isinstance(examples, StreamedExamples):
        return tuple(examples.dataset[0][0].shape)
    return tuple(examples.inputs.shape[1:])


def note_of(examples: Examples | StreamedExamples, reading: Reading) -> dict[str, Any]:
    """What is kept with a task of the data it was learned from."""
    kept = reading.kept()
    return {"data": fingerprint(examples)} | ({"inputs": kept} if kept else {})


def fingerprint(examples: Examples | StreamedExamples) -> str:
    """The fingerprint of a data set as it is kept with a task."""
    return data_fingerprint(examples)[:DIGITS]


def data_of(task: TaskInfo) -> str | None:
    """The fingerprint of the data that a task was learned from; None where none was kept."""
    kept = _note(task).get("data")
    return kept if isinstance(kept, str) else None


def inputs_of(task: TaskInfo) -> dict[str, Any]:
    """How the inputs of a task were read, as far as it was said."""
    kept = _note(task).get("inputs")
    return dict(kept) if isinstance(kept, dict) else {}


def usual_inputs(tasks: TaskTable) -> dict[str, Any]:
    """How the inputs of the first task were read: what goes for others when nothing is said."""
    first = next(iter(tasks.all()), None)
    return {} if first is None else inputs_of(first.info())


def _note(task: TaskInfo) -> Mapping[str, Any]:
    metrics = task.history.get("metrics")
    note = metrics.get("note") if isinstance(metrics, Mapping) else None
    return note if isinstance(note, Mapping) else {}
