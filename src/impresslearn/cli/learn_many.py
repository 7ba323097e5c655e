"""Learns data sets into a store, one by one, leaving out those that are there already.

A task is there already if it bears the name and was learned from the same data, so that a list
that was interrupted carries on where it stopped when it is given again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from impresslearn.cli.data_files import inputs_settings, kept_inputs, reader_for
from impresslearn.cli.learn_options import DataSet, Job, TrainingOptions
from impresslearn.cli.new_store import OF_ONE_TASK
from impresslearn.data import (
    Examples,
    StreamedExamples,
    classes_of,
    data_fingerprint,
)
from impresslearn.data.files import FileReader
from impresslearn.errors import InputError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import open_store
from impresslearn.learner.settings import restored_settings
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import LOOKED_AT, spread_rows
from impresslearn.store import describe_store
from impresslearn.store.tasks import TaskInfo, unknown_task

BEYOND = 10.0
"""Standard deviations from the mean."""


def learn_jobs(
    path: Path,
    jobs: Sequence[Job],
    given: FileReader,
    training: TrainingOptions,
    *,
    module: Backbone | nn.Module | None = None,
    device: str = "cpu",
    progress: bool | str = "auto",
    named: bool = False,
) -> Iterator[dict[str, Any]]:
    """Learns one job after another into a store, each committed before the next begins.

    module: the network, where it is the user's own. named: whether the user named each job, so that
    an update of an unknown one is a mistake (UnknownTaskError). Yields what became of each, as
    plain values; of several a task that cannot be learned has the status "failed" and its error,
    as `error`, and the next one is learned. The store gets as many random masks as `training` asks
    for. Raises InputError for a task that is there already in another role, or from other data.
    """
    which = "task_recipe" if training.masks is None else "basis_recipe"
    recipe = restored_settings(describe_store(path)["settings"])[which]
    settings: dict[str, Any] = {which: replace(recipe, **training.recipe()), **training.settings()}
    module = module.module if isinstance(module, Backbone) else module
    with open_store(path, module=module, device=device, progress=progress, **settings) as learner:
        held = sum(info.source == training.mask_source for info in learner.bank_.infos)
        if training.random_masks is not None and held < training.random_masks:
            learner.add_masks(training.random_masks - held, source=training.mask_source)
        sound = []
        for job in jobs:
            try:
                before = _accuracy_before(learner, job, given, training)
                status, more = _learn_or_skip(learner, job, given, training, named)
                told = _outcome(learner, job, given, status)
                told["accuracy_before"] = before if status == "updated" else None
                told |= {"absent_classes": [], "columns_off_scale": 0} | more
                sound.append(job)
            except OF_ONE_TASK as error:
                if len(jobs) == 1:
                    raise
                told = {"task": job.name, "status": "failed", "error": error}
            yield told
        if training.features and sound:
            _learn_features(learner, sound, given)


def _accuracy_before(
    learner: ImpressLearner, job: Job, given: FileReader, training: TrainingOptions
) -> float | None:
    """What a task that may be updated scores on the job's test data now."""
    known = learner.tasks_.get(job.name)
    if known is None or job.test is None or not training.update:
        return None
    try:
        return learner.score(_read(learner, given, job.test, known), job.name)
    except InputError:  # as of classes that the update brings
        return None


def _learn_or_skip(
    learner: ImpressLearner, job: Job, given: FileReader, training: TrainingOptions, named: bool
) -> tuple[str, dict[str, Any]]:
    """Learns or updates a job's task unless it is there already.

    Returns what was done, and "columns_off_scale" (see `_columns_off`), "absent_classes", those of
    an updated task that its new data have none of, or "version", the one that was learned from
    these data already.
    """
    known = learner.tasks_.get(job.name)
    if known is None and named and training.update:
        raise unknown_task(job.name, learner.tasks_)
    if known is not None and training.role == "basis" != known.role:
        raise InputError(
            f"task {job.name!r} is there already, as a learned task, not as a basis one"
        )
    examples = _read(learner, given, job.train, known)
    if known is None:
        _learn(learner, job, examples, given, training)
        return "learned", {"columns_off_scale": _columns_off(learner, examples)}
    kept = _data_of(learner, known)
    if (version := kept.get(_fingerprint(examples))) is not None:
        return "already learned", {"version": version}
    if not training.update or known.role == "basis":
        raise _of_other_data(known, job, kept)
    _learn(learner, job, examples, given, training, known)
    seen = set(classes_of(examples.labels))
    absent = [label for label in known.classes if label not in seen]
    off = _columns_off(learner, examples)
    return "updated", {"absent_classes": absent, "columns_off_scale": off}


def _learn_features(learner: ImpressLearner, jobs: Sequence[Job], given: FileReader) -> None:
    """Learns features from the jobs' inputs, unless the store has some over as many masks."""
    _, projection = learner._store.last_projection()
    if projection is None or projection.num_masks < len(learner.bank_):
        learner.learn_features(*(_read(learner, given, job.train) for job in jobs))


def _read(
    learner: ImpressLearner, given: FileReader, data: DataSet, task: TaskInfo | None = None
) -> Examples | StreamedExamples:
    """Labelled examples, as a learner (and a task, where one is named) takes files."""
    return reader_for(learner, given, data.path, task).examples(*data)


def _learn(
    learner: ImpressLearner,
    job: Job,
    examples: Examples | StreamedExamples,
    given: FileReader,
    training: TrainingOptions,
    known: TaskInfo | None = None,
) -> None:
    """Learns a job's task, or the one that is known further."""
    _check_normalisation(learner, given, training)
    masks = training.masks
    note: dict[str, Any] = {"data": _fingerprint(examples)}
    kept = inputs_settings(reader_for(learner, given, job.train.path, known))
    if learner.settings.preprocessing is None and kept:
        note["inputs"] = kept
    if known is not None:
        learner.update_task(job.name, examples, note=note)
    elif masks is None:
        learner.learn_task(job.name, examples, note=note)
    elif masks == 1:
        learner.learn_basis(job.name, examples, note=note)
    else:
        learner.learn_homogeneous(job.name, examples, masks, note=note)


def _columns_off(learner: ImpressLearner, examples: Examples | StreamedExamples) -> int:
    """Columns (or channels) that are not on the scale that the learner normalises by.

    Of those that are, at most one value in a hundred lies beyond ten standard deviations
    (Chebyshev).
    """
    how = learner.settings.preprocessing
    if how is None or not how.normalises or not isinstance(examples, Examples):
        return 0
    some = spread_rows(examples.inputs, LOOKED_AT)
    values = how.prepare(some, examples.pixels, examples.integers)
    by_column = values.reshape(len(values), values[0].shape[:1].numel(), -1)
    return int(((by_column.abs() > BEYOND).float().mean(dim=(0, 2)) > 0.05).sum())


def _fingerprint(examples: Examples | StreamedExamples) -> str:
    """128 bits of the data's fingerprint, as they are kept with a task."""
    return data_fingerprint(examples)[:32]


def _check_normalisation(
    learner: ImpressLearner, given: FileReader, training: TrainingOptions
) -> None:
    """Raises InputError for a normalisation that the learner would not keep with its tasks."""
    kept = learner.settings.preprocessing
    asked = training.standardise or given.mean or given.std
    if kept is None and asked and not kept_inputs(learner):
        raise InputError(
            "the store was created without preprocessing and would not apply it later; normalise "
            "the data yourself, or create a new store with these settings"
        )
    if kept is not None and training.standardise and not kept.normalises:
        raise InputError(
            "the store was created without a mean and a standard deviation, and all its tasks take "
            "inputs as they are; leave out --standardise, or create a new store with it"
        )


def _of_other_data(task: TaskInfo, job: Job, kept: dict[str, int]) -> InputError:
    """The error for a job whose task is there, learned from other data, or nobody knows which."""
    there = f"task {task.name!r} is there already"
    if not kept:
        return InputError(
            f"{there} and its history does not tell from which data; choose another name"
        )
    line = f"{there}, learned from other data than {job.train.path} as it is read now"
    if task.role == "basis":
        way = "remove it first, which leaves its mask to others, or choose another name"
        return InputError(f"{line}, as a basis task, which cannot change; {way}")
    return InputError(
        f"{line}; learn it further with --update, choose another name, or remove it first"
    )


def _data_of(learner: ImpressLearner, task: TaskInfo) -> dict[str, int]:
    """The fingerprints of the data that a task's versions were learned from, where they are told.

    With the last version of each. Data of a version before are old: to learn from them again would
    undo what came after.
    """
    found: dict[str, int] = {}
    for version in learner.versions(task.name) if task.role == "learned" else (task,):
        match version.history:
            case {"metrics": {"note": {"data": str(kept)}}}:
                found[kept] = version.version
    return found


def _outcome(learner: ImpressLearner, job: Job, given: FileReader, status: str) -> dict[str, Any]:
    """What became of a task; its accuracies, in [0, 1], are those on its test data."""
    task = learner.tasks_[job.name]
    metrics = task.history.get("metrics", {})
    told = {
        "task": task.name,
        "status": status,
        "role": task.role,
        "classes": len(task.classes),
        "bytes": task.bytes,
        "version": task.version,
        "present_version": task.version,
        "examples": metrics.get("examples"),
        "seconds": metrics.get("seconds"),
        "bit_price": (price := task.history.get("recipe", {}).get("bit_price")),
        "bit_price_raised": status != "already learned"
        and price is not None
        and price > learner.settings.bit_price,
        "accuracy": None,
    }
    if job.test is not None:
        try:
            examples = _read(learner, given, job.test, task)
            told["accuracy"] = learner.score(examples, job.name)
        except OF_ONE_TASK as error:
            raise type(error)(
                f"{status}, and kept; its test data cannot be used: {error}"
            ) from None
    return told
