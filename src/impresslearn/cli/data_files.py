"""Data files as a learner reads them, and what tasks note of theirs.

What shapes inputs belongs to the store, which keeps its `Preprocessing` once and applies it itself;
how a file is laid out (label column, header) belongs to the file. In stores from before there was
preprocessing, each task's note has the settings by which its files were read, and they are taken
from there when nothing else is said.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from impresslearn.errors import InputError

if TYPE_CHECKING:
    from impresslearn.data.files import FileReader
    from impresslearn.learner import ImpressLearner
    from impresslearn.store.tasks import TaskInfo


INPUTS_SETTINGS = ("shape", "size", "mean", "std")


def reader_for(
    learner: ImpressLearner, given: FileReader, path: Path, task: TaskInfo | None = None
) -> FileReader:
    """How a file is read for a learner, and for a task where one is named.

    Raises InputError for settings that contradict the learner's own.
    """
    from impresslearn.data.files import holds_images

    preprocessing, settings = learner.settings.preprocessing, inputs_settings(given)
    if preprocessing is None:
        kept = kept_inputs(learner, task)
        return replace(given, **{k: kept[k] for k in INPUTS_SETTINGS if k in kept} | settings)
    name = preprocessing.difference(settings)
    if name is not None:
        raise InputError(
            f"the store prepares its inputs with {name} {getattr(preprocessing, name)!r}, not "
            f"{getattr(given, name)!r}; give it raw inputs, or tell it that they are prepared"
        )
    size = preprocessing.size if holds_images(path) else None
    return replace(
        given,
        shape=preprocessing.shape,
        size=size,
        mean=None,
        std=None,
        columns=preprocessing.columns,
    )


def inputs_settings(given: FileReader) -> dict[str, Any]:
    """What shapes the inputs, as far as it was given: JSON values for a task's note."""
    values = {name: getattr(given, name) for name in INPUTS_SETTINGS}
    return {
        name: list(value) if isinstance(value, (tuple, list)) else value
        for name, value in values.items()
        if value is not None
    }


def kept_inputs(learner: ImpressLearner, task: TaskInfo | None = None) -> dict[str, Any]:
    """How a task's inputs were read, as far as its note says; the first task's if none is named."""
    if task is None:
        task = next((first.info() for first in learner.tasks_.all()), None)
    match task and task.history:
        case {"metrics": {"note": {"inputs": dict(kept)}}}:
            return kept
    return {}
