"""Data files as a learner reads them, and what is kept of them with a task.

What shapes inputs belongs to the store, which keeps its `Preprocessing` once and applies it itself;
how a file is laid out (label column, header) belongs to the file. In stores from before there was
preprocessing, each task's note has the settings by which its files were read, and they are taken
from there when nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from impresslearn.data import MEMORY_LIMIT, Examples, StreamedExamples
from impresslearn.data.files import (
    NamedInputs,
    data_fingerprint,
    holds_images,
    read_examples,
    read_inputs,
)
from impresslearn.data.files.labels import read_labels
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.state.tasks import TaskInfo, TaskTable

KEPT = ("shape", "size", "mean", "std")
DIGITS = 32
"""Hexadecimal digits of a fingerprint that are kept: 128 bits."""


@dataclass(frozen=True)
class Reading:
    """How files become inputs and labels: the settings of `read_examples`, None where not given.

    images_only: whether size is left out for files that hold no images.
    """

    label_column: str | int | None = None
    header: bool | None = None
    shape: Sequence[int] | None = None
    size: int | None = None
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    images_only: bool = False

    def examples(self, path: Path, labels: Path | None = None) -> Examples | StreamedExamples:
        """Labelled examples of a file or folder."""
        return read_examples(path, labels, **self._settings(path))

    def inputs(self, path: Path) -> NamedInputs:
        """Inputs without labels, and a name for each."""
        return read_inputs(path, **self._settings(path))

    def _settings(self, path: Path) -> dict[str, Any]:
        settings = asdict(self)
        if settings.pop("images_only") and not holds_images(path):
            settings["size"] = None
        return settings

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

    def without_numbers(self) -> Reading:
        """The same, but that nothing is normalised: the learner does it."""
        return replace(self, mean=None, std=None)

    def preprocessing(
        self, first: Examples | StreamedExamples, standardise: bool = False
    ) -> Preprocessing:
        """What a new store does to its inputs; first: data of its first task, not normalised.

        standardise: whether mean and deviation are measured on them where none is given.
        """
        given = self.kept() | {"pixels": first.pixels}
        if standardise and self.mean is None and self.std is None:
            return Preprocessing.standardising(first, **given)
        return Preprocessing(**given)

    def of(self, learner: ImpressLearner, task: TaskInfo | None = None) -> Reading:
        """How files are read for a learner, and for a task where one is named.

        Raises InputError for settings that contradict the learner's own.
        """
        own = learner.settings.preprocessing
        if own is None:
            kept = usual_inputs(learner.tasks_) if task is None else inputs_of(task)
            return self.completed(kept)
        name = own.difference(self.kept())
        if name is not None:
            raise InputError(
                f"the store prepares its inputs with {name} {getattr(own, name)!r}, not "
                f"{getattr(self, name)!r}; give it raw inputs, or tell it that they are prepared"
            )
        return replace(self.without_numbers(), shape=own.shape, size=own.size, images_only=True)


def read_prepared(
    learner: ImpressLearner, reading: Reading, path: Path, prepared: bool = False
) -> NamedInputs:
    """Named inputs of a file or folder as the learner's network takes them.

    prepared: whether the file holds them so already.
    """
    if prepared:
        reading = replace(reading.without_numbers(), shape=None, size=None)
    named, own = reading.inputs(path), learner.settings.preprocessing
    if own is not None and not prepared:
        named = replace(named, inputs=own.prepare(named.inputs, named.pixels))
    learner.backbone.check_inputs(named.inputs)
    return named


def shape_of(examples: Examples | StreamedExamples) -> tuple[int, ...]:
    """The shape of one input."""
    if isinstance(examples, StreamedExamples):
        return tuple(examples.dataset[0][0].shape)
    return tuple(examples.inputs.shape[1:])


def note_of(
    examples: Examples | StreamedExamples, reading: Reading, learner: ImpressLearner
) -> dict[str, Any]:
    """What is kept with a task of the data it was learned from."""
    kept = {} if learner.settings.preprocessing else reading.kept()
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
