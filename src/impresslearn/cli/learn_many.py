"""Learns data sets into a store, one by one, leaving out those that are there already.

A task is there already if it bears the name and was learned from the same data, so that a list
that was interrupted carries on where it stopped when it is given again. `prepare_store` first, then
`open_for_learning`, then `learn_jobs`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from impresslearn.cli.data_files import (
    data_of,
    new_preprocessing,
    note_of,
    reader_for,
    shape_of,
    short_fingerprint,
    usual_inputs,
)
from impresslearn.cli.learn_options import DataSet, Job, TrainingOptions
from impresslearn.data import Examples, StreamedExamples, classes_of, to_batches
from impresslearn.data.files import FileReader
from impresslearn.errors import InputError, MissingDataError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.creation import CreationSettings, check_agreement, create_learner
from impresslearn.learner.loading import open_store
from impresslearn.networks.inputs import checked_examples
from impresslearn.state.settings import restored_settings
from impresslearn.state.tasks import TaskInfo
from impresslearn.store import describe_store


@dataclass(frozen=True)
class Outcome:
    """What became of one job.

    learned: False where the task was there already; accuracy: on the test data, in [0, 1];
    unrounded_accuracy: with its coefficients in float32, where they are kept in fewer bits.
    """

    task: TaskInfo
    learned: bool
    accuracy: float | None = None
    unrounded_accuracy: float | None = None


def prepare_store(
    path: Path,
    jobs: Sequence[Job],
    given: FileReader,
    training: TrainingOptions,
    new: CreationSettings,
) -> ImpressLearner | None:
    """Creates the store where there is none, and returns the empty learner it was made from.

    An existing one is left as it is (None). Raises InputError where settings contradict it, and
    where there would be no mask to learn over.
    """
    description = describe_store(path) if path.exists() else None
    if description is not None:
        check_agreement(new, description, path)
    masks = 0 if description is None else description["masks"]
    if not masks and training.masks is None and not training.random_masks:
        raise InputError(
            f"{path} has no masks to learn over: learn its first tasks with --basis, or give it "
            "random masks with --random-masks 20"
        )
    if description is not None:
        return None
    if not path.parent.is_dir():
        raise MissingDataError(f"there is no folder {path.parent} to create {path.name} in")
    raw = replace(given, mean=None, std=None)
    first = raw.examples(jobs[0].train.path, jobs[0].train.labels)
    preprocessing = new_preprocessing(given, first, training.standardise)
    classes = len(classes_of(first.labels))
    if new.classes is None:
        others = (raw.examples(job.train.path, job.train.labels) for job in jobs[1:])
        classes = max([classes, *(len(classes_of(each.labels)) for each in others)])
    settings = {} if training.precision is None else {"precision": training.precision}
    learner = create_learner(new, classes, shape_of(first), preprocessing=preprocessing, **settings)
    learner.save(path)
    return learner


def open_for_learning(
    path: Path, training: TrainingOptions, *, device: str = "cpu", progress: bool | str = "auto"
) -> ImpressLearner:
    """The store's learner with the settings of this run, and as many random masks as it asks for.

    Close it afterwards.
    """
    which = "task_recipe" if training.masks is None else "basis_recipe"
    kept = restored_settings(describe_store(path)["settings"])
    settings: dict[str, Any] = {which: replace(kept[which], **training.recipe())}
    if training.precision is not None:
        settings["precision"] = training.precision
    learner = open_store(path, device=device, progress=progress, **settings)
    try:
        held = sum(info.source == "random" for info in learner.bank_.infos)
        if held < (training.random_masks or 0):
            learner.add_random_masks((training.random_masks or 0) - held)
        return learner
    except BaseException:
        learner.close()
        raise


def learn_jobs(
    learner: ImpressLearner, jobs: Sequence[Job], given: FileReader, training: TrainingOptions
) -> Iterator[Outcome]:
    """Learns one job after another, each committed before the next begins.

    Raises InputError for a task that is there already in another role, or from other data.
    """
    for job in jobs:
        known = learner.tasks_.get(job.name)
        if known is not None:
            _check_same(learner, known, job, given, training)
        else:
            _check_kept(learner, given, training)
            _learn(learner, job, given, training.masks)
        yield _outcome(learner, job, given, known)


def _read(
    learner: ImpressLearner, given: FileReader, data: DataSet, task: TaskInfo | None = None
) -> Examples | StreamedExamples:
    """Labelled examples, as a learner (and a task, where one is named) takes files."""
    return reader_for(learner, given, data.path, task).examples(data.path, data.labels)


def _learn(learner: ImpressLearner, job: Job, given: FileReader, masks: int | None) -> None:
    examples = _read(learner, given, job.train)
    note = note_of(examples, reader_for(learner, given, job.train.path), learner)
    if masks is None:
        learner.learn_task(job.name, examples, note=note)
    elif masks == 1:
        learner.learn_basis(job.name, examples, note=note)
    else:
        learner.learn_homogeneous(job.name, examples, masks, note=note)


def _check_kept(learner: ImpressLearner, given: FileReader, training: TrainingOptions) -> None:
    """Raises InputError for a normalisation that the learner would not keep with its tasks."""
    kept = learner.settings.preprocessing
    asked = training.standardise or given.mean or given.std
    if kept is None and asked and not usual_inputs(learner.tasks_):
        raise InputError(
            "the store was created without preprocessing and would not apply it later; normalise "
            "the data yourself, or create a new store with these settings"
        )
    if kept is not None and training.standardise and not kept.normalises:
        raise InputError(
            "the store was created without a mean and a standard deviation, and all its tasks take "
            "inputs as they are; leave out --standardise, or create a new store with it"
        )


def _check_same(
    learner: ImpressLearner, task: TaskInfo, job: Job, given: FileReader, training: TrainingOptions
) -> None:
    if task.role != training.role:
        raise InputError(
            f"task {job.name!r} is there already, as a {task.role} task, not as a "
            f"{training.role} one"
        )
    kept = data_of(task)
    if kept is None:
        raise InputError(
            f"task {job.name!r} is there already and its history does not tell from which data; "
            "choose another name"
        )
    if short_fingerprint(_read(learner, given, job.train, task)) != kept:
        raise InputError(
            f"task {job.name!r} is there already, learned from other data than {job.train.path} "
            "as it is read now; tasks never change: choose another name, or remove it first"
        )


def _outcome(
    learner: ImpressLearner, job: Job, given: FileReader, known: TaskInfo | None
) -> Outcome:
    info = learner.tasks_[job.name]
    if job.test is None:
        return Outcome(info, known is None)
    examples = _read(learner, given, job.test, info)
    accuracy = learner.score(examples, job.name)
    return Outcome(info, known is None, accuracy, _unrounded_accuracy(learner, info, examples))


def _unrounded_accuracy(learner: ImpressLearner, task: TaskInfo, examples: Any) -> float | None:
    kept = learner.tasks_.learned(task.name).coefficients
    view = learner._state.unrounded_view(learner.tasks_.learned(task.name))
    if view is None or kept is None or kept.precision == "float32":
        return None
    ready = checked_examples(learner.backbone, examples, learner.settings.preprocessing)
    source = to_batches(ready, task.classes, learner.backbone.device)
    return view.accuracy(learner.backbone, source)
