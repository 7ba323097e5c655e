"""The hybrid of the paper's appendix: ImpressLearn's body with SupSup's head.

All layers but the last combine the bank's masks; the last gets a binary mask of its own, trained
with edge-popup at the same time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from impresslearn.backbones import Backbone
from impresslearn.bank import MaskBank
from impresslearn.data import as_examples, task_classes, to_batches
from impresslearn.errors import InputError
from impresslearn.mixing import mixed_weights, uniform_coefficients
from impresslearn.objectives import cross_entropy
from impresslearn.prediction import TaskView, TrainingPhase
from impresslearn.progress import progress_for
from impresslearn.sources import PopupScores
from impresslearn.sparsity import ones_per_layer
from impresslearn.tasks import label_map_bytes, unknown_task
from impresslearn.training import Recipe, fit

HYBRID_RECIPE = Recipe(optimizer="adam", lr=0.02, schedule="cosine", epochs=3, min_steps=300)


class Hybrid:
    """Learns coefficients for the hidden layers and a mask for the head, task by task.

    backbone, bank: the frozen network and its masks; sparsity and allocation: of the head's mask,
    as a trained mask of the whole network would have them.
    """

    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank,
        *,
        sparsity: float = 0.9,
        allocation: str = "erdos_renyi",
        recipe: Recipe = HYBRID_RECIPE,
        seed: int = 0,
        progress: bool | str = "auto",
    ) -> None:
        if len(backbone.layers) < 2:
            raise InputError("a hybrid needs a body and a head: at least two maskable layers")
        self.backbone = backbone
        self.bank = bank
        self.recipe = recipe
        self.seed = seed
        self.progress = progress
        self._head_ones = ones_per_layer(backbone.layers, sparsity, allocation)[-1]
        self._tasks: dict[str, tuple[TaskView, tuple]] = {}

    def learn_task(self, name: str, data: Any) -> Hybrid:
        """Learns one task on the bank as it is now."""
        if name in self._tasks:
            raise InputError(f"task {name!r} was learned already; choose another name")
        examples = as_examples(data)
        classes = task_classes(examples.labels, self.backbone.num_classes)
        backbone, head = self.backbone, self.backbone.layers[-1:]
        phase = TrainingPhase.begin(backbone)
        body = uniform_coefficients(backbone.layers, len(self.bank), device=backbone.device)
        alphas = [alpha.requires_grad_(True) for alpha in body.alpha[:-1]]
        scores = PopupScores.create(head, [self._head_ones], self.seed, device=backbone.device)

        def weights() -> dict[str, Tensor]:
            mixed = mixed_weights(self.bank, backbone.weights, body)
            return mixed | scores.weights(backbone.weights)

        def loss(inputs: Tensor, targets: Tensor) -> Tensor:
            logits = phase.forward(backbone, weights(), inputs)
            return cross_entropy(logits[:, : len(classes)], targets, self.recipe.label_smoothing)

        source = to_batches(examples, classes, backbone.device)
        title = progress_for(self.progress).titled(f"hybrid {name}")
        fit([*alphas, *scores.tensors], loss, source, self.recipe, self.seed, title)
        with torch.no_grad():
            view = TaskView(weights(), phase.statistics, len(classes))
        self._tasks[name] = (view, classes)
        return self

    def score(self, data: Any, task: str) -> float:
        """Accuracy in [0, 1]."""
        view, classes = self._task(task)
        source = to_batches(as_examples(data), classes, self.backbone.device)
        return view.accuracy(self.backbone, source)

    def bytes_of(self, task: str) -> int:
        """Bytes a task: body coefficients in float32, one bit a head weight, statistics, labels."""
        view, classes = self._task(task)
        coefficients = 4 * len(self.bank) * (len(self.backbone.layers) - 1)
        head = -(-self.backbone.layers[-1].numel // 8)
        statistics = sum(4 * value.numel() for value in (view.statistics or {}).values())
        return coefficients + head + statistics + label_map_bytes(classes)

    def _task(self, name: str) -> tuple[TaskView, tuple]:
        if name not in self._tasks:
            raise unknown_task(name, self._tasks)
        return self._tasks[name]
