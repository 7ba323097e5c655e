"""What the routes ask of a learner, as answers that are ready to send.

Runs in worker threads. A task is read from the store once a request, so that its labels and its
numbers belong together even if it is replaced meanwhile; nothing is kept but the learner's own
bounded cache of weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import isfinite

import numpy as np
from torch import Tensor

from impresslearn.data import Label
from impresslearn.data.preprocessing import Prepared
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.labels import check_task_names, labels_of
from impresslearn.inference.task_inference import SUPERPOSED_INPUTS, TaskGuess
from impresslearn.learner import ImpressLearner
from impresslearn.networks.prediction import BATCH
from impresslearn.serve.activations import Activations
from impresslearn.serve.errors import RequestError
from impresslearn.serve.queries import InferAsked, PredictAsked
from impresslearn.serve.schemas import (
    Health,
    Inference,
    Predictions,
    TaskDetails,
    TaskPage,
    TaskProbability,
    TaskSummary,
)
from impresslearn.serve.settings import ServeSettings
from impresslearn.state.known_tasks import superposition_bytes
from impresslearn.state.tasks import LearnedTask, TaskInfo

LOGIT_BYTES = 100
"""What a logit takes on its way from a tensor to a Python number and its digits."""


class Service:
    """One learner's answers, within the limits of the settings."""

    def __init__(self, learner: ImpressLearner, settings: ServeSettings) -> None:
        self.learner = learner
        self.settings = settings
        self._activations = Activations(learner.backbone)

    def health(self) -> Health:
        """What is served. Raises StoreError for a store that cannot be read."""
        from impresslearn import __version__

        backbone = self.learner.backbone
        shape = None if backbone.input_shape is None else list(backbone.input_shape)
        raw = self.learner.settings.preprocessing
        return Health(
            version=__version__,
            network=backbone.name,
            input_shape=shape,
            preprocessing=None if raw is None else raw.settings(),
            tasks=len(self.learner.tasks_),
            masks=len(self.learner.bank_),
        )

    def tasks(self, offset: int, limit: int) -> TaskPage:
        """A part of the tasks, in the order they were learned."""
        tasks = self.learner.tasks_
        total, names = len(tasks), list(islice(tasks, offset, offset + limit))
        following = offset + limit if offset + limit < total else None
        return TaskPage(
            total=total, offset=offset, next=following, tasks=list(self._summaries(names))
        )

    def task(self, name: str) -> TaskDetails:
        """Everything about a task but its numbers. Raises UnknownTaskError."""
        info = self.learner.tasks_[name]
        return TaskDetails(
            **_summary(info).model_dump(),
            classes=list(info.classes),
            breakdown=dict(info.breakdown),
            history=dict(info.history),
        )

    def predict(self, asked: PredictAsked) -> Predictions:
        """Labels, and logits if asked for; the same numbers as `ImpressLearner.predict`."""
        values = self._checked(asked.inputs, asked.prepared)
        self._check_pass(values, BATCH, gradient=False)
        if isinstance(asked.task, str):
            return self._predicted(values, asked.task, asked.logits)
        names = check_task_names(asked.task, len(values))
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, []).append(row)
        most = self.settings.max_tasks
        if len(rows) > most:
            line = f"{len(rows):,} tasks are more than the limit of {most:,} a batch; send several"
            raise RequestError(413, line)
        tasks = {name: self.learner.tasks_.learned(name) for name in rows}
        if asked.logits:
            self._check_logits(sum(len(rows[name]) * len(tasks[name].classes) for name in rows))
        labels: list[Label] = [0] * len(names)
        logits: list[list[float]] = [[] for _ in names]
        for name, index in rows.items():
            outputs = self._logits(tasks[name], values[index])
            found = zip(index, _labels(outputs, tasks[name]), outputs.double(), strict=True)
            for row, label, numbers in found:
                labels[row] = label
                logits[row] = numbers.tolist() if asked.logits else []
        return Predictions(labels=labels, logits=logits if asked.logits else None)

    def infer(self, asked: InferAsked) -> Inference:
        """Which task the inputs belong to, and its predictions for them."""
        values = self._checked(asked.inputs, asked.prepared)
        among = asked.among if isinstance(asked.among, str) else list(dict.fromkeys(asked.among))
        self._check_candidates(len(self.learner.tasks_) if isinstance(among, str) else len(among))
        needed = superposition_bytes(self.learner._state, among)
        self._check_memory(needed, "these candidates", "name fewer of them with among")
        self._check_pass(values, SUPERPOSED_INPUTS, gradient=True)
        guess = self.learner.infer_task(Prepared(values), method=asked.method, among=among)
        _check_finite(guess)
        found = None if guess.unknown else self._predicted(values, guess.best, asked.logits)
        return Inference(
            task=guess.task,
            best=guess.best,
            unknown=guess.unknown,
            unknown_probability=guess.unknown_probability,
            entropy=guess.entropy,
            margin=guess.margin,
            posterior=_likely(guess),
            labels=found.labels if found else None,
            logits=found.logits if found else None,
        )

    def _predicted(self, values: Tensor, name: str, with_logits: bool) -> Predictions:
        task = self.learner.tasks_.learned(name)
        if with_logits:
            self._check_logits(len(values) * len(task.classes))
        outputs = self._logits(task, values)
        logits = outputs.double().tolist() if with_logits else None
        return Predictions(labels=_labels(outputs, task), logits=logits)

    def _logits(self, task: LearnedTask, values: Tensor) -> Tensor:
        return self.learner._state.view(task).logits(self.learner.backbone, values)

    def _checked(self, inputs: np.ndarray, prepared: bool) -> Tensor:
        # Aligned as torch aligns: products of arrays that lie otherwise may differ in the last bit.
        return self.learner.prepare(Prepared(inputs) if prepared else inputs).clone()

    def _check_candidates(self, count: int) -> None:
        most = self.settings.max_candidates
        if count > most:
            raise InputError(
                f"{count:,} tasks are more than the limit of {most:,} that an "
                "inference may choose among; name some of them with among"
            )

    def _check_pass(self, values: Tensor, batch: int, gradient: bool) -> None:
        """A pass without a gradient is held to take half of one with it."""
        rows, shape = min(len(values), batch), tuple(values.shape[1:])
        needed = rows * self._activations.bytes_per_input(shape) // (1 if gradient else 2)
        self._check_memory(
            needed, f"{rows:,} inputs of shape {shape}", "send fewer or smaller ones"
        )

    def _check_logits(self, count: int) -> None:
        self._check_memory(count * LOGIT_BYTES, f"{count:,} logits", "send fewer rows")

    def _check_memory(self, needed: int, what: str, advice: str) -> None:
        limit = self.settings.max_memory
        if needed > limit:
            line = f"{what} take {needed:,} bytes, the limit is {limit:,} a request; {advice}"
            raise RequestError(413, line)

    def _summaries(self, names: list[str]) -> Iterator[TaskSummary]:
        for name in names:
            try:
                yield _summary(self.learner.tasks_[name])
            except UnknownTaskError:  # removed since its name was read
                continue


def _summary(info: TaskInfo) -> TaskSummary:
    return TaskSummary.model_validate(
        {
            "name": info.name,
            "role": info.role,
            "num_classes": len(info.classes),
            "num_masks": info.num_masks,
            "bytes": info.bytes,
        }
    )


def _labels(outputs: Tensor, task: LearnedTask) -> list[Label]:
    return labels_of(outputs, task.classes).tolist()


def _likely(guess: TaskGuess) -> list[TaskProbability]:
    ranked = sorted(guess.posterior.items(), key=lambda pair: -pair[1])
    return [
        TaskProbability(task=name, probability=min(1.0, probability))
        for name, probability in ranked
        if probability > 0
    ]


def _check_finite(guess: TaskGuess) -> None:
    if not all(map(isfinite, (guess.unknown_probability, guess.entropy, guess.margin))):
        raise InputError("the tasks' outputs are no finite numbers; the inputs are too large")
