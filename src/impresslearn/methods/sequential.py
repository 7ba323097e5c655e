"""Sequential fine-tuning: one network trained on task after task, which forgets.

The lower bound of continual learning beside `FineTuning`, its upper one. All tasks share the
network whole, its outputs and norm statistics included: class k of every task is output k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from impresslearn.data import as_examples, as_inputs, task_classes, to_batches
from impresslearn.errors import InputError
from impresslearn.methods.finetuning import FINETUNING_RECIPE
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TaskView, TrainingPhase
from impresslearn.optimisation.loop import Recipe, fit
from impresslearn.optimisation.objectives import cross_entropy
from impresslearn.optimisation.progress import progress_for
from impresslearn.state.tasks import label_map_bytes, tensor_bytes, unknown_task
from impresslearn.validation import ReadOnlySettings, check_name, check_seed


class SequentialFineTuning(ReadOnlySettings):
    """Trains one copy of all maskable weights on every task in turn, each from where the last left.

    Nothing is kept of a task but its label map, and nothing is done against forgetting. Every task
    has an optimiser and a schedule of its own. Norm statistics go on being gathered, unless the
    norm policy is "shared": then the first task's stay.
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        recipe: Recipe = FINETUNING_RECIPE,
        seed: int = 0,
        progress: bool | str = "auto",
    ) -> None:
        self.backbone = backbone
        self.recipe = recipe
        self.seed = check_seed(seed)
        self.progress = progress
        self._weights = {name: weight.clone() for name, weight in backbone.weights.items()}
        self._statistics: Statistics | None = None
        self._classes: dict[str, tuple] = {}

    def learn_task(self, name: str, data: Any) -> SequentialFineTuning:
        """Trains the network further, with cross-entropy on this task alone."""
        if check_name(name) in self._classes:
            raise InputError(f"task {name!r} was learned already; choose another name")
        examples = as_examples(data)
        classes = task_classes(examples.labels, self.backbone.num_classes)
        phase = self._phase()
        weights = {
            layer: weight.clone().requires_grad_(True) for layer, weight in self._weights.items()
        }

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            logits = phase.forward(self.backbone, weights, inputs)
            return cross_entropy(logits[:, : len(classes)], targets, self.recipe.label_smoothing)

        source = to_batches(examples, classes, self.backbone.device)
        title = progress_for(self.progress).titled(f"sequential fine-tuning {name}")
        seed = self.seed + len(self._classes)
        fit(list(weights.values()), loss, source, self.recipe, seed, title)
        self._weights = {layer: weight.detach() for layer, weight in weights.items()}
        self._statistics = phase.statistics
        self._classes[name] = classes
        return self

    def view(self, num_classes: int) -> TaskView:
        """The network as it is now, for a task of so many classes, learned or not."""
        return TaskView(self._weights, self._statistics, num_classes)

    def predict(self, inputs: Any, task: str) -> np.ndarray:
        """(n,) labels."""
        classes = self._known(task)
        logits = self.view(len(classes)).logits(self.backbone, as_inputs(inputs))
        return np.asarray(classes)[logits.argmax(dim=1).cpu().numpy()]

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1] of the network as it is now."""
        classes = self._known(task)
        source = to_batches(as_examples(data), classes, self.backbone.device)
        return self.view(len(classes)).accuracy(self.backbone, source)

    def bytes_of(self, task: str) -> int:
        """Bytes that learning the task added: the first the network, each its label map."""
        added = label_map_bytes(self._known(task))
        if task == next(iter(self._classes)):
            added += tensor_bytes([*self._weights.values(), *(self._statistics or {}).values()])
        return added

    def _phase(self) -> TrainingPhase:
        fresh = TrainingPhase.begin(self.backbone, self._statistics)
        if fresh.mode == "frozen" or self._statistics is None:
            return fresh
        gathered = {name: value.clone() for name, value in self._statistics.items()}
        return TrainingPhase("train", gathered)

    def _known(self, task: str) -> tuple:
        if task not in self._classes:
            raise unknown_task(task, self._classes)
        return self._classes[task]
