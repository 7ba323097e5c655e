"""Computes the answers of the routes from a learner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field
from torch import Tensor

from impresslearn import __version__
from impresslearn.data import Inputs, Prepared
from impresslearn.errors import InputError, StoreReplacedError, UnknownTaskError
from impresslearn.inference.prediction_labels import check_task_names
from impresslearn.learner import ImpressLearner
from impresslearn.learner.loading import open_store
from impresslearn.serve.requests import InferRequest, InputsRequest, PredictRequest, TaskName
from impresslearn.store.mixed_batch import mixed_logits

Answer = dict[str, Any]
Label = int | str
Limit = Annotated[int, Query(ge=1, le=1000, description="The size of a page.")]
Offset = Annotated[int, Query(ge=0, le=2**31, description="The number of tasks to skip.")]
# Names are in the query, because they may contain slashes, which a path cannot carry.
Name = Annotated[TaskName, Query(description="The name of a task.")]


class Predictions(BaseModel):
    """One label per row and, if asked for, one row of logits with one number per class."""

    labels: list[Label]
    confidences: list[float] = Field(description="The probability of each row's label.")
    versions: dict[str, int] = Field(description="The version of each task that answered.")
    logits: list[list[float]] | None = None
    unknown: list[bool] | None = Field(
        default=None, description="Whether each row looks unlike its task's inputs; on request."
    )


class Inference(BaseModel):
    """The inferred task of the inputs and its predictions for them."""

    task: str | None = Field(description="The task, or null if the inputs look like no task.")
    best: str = Field(description="The most likely task, even if unknown.")
    unknown: bool
    unknown_probability: float
    entropy: float = Field(description="Of the posterior with unknown, in nats.")
    margin: float = Field(description="Probability of the best minus the next hypothesis's.")
    posterior: dict[str, float] = Field(description="Probabilities, the most likely task first.")
    labels: list[Label] | None = Field(description="One label per row; null if unknown.")
    logits: list[list[float]] | None


class Service:
    """The answers of one learner; max_rows: inputs in one request."""

    def __init__(self, learner: ImpressLearner, max_rows: int) -> None:
        self.learner = learner
        self.max_rows = max_rows
        self._reopening = threading.Lock()

    def answered(self, ask: Callable[[], Any]) -> Any:
        """An answer; where another file has taken the store's place, from that one."""
        learner = self.learner
        try:
            return ask()
        except StoreReplacedError:
            with self._reopening:
                if self.learner is learner:  # no other thread was faster
                    module = None if learner.backbone.spec else learner.backbone.module
                    path = str(learner._store.database.path)
                    self.learner = open_store(
                        path,
                        module=module,
                        device=learner.backbone.device,
                        cache_bytes=learner.cache_bytes,
                        readonly=True,
                        progress=False,
                    )
            return ask()

    def gauges(self) -> dict[str, int]:
        """Numbers of the store for `Metrics`."""
        store = self.learner._store
        hits, misses, resident = store.cache_counts()
        held = {"tasks": len(self.learner.tasks_), "masks": len(self.learner.bank_)}
        cache = {"cache_hits_total": hits, "cache_misses_total": misses, "cache_bytes": resident}
        return held | cache

    def health(self) -> Answer:
        """That the process lives; it does not look at the store."""
        backbone = self.learner.backbone
        about = {"network": backbone.name, "input_shape": backbone.input_shape}
        return {"status": "ok", "version": __version__, **about}

    def ready(self) -> Answer:
        """What is served; fails if the store cannot be read."""
        preprocessing = self.learner.preprocessing_
        return {
            **self.health(),
            "preprocessing": None if preprocessing is None else preprocessing.settings(),
            "tasks": len(self.learner.tasks_),
            "masks": len(self.learner.bank_),
        }

    def tasks(self, limit: Limit = 100, offset: Offset = 0) -> Answer:
        """The tasks, page by page, in the order they were learned."""
        table = self.learner.tasks_
        total, end, tasks = len(table), offset + limit, []
        for name in table.page(offset, limit):
            with suppress(UnknownTaskError):  # another process has removed it since
                info = table[name]
                summary = {"name": name, "role": info.role, "num_classes": len(info.classes)}
                tasks.append(summary | {"bytes": info.bytes, "version": info.version})
        following = end if end < total else None
        return {"total": total, "offset": offset, "next": following, "tasks": tasks}

    def task(self, name: Name) -> Answer:
        """One task in full."""
        return dict(vars(self.learner.tasks_[name]))

    def predict(self, request: PredictRequest) -> Predictions:
        """Labels, and logits on request, of inputs whose tasks are known."""
        inputs = self._prepared(request)
        names = [request.task] * len(inputs) if isinstance(request.task, str) else request.task
        names = check_task_names(names, len(inputs))
        predictions = self._predictions(inputs, names, request.logits)
        if request.unknown:
            predictions.unknown = self._unknown(inputs, names)
        return predictions

    def _unknown(self, inputs: Tensor | Inputs, names: list[str]) -> list[bool]:
        """Whether each row looks unlike the inputs of the task that it is for."""
        flags = [False] * len(names)
        for name in dict.fromkeys(names):
            rows = [row for row, task in enumerate(names) if task == name]
            guesses = self.learner.infer_tasks(Prepared(inputs[rows]), among=[name])
            for row, guess in zip(rows, guesses, strict=True):
                flags[row] = guess.unknown
        return flags

    def infer(self, request: InferRequest) -> Inference:
        """The task that the inputs belong to, and its predictions for them."""
        inputs, among = self._prepared(request), request.among
        if isinstance(among, str) and among not in ("all", "basis", "learned"):
            among = [among]
        guess = self.learner.infer_task(Prepared(inputs), among=among)
        labels = logits = None
        if not guess.unknown:
            predictions = self._predictions(inputs, [guess.best] * len(inputs), request.logits)
            labels, logits = predictions.labels, predictions.logits
        ranked = sorted(guess.posterior.items(), key=lambda item: -item[1])
        names = ("task", "unknown", "entropy", "margin")
        properties = {name: getattr(guess, name) for name in names}
        changed = {"posterior": dict(ranked[: request.top]), "labels": labels, "logits": logits}
        return Inference(**(vars(guess) | properties | changed))

    def _prepared(self, request: InputsRequest) -> Tensor | Inputs:
        """The inputs as the network takes them."""
        several = isinstance(request.inputs, Mapping)
        count = len(next(iter(request.inputs.values())) if several else request.inputs)
        if count > self.max_rows:
            rows = f"{count:,} rows"
            raise InputError(f"{rows} are more than the limit of {self.max_rows:,}; send fewer")
        inputs = Prepared(request.inputs) if request.prepared else request.inputs
        # A copy is aligned as torch aligns memory. A body is not, and matrix products of arrays
        # that are aligned differently may differ in the last bit.
        prepared = self.learner.prepare(inputs)
        return prepared.map(Tensor.clone) if isinstance(prepared, Inputs) else prepared.clone()

    def _predictions(
        self, inputs: Tensor | Inputs, names: list[str], with_logits: bool
    ) -> Predictions:
        """Predictions of rows with one task name each."""
        labels: list[Any] = [None] * len(names)
        confidences = [0.0] * len(names)
        logits: list[Any] = [None] * len(names)
        versions = {}
        for part in mixed_logits(self.learner._store, inputs, names):
            best = part.logits.float().softmax(dim=1).max(dim=1)
            probabilities, places = best.values.tolist(), best.indices.tolist()
            for row, task, place, probability in zip(
                part.rows, part.tasks, places, probabilities, strict=True
            ):
                labels[row], versions[task.name] = task.classes[place], task.version
                confidences[row] = round(probability, 4)
            if with_logits:
                for row, numbers in zip(part.rows, part.logits.double().tolist(), strict=True):
                    logits[row] = numbers
        shown = logits if with_logits else None
        return Predictions(labels=labels, confidences=confidences, versions=versions, logits=shown)
