"""Data sets to be learned into a store, by name: those that are there already are left out.

A task is there already if it bears the name and was learned from the same data, so that a list
that was interrupted carries on where it stopped when it is worked through again. `prepare_store`
first, then `open_for_work`, then `work_through`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from impresslearn.cli.data_files import (
    Reading,
    data_of,
    fingerprint,
    note_of,
    shape_of,
    usual_inputs,
)
from impresslearn.data import Examples, StreamedExamples, classes_of, to_batches
from impresslearn.errors import InputError, MissingDataError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.creation import Founding, check_agreement, found_learner
from impresslearn.learner.loading import open_store
from impresslearn.networks.inputs import checked_examples
from impresslearn.state.settings import restored_settings
from impresslearn.state.tasks import TaskInfo
from impresslearn.store import describe_store

TASK_FILES = frozenset({".npz", ".csv"})
"""Suffixes of files that hold a task's inputs and labels."""


@dataclass(frozen=True)
class DataSet:
    """A data set by its path; labels: of .npy inputs."""

    path: Path
    labels: Path | None = None

    def read(self, reading: Reading) -> Examples | StreamedExamples:
        """The labelled examples."""
        return reading.examples(self.path, self.labels)


@dataclass(frozen=True)
class Job:
    """A task to learn under a name; test: what its accuracy is measured on."""

    name: str
    train: DataSet
    test: DataSet | None = None


@dataclass(frozen=True)
class Manner:
    """How tasks are learned: coefficients over the bank, or masks of their own.

    masks: how many masks each adds to the bank, from as many seeds; None for coefficients only.
    random_masks: how many random masks the bank is to hold at least. standardise: whether a mean
    and a standard deviation are measured where none are known. precision, recipe: of the tasks of
    this run, where they are not to be the store's; recipe: some fields of a `Recipe`.
    """

    masks: int | None = None
    random_masks: int | None = None
    standardise: bool = False
    precision: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def role(self) -> str:
        """ "basis" or "learned"."""
        return "learned" if self.masks is None else "basis"


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


def data_sets_in(folder: Path) -> dict[str, DataSet]:
    """The data sets of a folder, sorted by name: its sub-folders, its .npz and its .csv files.

    Each is named after the file, without the suffix. Other and hidden files are left out. Raises
    MissingDataError for no folder, InputError for none in it and for two of one name.
    """
    if not folder.is_dir():
        raise MissingDataError(f"there is no folder {folder}")
    found: dict[str, DataSet] = {}
    for path in sorted(folder.iterdir()):
        is_task = path.is_dir() or path.suffix.lower() in TASK_FILES
        if path.name.startswith(".") or not is_task:
            continue
        name = path.name if path.is_dir() else path.stem
        if name in found:
            raise InputError(f"{found[name].path} and {path} would both be task {name!r}")
        found[name] = DataSet(path)
    if not found:
        raise InputError(f"{folder} holds no task; expected sub-folders of images, .npz or .csv")
    return found


def most_classes(jobs: Iterable[Job], reading: Reading) -> int:
    """The largest number of classes that any of the data sets has."""
    counts = (len(classes_of(job.train.read(reading).labels)) for job in jobs)
    return max(counts, default=0)


def prepare_store(
    path: Path, jobs: Sequence[Job], reading: Reading, manner: Manner, given: Founding
) -> ImpressLearner | None:
    """Creates the store where there is none, and returns the empty learner it was made from.

    An existing one is left as it is (None). Raises InputError where settings contradict it, and
    where there would be no mask to learn over.
    """
    description = describe_store(path) if path.exists() else None
    if description is not None:
        check_agreement(given, description, path)
    masks = 0 if description is None else description["masks"]
    if not masks and manner.masks is None and not manner.random_masks:
        raise InputError(
            f"{path} has no masks to learn over yet: learn its first tasks as basis tasks, or let "
            "it start with random masks"
        )
    if description is not None:
        return None
    if not path.parent.is_dir():
        raise MissingDataError(f"there is no folder {path.parent} to create {path.name} in")
    first = jobs[0].train.read(reading.without_numbers())
    preprocessing = reading.preprocessing(first, manner.standardise)
    classes = len(classes_of(first.labels))
    if given.classes is None:
        classes = max(classes, most_classes(jobs[1:], reading))
    own = {} if manner.precision is None else {"precision": manner.precision}
    learner = found_learner(given, classes, shape_of(first), preprocessing=preprocessing, **own)
    learner.save(path)
    return learner


def open_for_work(
    path: Path, manner: Manner, *, device: str = "cpu", progress: bool | str = "auto"
) -> ImpressLearner:
    """The store's learner with the settings of this run, and as many random masks as it asks for.

    Close it afterwards.
    """
    which = "task_recipe" if manner.masks is None else "basis_recipe"
    kept = restored_settings(describe_store(path)["settings"])
    own: dict[str, Any] = {which: replace(kept[which], **manner.recipe)}
    if manner.precision is not None:
        own["precision"] = manner.precision
    learner = open_store(path, device=device, progress=progress, **own)
    try:
        if manner.random_masks:
            held = sum(info.source == "random" for info in learner.bank_.infos)
            if held < manner.random_masks:
                learner.add_random_masks(manner.random_masks - held)
        return learner
    except BaseException:
        learner.close()
        raise


def work_through(
    learner: ImpressLearner, jobs: Sequence[Job], reading: Reading, manner: Manner
) -> Iterator[Outcome]:
    """Learns one job after another, each committed before the next begins.

    Raises InputError for a task that is there already in another role, or from other data.
    """
    for job in jobs:
        if job.name in learner.tasks_:
            own = reading.of(learner, learner.tasks_[job.name])
            _check_same(learner.tasks_[job.name], job, own, manner)
            yield _outcome(learner, job, own, learned=False)
        else:
            own = reading.of(learner)
            yield _learn(learner, job, own, manner)


def _learn(learner: ImpressLearner, job: Job, reading: Reading, manner: Manner) -> Outcome:
    _check_kept(learner, reading, manner)
    examples = job.train.read(reading)
    note = note_of(examples, reading, learner)
    if manner.masks is None:
        learner.learn_task(job.name, examples, note=note)
    elif manner.masks == 1:
        learner.learn_basis(job.name, examples, note=note)
    else:
        learner.learn_homogeneous(job.name, examples, manner.masks, note=note)
    return _outcome(learner, job, reading, learned=True)


def _check_kept(learner: ImpressLearner, reading: Reading, manner: Manner) -> None:
    """Raises InputError for a normalisation that the learner would not keep with its tasks."""
    own, asked = learner.settings.preprocessing, manner.standardise or reading.mean or reading.std
    if own is None and asked and not usual_inputs(learner.tasks_):
        raise InputError(
            "the store was created without preprocessing and would not apply it later; normalise "
            "the data yourself, or create a new store with these settings"
        )
    if own is not None and manner.standardise and not own.normalises:
        raise InputError(
            "the store was created without a mean and a standard deviation, and all its tasks take "
            "inputs as they are; leave out --standardise, or create a new store with it"
        )


def _check_same(task: TaskInfo, job: Job, reading: Reading, manner: Manner) -> None:
    if task.role != manner.role:
        raise InputError(
            f"task {job.name!r} is there already, as a {task.role} task, not as a {manner.role} one"
        )
    kept = data_of(task)
    if kept is None:
        raise InputError(
            f"task {job.name!r} is there already and its history does not tell from which data; "
            "choose another name"
        )
    if fingerprint(job.train.read(reading)) != kept:
        raise InputError(
            f"task {job.name!r} is there already, learned from other data than {job.train.path} "
            "as it is read now; tasks never change: choose another name, or remove it first"
        )


def _outcome(learner: ImpressLearner, job: Job, reading: Reading, learned: bool) -> Outcome:
    info = learner.tasks_[job.name]
    if job.test is None:
        return Outcome(info, learned)
    examples = job.test.read(reading)
    accuracy = learner.score(examples, job.name)
    return Outcome(info, learned, accuracy, _unrounded_accuracy(learner, info, examples))


def _unrounded_accuracy(learner: ImpressLearner, task: TaskInfo, examples: Any) -> float | None:
    kept = learner.tasks_.learned(task.name).coefficients
    view = learner._state.unrounded_view(learner.tasks_.learned(task.name))
    if view is None or kept is None or kept.precision == "float32":
        return None
    ready = checked_examples(learner.backbone, examples, learner.settings.preprocessing)
    source = to_batches(ready, task.classes, learner.backbone.device)
    return view.accuracy(learner.backbone, source)
