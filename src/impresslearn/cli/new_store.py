"""Creates a store for the tasks that are to be learned: its network, inputs and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from impresslearn.cli.data_files import inputs_settings
from impresslearn.cli.learn_options import DataSet, Job, TrainingOptions
from impresslearn.cli.output import info
from impresslearn.data import Examples, Inputs, Preprocessing, StreamedExamples, classes_of
from impresslearn.data.files import FileReader
from impresslearn.data.inputs import one_tensor
from impresslearn.data.labels import task_classes
from impresslearn.errors import InputError, MissingDataError, TrainingError, UnknownTaskError
from impresslearn.learner import ImpressLearner
from impresslearn.learner.creation import (
    DEFAULT_PRESET,
    CreationSettings,
    check_agreement,
    create_learner,
)
from impresslearn.learner.presets import preset as find_preset
from impresslearn.networks import Backbone, adapt
from impresslearn.networks.inputs import (
    LOOKED_AT,
    spread_places,
    spread_rows,
    unusual_scale,
)
from impresslearn.store import describe_store

MEASURED = 200
"""Tasks that mean and deviation are measured on, spread over those that are given."""
MEASURED_BYTES = 4 * 1024**2
"""What the examples take that are held of each for it."""
OF_ONE_TASK = (InputError, MissingDataError, TrainingError, UnknownTaskError)
"""Errors that say nothing about the next task."""


def prepare_store(
    path: Path,
    jobs: Sequence[Job],
    given: FileReader,
    training: TrainingOptions,
    new: CreationSettings,
    network: Backbone | nn.Module | None = None,
    tell: Callable[[str], None] = info,
) -> ImpressLearner | None:
    """Creates the store where there is none, and returns the empty learner it was made from.

    network: the user's own; tell: takes a line about inputs of an unusual scale. An existing store
    is left as it is (None). Raises InputError where settings contradict it, and where there would
    be no mask to learn over.
    """
    description = describe_store(path) if path.exists() else None
    if description is not None:
        check_agreement(new, description, path, training.settings())
    chosen = find_preset(new.preset or DEFAULT_PRESET)
    masks = chosen.masks
    granularity = new.granularity or chosen.more.get("granularity")
    if description is not None:
        masks, granularity = description["masks"], description["settings"]["granularity"]
    over_masks = granularity not in ("readout", "weight")  # which need none
    if granularity != "readout" and training.features:
        raise InputError("--features is for stores of readouts: --preset few_labels")
    if granularity == "weight" and training.random_masks:
        raise InputError("numbers on single weights use no masks; leave --random-masks out")
    if over_masks and not masks and training.masks is None and not training.random_masks:
        raise InputError(
            f"{path} has no masks to learn over: learn its first tasks with --basis, or give it "
            "random masks with --random-masks 20"
        )
    if description is not None:
        return None
    if not path.parent.is_dir():
        raise MissingDataError(f"there is no folder {path.parent} to create {path.name} in")
    raw = replace(given, mean=None, std=None)
    place, first = _first_usable(raw, jobs)
    classes = len(classes_of(first.labels))
    if new.classes is None and network is None:
        classes = max([classes, *(_num_classes(raw, job) for job in jobs)])
    columns = first_names(raw, [job.train for job in jobs])
    others = [jobs[i].train for i in spread_places(len(jobs), MEASURED) if i != place]
    like = _readable(raw, others)
    preprocessing = new_preprocessing(given, first, like, training.standardise, columns)
    tell_of_scale(first, preprocessing, tell)
    shape, settings = shape_of(first), training.settings()
    network = adapted(network, shape)
    learner = create_learner(new, classes, shape, preprocessing, network, **settings)
    learner.save(path)
    return learner


def _first_usable(raw: FileReader, jobs: Sequence[Job]) -> tuple[int, Examples | StreamedExamples]:
    """Place and examples of the first job that can be learned; the store is made for such data.

    Raises the first job's error where there is none.
    """
    errors = []
    for place, job in enumerate(jobs):
        try:
            examples = raw.examples(*job.train)
            task_classes(examples.labels, None)
            return place, examples
        except OF_ONE_TASK as error:
            errors.append(error)
    raise errors[0]


def _readable(raw: FileReader, data: Iterable[DataSet]) -> Iterator[Examples | StreamedExamples]:
    """Those of the data that can be read; of the others it is told when they are learned."""
    for each in data:
        with suppress(*OF_ONE_TASK):
            yield raw.examples(*each)


def first_names(raw: FileReader, data: Iterable[DataSet]) -> tuple[str, ...] | None:
    """The names of the columns of the first table that has some."""
    for each in data:
        try:
            names = raw.column_names(*each)
        except OF_ONE_TASK:  # which is told when it is learned
            continue
        if names is not None:
            return names
    return None


def tell_of_scale(
    data: Examples | StreamedExamples, preprocessing: Preprocessing, tell: Callable[[str], None]
) -> None:
    """Says once, in the command line's words, what the library warns of."""
    if not preprocessing.normalises and (line := unusual_scale(data)):
        tell(f"{line}: a new store with --standardise is likely to learn them better")


def _num_classes(raw: FileReader, job: Job) -> int:
    """Classes of a job's data; 0 where they cannot be read, which is told when it is learned."""
    try:
        return len(classes_of(raw.examples(*job.train).labels))
    except OF_ONE_TASK:
        return 0


def shape_of(examples: Examples | StreamedExamples) -> torch.Size:
    """The shape of one input."""
    if isinstance(examples, StreamedExamples):
        return torch.Size(examples.dataset[0][0].shape)
    return one_tensor(examples.inputs)[0].shape


def adapted(network: Backbone | nn.Module | None, shape: torch.Size) -> Backbone | None:
    """The user's own network for inputs of this shape."""
    return adapt(network, input_shape=shape) if isinstance(network, nn.Module) else network


def new_preprocessing(
    given: FileReader,
    first: Examples | StreamedExamples,
    others: Iterable[Examples | StreamedExamples] = (),
    standardise: bool = False,
    columns: Sequence[str] | None = None,
) -> Preprocessing:
    """What a new store does to its inputs; first, others: data of its tasks, not normalised.

    standardise: whether mean and deviation are measured on them where none is given. columns: the
    names of their tables'.
    """
    settings = inputs_settings(given) | {"pixels": first.pixels, "columns": columns}
    if standardise and given.mean is None and given.std is None:
        return Preprocessing.standardising(_pooled(first, others), **settings)
    return Preprocessing(**settings)


def _pooled(
    first: Examples | StreamedExamples, others: Iterable[Examples | StreamedExamples]
) -> Examples | StreamedExamples:
    """Samples of all that are like the first: what hardly varies in one task may in the others."""
    if not isinstance(first, Examples) or isinstance(first.inputs, Inputs):
        return first
    form = first.inputs.shape[1:], first.pixels
    held = (each for each in others if isinstance(each, Examples))
    alike = (each for each in held if (one_tensor(each.inputs).shape[1:], each.pixels) == form)
    samples = list(map(_sample, alike))
    if not samples:
        return first
    inputs = torch.cat([_sample(first), *samples])
    return replace(first, inputs=inputs, labels=np.zeros(len(inputs)))


def _sample(examples: Examples) -> torch.Tensor:
    """Inputs spread over the examples, up to `LOOKED_AT` and `MEASURED_BYTES`."""
    row = one_tensor(examples.inputs)[0]
    most = max(1, MEASURED_BYTES // (row.numel() * row.element_size()))
    return one_tensor(spread_rows(examples.inputs, min(LOOKED_AT, most)))
