"""Baselines that give every task weights of its own, learned one task after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import as_examples, as_inputs, task_classes, to_batches
from impresslearn.errors import InputError
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView, TrainingPhase
from impresslearn.optimisation.loop import Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy
from impresslearn.optimisation.progress import progress_for
from impresslearn.state.tasks import label_map_bytes, tensor_bytes, unknown_task
from impresslearn.validation import ReadOnlySettings, check_name, check_seed

Weights = dict[str, Tensor]
Own = TypeVar("Own", bound="OwnWeights")


@dataclass(frozen=True)
class Trainable:
    """What one task trains. weights: the network's weights that the parameters make now; kept: the
    weights as a learned task computes with them, and the bytes that they are kept in.
    """

    parameters: Sequence[Tensor]
    weights: Callable[[], Weights]
    kept: Callable[[], tuple[Weights, int]]


@dataclass(frozen=True)
class _Learned:
    view: TaskView
    classes: tuple
    bytes: int


class OwnWeights(ReadOnlySettings, ABC):
    """The verbs of `ImpressLearner` for a method that says what a task trains (`_begin`).

    Every task starts from the frozen network, has norm statistics of its own, and leaves those
    before it untouched.
    """

    title: str

    def __init__(
        self,
        backbone: Backbone,
        recipe: Recipe,
        seed: int = 0,
        progress: bool | str = "auto",
    ) -> None:
        self.backbone = backbone
        self.recipe = recipe
        self.seed = check_seed(seed)
        self.progress = progress
        self._tasks: dict[str, _Learned] = {}

    @abstractmethod
    def _begin(self) -> Trainable:
        """What the next task trains, at its initial values."""

    def learn_task(self: Own, name: str, data: Any) -> Own:
        """Learns one task with cross-entropy. Raises InputError for a name that is taken."""
        if check_name(name) in self._tasks:
            raise InputError(f"task {name!r} was learned already; choose another name")
        examples = as_examples(data)
        classes = task_classes(examples.labels, self.backbone.num_classes)
        phase = TrainingPhase.begin(self.backbone)
        trainable = self._begin()

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            logits = phase.forward(self.backbone, trainable.weights(), inputs)
            return cross_entropy(logits[:, : len(classes)], targets, self.recipe.label_smoothing)

        source = to_batches(examples, classes, self.backbone.device)
        progress = progress_for(self.progress).titled(f"{self.title} {name}")
        fit(trainable.parameters, loss, source, self.recipe, self.seed, progress)
        with torch.no_grad():
            weights, size = trainable.kept()
        size += tensor_bytes((phase.statistics or {}).values())
        view = TaskView(weights, phase.statistics, len(classes))
        self._tasks[name] = _Learned(view, classes, size + label_map_bytes(classes))
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        learned = self._learned(task)
        logits = learned.view.logits(self.backbone, as_inputs(inputs))
        return np.asarray(learned.classes)[logits.argmax(dim=1).cpu().numpy()]

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        learned = self._learned(task)
        source = to_batches(as_examples(data), learned.classes, self.backbone.device)
        return learned.view.accuracy(self.backbone, source)

    def bytes_of(self, task: str) -> int:
        """Bytes that the task alone needs: what it trained, norm statistics and label map."""
        return self._learned(task).bytes

    def _learned(self, task: str) -> _Learned:
        if task not in self._tasks:
            raise unknown_task(task, self._tasks)
        return self._tasks[task]
