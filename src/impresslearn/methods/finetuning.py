"""Fine-tuning, the bounds of continual learning: a network for every task, or one for all tasks.

`FineTuning` forgets nothing and costs a whole network a task: the upper bound in accuracy and in
bytes. `SequentialFineTuning` trains one network on task after task and forgets: the lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from impresslearn.data import Label
from impresslearn.data.preprocessing import Preprocessing
from impresslearn.methods.dedicated import DedicatedWeights, Trainable, Training, Weights
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import TaskView, TrainingPhase
from impresslearn.optimisation.loop import Recipe
from impresslearn.state.tasks import TaskInfo, tensor_bytes
from impresslearn.validation import ReadOnlySettings, check_seed

FINETUNING_RECIPE = Recipe(optimizer="adam", lr=0.001, schedule="cosine", epochs=3, min_steps=300)


class FineTuning(ReadOnlySettings):
    """Trains a copy of all maskable weights for every task, from the backbone's values.

    As an upper bound it wants a backbone made for training: on permuted MNIST Kaiming normal
    weights reach 97.8% after 3 epochs, signed constants of gain 2, which suit masks, 96.1%.
    Settings as of `ImpressLearner`.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        recipe: Recipe = FINETUNING_RECIPE,
        seed: int = 0,
        preprocessing: Preprocessing | None = None,
        progress: bool | str = "auto",
    ) -> None:
        self.backbone = backbone
        self.recipe = recipe
        self.seed = check_seed(seed)
        self.preprocessing = preprocessing
        self.progress = progress
        self._tasks = DedicatedWeights(backbone, preprocessing, "network")

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes are those of the task's weights and what goes with them."""
        return self._tasks.infos

    def learn_task(self, name: str, data: Any) -> FineTuning:
        """Trains a network for the task with cross-entropy."""
        training = Training(self.recipe, self.seed, self.progress, "fine-tuning")
        self._tasks.learn(name, data, lambda: _copies(self.backbone.weights), training)
        return self

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels."""
        return self._tasks.predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]."""
        return self._tasks.score(data, task)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the frozen network on an unlearned task: nothing is shared."""
        return self._tasks.zero_shot_score(data, classes)


class SequentialFineTuning(ReadOnlySettings):
    """Trains one copy of all maskable weights on every task in turn, each from where the last left.

    All tasks share the network whole, its outputs and norm statistics included: class k of every
    task is output k. Nothing is kept of a task but its label map, and nothing is done against
    forgetting. Every task has an optimiser and a schedule of its own. Norm statistics go on being
    gathered, unless the norm policy is "shared": then the first task's stay. Settings as of
    `FineTuning`.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        recipe: Recipe = FINETUNING_RECIPE,
        seed: int = 0,
        preprocessing: Preprocessing | None = None,
        progress: bool | str = "auto",
    ) -> None:
        self.backbone = backbone
        self.recipe = recipe
        self.seed = check_seed(seed)
        self.preprocessing = preprocessing
        self.progress = progress
        self._tasks = DedicatedWeights(backbone, preprocessing, "network")
        self._network = TaskView(backbone.weights, None, backbone.num_classes)

    @property
    def tasks_(self) -> Mapping[str, TaskInfo]:
        """name -> TaskInfo; bytes are what learning the task added: the network with the first."""
        return self._tasks.infos

    def learn_task(self, name: str, data: Any) -> SequentialFineTuning:
        """Trains the network further, with cross-entropy on this task alone."""
        tasks, seed = self._tasks, self.seed + len(self._tasks.infos)
        training = Training(self.recipe, seed, self.progress, "sequential fine-tuning")
        tasks.learn(name, data, lambda: _copies(self._network.weights), training, self._phase())
        self._network = tasks.views[name]
        if len(tasks.infos) > 1:
            info = tasks.infos[name]
            labels = info.breakdown["labels"]
            tasks.infos[name] = replace(info, bytes=labels, breakdown={"labels": labels})
        for other, info in tasks.infos.items():
            tasks.views[other] = self.view(len(info.classes))
        return self

    def view(self, num_classes: int) -> TaskView:
        """The network as it is now, for a task of so many classes, learned or not."""
        return replace(self._network, num_classes=num_classes)

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels, by the network as it is now."""
        return self._tasks.predict(inputs, task)

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1] of the network as it is now."""
        return self._tasks.score(data, task)

    def zero_shot_score(self, data: Any, classes: Sequence[Label] | None = None) -> float:
        """Accuracy of the network as it is now on an unlearned task."""
        return self._tasks.zero_shot_score(data, classes, self._network)

    def _phase(self) -> TrainingPhase:
        statistics = self._network.statistics
        fresh = TrainingPhase.begin(self.backbone, statistics)
        if fresh.mode == "frozen" or statistics is None:
            return fresh
        return TrainingPhase("train", {name: value.clone() for name, value in statistics.items()})


def _copies(weights: Mapping[str, Tensor]) -> Trainable:
    """Copies of all weights to train, kept as they are."""
    copies = {layer: weight.clone().requires_grad_(True) for layer, weight in weights.items()}

    def kept() -> tuple[Weights, int]:
        trained = {layer: weight.detach() for layer, weight in copies.items()}
        return trained, tensor_bytes(trained.values())

    return Trainable(list(copies.values()), lambda: copies, kept)
