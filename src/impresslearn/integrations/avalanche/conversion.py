"""A benchmark of Avalanche, its streams of experiences, as a stream of tasks."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import Dataset

from impresslearn.data import Examples, StreamedExamples, as_examples, classes_of
from impresslearn.errors import ImpressLearnError, InputError
from impresslearn.streams.stream import Stream, Task


def task_name(experience: Any) -> str:
    """What the task of an experience is called: experience-0 for the first of its stream."""
    return f"experience-{experience.current_experience}"


def to_stream(benchmark: Any, name: str | None = None) -> Stream:
    """A benchmark as a stream: a task an experience, with what is in the train and test streams.

    Where the benchmark has a `valid_stream`, tasks have validation data. Data are read when a task
    is asked for them, by the benchmark's transforms for training and for evaluation. name: of the
    stream, the benchmark's class by default. Raises InputError where the streams do not have an
    experience each for every task, as where one test set stands for all.
    """
    train, test = _stream(benchmark, "train_stream"), _stream(benchmark, "test_stream")
    valid = list(getattr(benchmark, "valid_stream", None) or [])
    if not train:
        raise InputError("the benchmark's train_stream has no experience")
    for other, experiences in (("test", test), ("valid", valid or train)):
        if len(experiences) != len(train):
            raise InputError(
                f"a stream needs data of each task: expected {len(train)} experiences in "
                f"{other}_stream, as in train_stream, got {len(experiences)}"
            )
    tasks = []
    for place, experience in enumerate(train):
        tasks.append(
            Task(
                task_name(experience),
                classes_of(_labels(experience.dataset)),
                partial(_of_experience, experience, True),
                partial(_of_experience, test[place], False),
                partial(_of_experience, valid[place], False) if valid else None,
            )
        )
    return Stream(name or type(benchmark).__name__, tuple(tasks))


def to_examples(dataset: Any) -> Examples | StreamedExamples:
    """A data set of Avalanche, whose items are (input, label, task label), as examples.

    Held in memory or streamed as `as_examples` says; the task label is left out, the transforms are
    those that are active. Raises InputError as that.
    """
    return as_examples(_Pairs(dataset))


class _Pairs(Dataset):
    """The items of a data set without what follows the label."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        values, label, *_ = self._dataset[place]
        return values, label


def _of_experience(experience: Any, training: bool) -> Examples | StreamedExamples:
    dataset = experience.dataset
    try:
        return to_examples(dataset.train() if training else dataset.eval())
    except ImpressLearnError as error:
        raise type(error)(f"{task_name(experience)}: {error}") from error


def _labels(dataset: Any) -> Any:
    if not hasattr(dataset, "targets"):
        raise InputError(
            "the experiences need labels (dataset.targets); use a benchmark of classification"
        )
    return [int(label) for label in dataset.targets]


def _stream(benchmark: Any, name: str) -> list[Any]:
    if not hasattr(benchmark, name):
        raise InputError(
            f"expected a benchmark of Avalanche with train_stream and test_stream, got a "
            f"{type(benchmark).__name__} without {name}"
        )
    return list(getattr(benchmark, name))
