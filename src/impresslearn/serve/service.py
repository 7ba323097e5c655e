"""Computes the answers of the routes from a learner, within the memory limits of the settings.

The memory that a request takes is known before it is taken: a network that takes pictures of any
size would make hundreds of times as many activations of a small body of pixels.

A task is read from the store once a request, so that its labels and its numbers belong together
even if it is replaced meanwhile; nothing is kept but the learner's own bounded cache of weights.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from math import inf, isfinite, prod
from typing import Annotated, Any

import numpy as np
import torch
from fastapi import Query
from starlette.exceptions import HTTPException
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from impresslearn import __version__
from impresslearn.data.inputs import one_tensor
from impresslearn.data.preprocessing import Prepared
from impresslearn.errors import InputError, UnknownTaskError
from impresslearn.inference.labels import check_task_names, labels_of
from impresslearn.inference.search import SUPERPOSED_INPUTS
from impresslearn.learner import ImpressLearner
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import BATCH
from impresslearn.serve.limits import ServeSettings
from impresslearn.serve.schemas import (
    Health,
    Inference,
    InferRequest,
    InputsRequest,
    PageQuery,
    Predictions,
    PredictRequest,
    Removed,
    TaskDetails,
    TaskPage,
    TaskProbability,
    TaskQuery,
    TaskSummary,
    TaskVersions,
    VersionQuery,
)
from impresslearn.state.candidates import superposition_bytes
from impresslearn.state.tasks import TaskInfo

PROBED_SIZE = 64
SUPERPOSED_BYTES = 200 * 10**6
"""What the tasks of an inference may take that holds them all at once."""
LOGIT_BYTES = 100
"""What a logit takes on its way from a tensor to a Python number and its digits."""


class Service:
    """One learner's answers, within the limits of the settings."""

    def __init__(self, learner: ImpressLearner, settings: ServeSettings) -> None:
        self.learner = learner
        self.settings = settings
        self._bytes_per_input = lru_cache(256)(partial(activation_bytes, learner.backbone))

    def health(self) -> Health:
        """What is served, and that its store can be read."""
        backbone = self.learner.backbone
        raw = self.learner.settings.preprocessing
        return Health(
            version=__version__,
            network=backbone.name,
            input_shape=None if backbone.input_shape is None else list(backbone.input_shape),
            preprocessing=None if raw is None else raw.settings(),
            tasks=len(self.learner.tasks_),
            masks=len(self.learner.bank_),
        )

    def tasks(self, query: Annotated[PageQuery, Query()]) -> TaskPage:
        """The tasks, page by page, in the order they were learned."""
        table, start, end = self.learner.tasks_, query.offset, query.offset + query.limit
        total, tasks = len(table), []
        for name in list(islice(table, start, end)):
            with suppress(UnknownTaskError):  # removed since its name was read
                tasks.append(TaskSummary(**_fields(table[name])))
        return TaskPage(total=total, offset=start, next=end if end < total else None, tasks=tasks)

    def task(self, query: Annotated[TaskQuery, Query()]) -> TaskDetails:
        """One task. Its name stands in the query, because a path does not carry every name."""
        return TaskDetails(**_fields(self.learner.tasks_[query.name]))

    def versions(self, query: Annotated[TaskQuery, Query()]) -> TaskVersions:
        """All versions of a task."""
        found = self.learner.versions(query.name)
        return TaskVersions(versions=[TaskDetails(**_fields(each)) for each in found])

    def restore(self, query: Annotated[VersionQuery, Query()]) -> TaskDetails:
        """Puts a former version of a task back, bit for bit, as its next version."""
        self.learner.restore_task(query.name, query.version)
        return TaskDetails(**_fields(self.learner.tasks_[query.name]))

    def remove(self, query: Annotated[TaskQuery, Query()]) -> Removed:
        """Takes a task out with all its versions; masks stay."""
        self.learner.remove_task(query.name)
        return Removed(removed=query.name)

    def predict(self, request: PredictRequest) -> Predictions:
        """Labels, and logits if asked for; the same numbers as `ImpressLearner.predict`."""
        values = self._prepared(request, BATCH, gradient=False)
        names = [request.task] * len(values) if isinstance(request.task, str) else request.task
        return self._predicted(values, check_task_names(names, len(values)), request.logits)

    def infer(self, request: InferRequest) -> Inference:
        """Which task the inputs belong to, and its predictions for them."""
        among = request.among
        among = among if isinstance(among, str) else list(dict.fromkeys(among))
        count = len(self.learner.tasks_) if isinstance(among, str) else len(among)
        if count > (most := self.settings.max_inference_tasks):
            line = f"{count:,} tasks are more than the limit of {most:,} that an inference may"
            raise InputError(f"{line} choose among; name some of them with among")
        if request.method not in ("auto", "exhaustive"):  # which hold a few tasks at a time
            needed = superposition_bytes(self.learner._state, among)
            advice = 'name fewer of them with among, or use method "exhaustive"'
            self._check_memory(needed, "these tasks", advice, SUPERPOSED_BYTES)
        values = self._prepared(request, SUPERPOSED_INPUTS, gradient=True)
        guess = self.learner.infer_task(Prepared(values), method=request.method, among=among)
        if not all(map(isfinite, (guess.unknown_probability, guess.entropy, guess.margin))):
            raise InputError("the tasks' outputs are no finite numbers; the inputs are too large")
        found = Predictions(labels=[], versions={})
        if not guess.unknown:
            found = self._predicted(values, [guess.best] * len(values), request.logits)
        ranked = [
            TaskProbability(task=name, probability=min(1.0, probability))
            for name, probability in sorted(guess.posterior.items(), key=lambda pair: -pair[1])
            if probability > 0
        ][: request.top]
        verdict = ("task", "best", "unknown", "unknown_probability", "entropy", "margin")
        return Inference(
            **{name: getattr(guess, name) for name in verdict},
            posterior=ranked,
            labels=None if guess.unknown else found.labels,
            logits=found.logits,
        )

    def _predicted(self, values: Tensor, names: list[str], with_logits: bool) -> Predictions:
        """Labels, and logits on request, of rows whose tasks are named."""
        distinct = dict.fromkeys(names)
        if len(distinct) > (most := self.settings.max_tasks):
            line = f"{len(distinct):,} tasks are more than the limit of {most:,} a batch"
            raise HTTPException(413, f"{line}; send several")
        tasks = {name: self.learner.tasks_.learned(name) for name in distinct}
        if with_logits:
            count = sum(len(tasks[name].classes) for name in names)
            self._check_memory(count * LOGIT_BYTES, f"{count:,} logits", "send fewer rows")
        labels, logits = np.empty((2, len(names)), dtype=object)
        of_rows = np.array(names, dtype=object)
        for name, task in tasks.items():
            rows = np.flatnonzero(of_rows == name)
            view = self.learner._state.view(task)
            outputs = view.logits(self.learner.backbone, values[rows])
            labels[rows] = labels_of(outputs, task.classes)
            if with_logits:
                for row, numbers in zip(rows, outputs.double().tolist(), strict=True):
                    logits[row] = numbers
        return Predictions(
            labels=labels.tolist(),
            versions={name: task.version for name, task in tasks.items()},
            logits=logits.tolist() if with_logits else None,
        )

    def _prepared(self, request: InputsRequest, batch: int, gradient: bool) -> Tensor:
        """The inputs as the network takes them, if their rows and activations are few enough.

        A pass without a gradient is held to take half of one with it.
        """
        inputs, most = request.inputs, self.settings.max_rows
        if len(inputs) > most:
            line = f"{len(inputs):,} rows are more than the limit of {most:,} a request"
            raise HTTPException(413, line)
        # Aligned as torch aligns: products of arrays that lie otherwise may differ in the last bit.
        given = Prepared(inputs) if request.prepared else inputs
        values = one_tensor(self.learner.prepare(given)).clone()
        rows, shape = min(len(values), batch), tuple(values.shape[1:])
        needed = rows * self._bytes_per_input(shape) // (1 if gradient else 2)
        self._check_memory(
            needed, f"{rows:,} inputs of shape {shape}", "send fewer or smaller ones"
        )
        return values

    def _check_memory(self, needed: int, what: str, advice: str, most: float = inf) -> None:
        limit = min(self.settings.max_memory, most)
        if needed > limit:
            line = f"{what} take {needed:,} bytes, the limit is {limit:,} a request; {advice}"
            raise HTTPException(413, line)


def _fields(info: TaskInfo) -> dict[str, Any]:
    return {**vars(info), "num_classes": len(info.classes)}


def activation_bytes(backbone: Backbone, shape: tuple[int, ...]) -> int:
    """What one input of a shape leaves for a gradient; 0 for a shape that does not fit.

    Measured on a few small inputs and scaled. Without a gradient a pass takes less; a third was
    measured for a ResNet-18.
    """
    small = (*shape[:1], *(min(size, PROBED_SIZE) for size in shape[1:]))
    for probe in (small, shape):  # a network of a fixed size takes no smaller one
        try:  # without what a batch of any size keeps
            kept = _kept_bytes(backbone, (3, *probe)) - _kept_bytes(backbone, (2, *probe))
        except (RuntimeError, ValueError, TypeError):
            continue
        return kept * prod(shape) // prod(probe)
    return 0


def _kept_bytes(backbone: Backbone, shape: tuple[int, ...]) -> int:
    sizes = []

    def note(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor

    weights = {name: each.detach().requires_grad_() for name, each in backbone.weights.items()}
    inputs = torch.zeros(shape, dtype=backbone.input_dtype, device=backbone.device)
    with torch.enable_grad(), saved_tensors_hooks(note, lambda tensor: tensor):
        backbone.forward(weights, inputs)
    return sum(sizes)
