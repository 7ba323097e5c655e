"""Rounds a learner's tasks to fewer bits: what that saves, and what it does to accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from impresslearn.checks import check_choice
from impresslearn.coefficients.quantisation import PRECISIONS, store_coefficients
from impresslearn.learner.learner import ImpressLearner
from impresslearn.state.backends import MemoryBackend
from impresslearn.state.settings import restored_settings
from impresslearn.state.state import LearnerState
from impresslearn.state.tasks import LearnedTask


@dataclass(frozen=True)
class Rounding:
    """The bytes and accuracy of one task before and after rounding.

    Accuracies in [0, 1]; None without labelled data for the task.
    """

    task: str
    bytes_before: int
    bytes_after: int
    accuracy_before: float | None
    accuracy_after: float | None


@dataclass(frozen=True)
class Rounded:
    """A learner in memory with rounded tasks, and each task's change."""

    learner: ImpressLearner
    changes: tuple[Rounding, ...]


def rounded(
    learner: ImpressLearner, precision: str, data: Mapping[str, Any] | None = None
) -> Rounded:
    """A copy of a learner whose coefficients take fewer bits; the learner itself is left alone.

    precision: float16, int8, int5, int4 or coded; coefficients that take fewer bits already stay as
    they are, as norm statistics do, and basis tasks have none; former versions are left out. data:
    labelled data by task name, to measure accuracy on. The copy shares the frozen network. Raises
    InputError for an unknown precision and UnknownTaskError for data of a task that was never
    learned.
    """
    check_choice("precision", precision, PRECISIONS)
    data = data or {}
    for name in data:
        learner.tasks_.learned(name)
    backbone = learner.backbone
    tasks = {task.name: _round(task, precision) for task in learner.tasks_.all()}
    bank = learner.bank_.to(backbone.device)
    old = learner._state.backend
    projections = filter(None, map(old.projection, range(1, old.projections() + 1)))
    backend = MemoryBackend(bank, tasks, learner.shared_statistics_, projections)
    settings = restored_settings(learner.settings.plain())
    if settings["granularity"] != "weight":  # whose numbers are coded and nothing else
        settings["precision"] = precision
    if settings["precision"] != "coded":
        settings["max_bytes"] = None  # no price could be raised
    copy = ImpressLearner(backbone, progress=learner.progress, **settings)
    copy._state = LearnerState(backbone, bank, learner.cache_bytes, backend)
    changes = (_change(learner, copy, name, data.get(name)) for name in learner.tasks_)
    return Rounded(copy, tuple(changes))


def _round(task: LearnedTask, precision: str) -> LearnedTask:
    kept = task.coefficients
    if kept is not None and PRECISIONS.index(precision) > PRECISIONS.index(kept.precision):
        kept = store_coefficients(kept.restore(), precision)
    alone = task if task.version == 1 else task.as_version(1)
    return replace(alone, coefficients=kept)


def _change(before: ImpressLearner, after: ImpressLearner, name: str, data: Any) -> Rounding:
    sizes = [each.tasks_[name].bytes for each in (before, after)]
    scores = [None if data is None else each.score(data, name) for each in (before, after)]
    return Rounding(name, *sizes, *scores)
