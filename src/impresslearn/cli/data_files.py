"""Data files as a learner reads them, and what is kept of them with a task.

What shapes inputs belongs to the store, which keeps its `Preprocessing` once and applies it itself;
how a file is laid out (label column, header) belongs to the file. In stores from before there was
preprocessing, each task's note has the settings by which its files were read, and they are taken
from there when nothing else is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from impresslearn.data import Examples, Preprocessing, StreamedExamples, data_fingerprint
from impresslearn.data.files import FileReader, NamedInputs, holds_images
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.state.tasks import TaskInfo, TaskTable

KEPT = ("shape", "size", "mean", "std")
DIGITS = 32
"""Hexadecimal digits of a fingerprint that are kept: 128 bits."""


def reader_for(
    learner: ImpressLearner, given: FileReader, path: Path, task: TaskInfo | None = None
) -> FileReader:
    """How a file is read for a learner, and for a task where one is named.

    Raises InputError for settings that contradict the learner's own.
    """
    preprocessing = learner.settings.preprocessing
    if preprocessing is None:
        kept = usual_inputs(learner.tasks_) if task is None else inputs_of(task)
        unsaid = {name: kept[name] for name in KEPT if name in kept}
        return replace(given, **unsaid | kept_settings(given))
    name = preprocessing.difference(kept_settings(given))
    if name is not None:
        raise InputError(
            f"the store prepares its inputs with {name} {getattr(preprocessing, name)!r}, not "
            f"{getattr(given, name)!r}; give it raw inputs, or tell it that they are prepared"
        )
    size = preprocessing.size if holds_images(path) else None
    return replace(given, shape=preprocessing.shape, size=size, mean=None, std=None)


def read_prepared(
    learner: ImpressLearner, given: FileReader, path: Path, prepared: bool = False
) -> NamedInputs:
    """Named inputs of a file or folder as the learner's network takes them.

    given: as `reader_for` made it; prepared: whether the file holds inputs prepared already.
    """
    if prepared:
        given = replace(given, shape=None, size=None, mean=None, std=None)
    named, preprocessing = given.inputs(path), learner.settings.preprocessing
    if preprocessing is not None and not prepared:
        named = replace(named, inputs=preprocessing.prepare(named.inputs, named.pixels))
    learner.backbone.check_inputs(named.inputs)
    return named


def new_preprocessing(
    given: FileReader, first: Examples | StreamedExamples, standardise: bool = False
) -> Preprocessing:
    """What a new store does to its inputs; first: data of its first task, not normalised.

    standardise: whether mean and deviation are measured on them where none is given.
    """
    settings = kept_settings(given) | {"pixels": first.pixels}
    if standardise and given.mean is None and given.std is None:
        return Preprocessing.standardising(first, **settings)
    return Preprocessing(**settings)


def kept_settings(given: FileReader) -> dict[str, Any]:
    """What shapes the inputs, as far as it was given: JSON values for a task's note."""
    values = {name: getattr(given, name) for name in KEPT}
    return {
        name: list(value) if isinstance(value, (tuple, list)) else value
        for name, value in values.items()
        if value is not None
    }


def shape_of(examples: Examples | StreamedExamples) -> tuple[int, ...]:
    """The shape of one input."""
    if isinstance(examples, StreamedExamples):
        return tuple(examples.dataset[0][0].shape)
    return tuple(examples.inputs.shape[1:])


def note_of(
    examples: Examples | StreamedExamples, given: FileReader, learner: ImpressLearner
) -> dict[str, Any]:
    """What is kept with a task of the data it was learned from."""
    kept = {} if learner.settings.preprocessing else kept_settings(given)
    return {"data": short_fingerprint(examples)} | ({"inputs": kept} if kept else {})


def short_fingerprint(examples: Examples | StreamedExamples) -> str:
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
