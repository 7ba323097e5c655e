"""Rounds a learner's tasks to fewer bits: what that saves, and what it does to accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from impresslearn.checks import check_choice
from impresslearn.coefficients.parametrisation import store_coefficients
from impresslearn.coefficients.quantisation import PRECISIONS
from impresslearn.learner.learner import ImpressLearner
from impresslearn.learner.settings import DEFAULT_PRICE, restored_settings
from impresslearn.networks import Backbone
from impresslearn.store import LearnedTask, Store
from impresslearn.store.tasks import encode_task


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
    settings = restored_settings(learner.settings.plain())
    if not learner.settings.coefficient_training.spec.parametrisation.is_sparse:
        settings["precision"] = precision  # sparse integers are coded and nothing else
    if settings["precision"] != "coded":
        settings["max_bytes"] = None  # no price could be raised
        settings["bit_price"] = DEFAULT_PRICE
    copy = ImpressLearner(learner.backbone, progress=learner.progress, **settings)
    copy._store = _rounded_store(learner, precision)
    changes = (_change(learner, copy, name, data.get(name)) for name in learner.tasks_)
    return Rounded(copy, tuple(changes))


def _rounded_store(learner: ImpressLearner, precision: str) -> Store:
    """A copy in memory of what a learner has committed, without former versions."""
    backbone, old = learner.backbone, learner._store
    store = Store(backbone, learner.bank_.to(backbone.device), learner.cache_bytes)
    rows = [encode_task(_round(task, precision, backbone)) for task in learner.tasks_.all()]
    shared = old.rows.meta("shared")
    with store.database.transaction():
        if shared is not None:
            store.rows.write_meta("shared", shared)
        for number in range(1, old.rows.projections() + 1):
            projection = old.rows.projection(number)
            if projection is not None:
                store.rows.add_projection(projection)
    store.commit_many(rows)
    return store


def _round(task: LearnedTask, precision: str, backbone: Backbone) -> LearnedTask:
    stored = task.coefficients
    if stored is not None and PRECISIONS.index(precision) > PRECISIONS.index(stored.precision):
        restored, classes = stored.restore(backbone), len(task.classes)
        stored = store_coefficients(restored, precision, backbone, classes)
    return replace(task.as_version(1), coefficients=stored)


def _change(before: ImpressLearner, after: ImpressLearner, name: str, data: Any) -> Rounding:
    sizes = [each.tasks_[name].bytes for each in (before, after)]
    scores = [None if data is None else each.score(data, name) for each in (before, after)]
    return Rounding(name, *sizes, *scores)
