"""Tasks with network weights of their own: how they are learned, predicted, scored and counted.

A method that dedicates weights to every task holds a `DedicatedWeights` and says what a task trains
by a `Trainable`. Every task starts from the frozen network, has norm statistics of its own, and
leaves those before it untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.data import Label, to_batches
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.errors import InputError
from impresslearn.inference.labels import accuracy_of_weights, labels_of
from impresslearn.networks import Backbone
from impresslearn.networks.inputs import checked_examples, checked_inputs, training_examples
from impresslearn.networks.prediction import TaskView, TrainingPhase
from impresslearn.optimisation.loop import Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy
from impresslearn.optimisation.progress import progress_for
from impresslearn.state.tasks import TaskInfo, label_map_bytes, tensor_bytes, unknown_task
from impresslearn.validation import check_name

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Trainable:
    """What one task trains. weights: the network's weights that the parameters make now; kept: the
    weights as a learned task computes with them, and the bytes that they are kept in.
    """

    parameters: Sequence[Tensor]
    weights: Callable[[], Weights]
    kept: Callable[[], tuple[Weights, int]]


@dataclass(frozen=True)
class Training:
    """How a task is trained. progress: as in `ImpressLearner`; title: of the progress."""

    recipe: Recipe
    seed: int
    progress: bool | str
    title: str


class DedicatedWeights:
    """The learned tasks of a method, by name: `infos` (their costs) and `views` (their weights).

    role: what `tasks_` says of them; preprocessing: what is done to all inputs.
    """

    def __init__(self, backbone: Backbone, preprocessing: Preprocessing | None, role: str) -> None:
        self.backbone = backbone
        self.preprocessing = preprocessing
        self.role = role
        self.infos: dict[str, TaskInfo] = {}
        self.views: dict[str, TaskView] = {}

    def learn(
        self,
        name: str,
        data: Any,
        begin: Callable[[], Trainable],
        training: Training,
        phase: TrainingPhase | None = None,
    ) -> None:
        """Learns one task with cross-entropy; norm statistics go to `phase`.

        Raises InputError for a name that is taken, unusable data and too many classes.
        """
        self.check_new(name)
        backbone, recipe = self.backbone, training.recipe
        examples, classes = training_examples(backbone, data, self.preprocessing)
        phase = phase or TrainingPhase.begin(backbone)
        trainable = begin()

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            logits = phase.forward(backbone, trainable.weights(), inputs)
            return cross_entropy(logits[:, : len(classes)], targets, recipe.label_smoothing)

        source = to_batches(examples, classes, backbone.device)
        progress = progress_for(training.progress).titled(f"{training.title} {name}")
        fit(trainable.parameters, loss, source, recipe, training.seed, progress)
        with torch.no_grad():
            weights, size = trainable.kept()
        breakdown = {
            "weights": size,
            "statistics": tensor_bytes((phase.statistics or {}).values()),
            "labels": label_map_bytes(classes),
        }
        self.views[name] = TaskView(weights, phase.statistics, len(classes))
        total = sum(breakdown.values())
        self.infos[name] = TaskInfo(name, self.role, classes, 0, total, breakdown)

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels. Raises UnknownTaskError for a task that was not learned."""
        classes = self._info(task).classes
        values = checked_inputs(self.backbone, inputs, self.preprocessing)
        return labels_of(self.views[task].logits(self.backbone, values), classes)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]. Raises UnknownTaskError for a task that was not learned."""
        classes = self._info(task).classes
        examples = checked_examples(self.backbone, data, self.preprocessing)
        source = to_batches(examples, classes, self.backbone.device)
        return self.views[task].accuracy(self.backbone, source)

    def zero_shot_score(
        self, data: Any, classes: Sequence[Label] | None = None, view: TaskView | None = None
    ) -> float:
        """Accuracy of a view's weights, by default the frozen network's, on an unlearned task."""
        examples = checked_examples(self.backbone, data, self.preprocessing)
        weights, statistics = (view.weights, view.statistics) if view else ({}, None)
        return accuracy_of_weights(self.backbone, weights, statistics, examples, classes)

    def check_new(self, name: str) -> None:
        """Raises InputError unless `name` is new and can be a task's."""
        if check_name(name) in self.infos:
            raise InputError(f"task {name!r} was learned already; choose another name")

    def _info(self, task: str) -> TaskInfo:
        if task not in self.infos:
            raise unknown_task(task, self.infos)
        return self.infos[task]
