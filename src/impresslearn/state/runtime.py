"""From a task as it is kept to a task that computes.

A `LearnedTask` is numbers and names; here it becomes coefficients, effective weights and a
`TaskView`. Weights of the tasks used last are kept; an old task never changes, so neither do they.
"""

from __future__ import annotations

import torch
from torch import Tensor

from impresslearn.coefficients.mixing import Coefficients, mixed_weights, one_hot_coefficients
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics, TaskView, WeightCache
from impresslearn.state.tasks import LearnedTask


class TaskRuntime:
    """Computes the tasks of one backbone and bank; `cache_bytes` bounds the kept weights."""

    def __init__(self, backbone: Backbone, bank: MaskBank, cache_bytes: int) -> None:
        self.backbone = backbone
        self.bank = bank
        self._cache = WeightCache(cache_bytes)

    def coefficients(self, task: LearnedTask) -> Coefficients:
        """A learned task's coefficients as stored; one-hot on its own mask for a basis task."""
        if task.coefficients is not None:
            return task.coefficients.restore(self.backbone.device)
        position = self.bank.index(str(task.mask))
        layers, device = self.backbone.layers, self.backbone.device
        return one_hot_coefficients(layers, position, task.num_masks, device)

    @torch.no_grad()
    def mix(self, task: LearnedTask) -> dict[str, Tensor]:
        """The task's effective weights, mixed anew."""
        return mixed_weights(self.bank, self.backbone.weights, self.coefficients(task))

    def view(self, task: LearnedTask, shared: Statistics | None) -> TaskView:
        """The task ready to compute, with the shared norm statistics where it has none."""
        weights = self._cache.get(f"{task.name}/{task.version}", lambda: self.mix(task))
        return TaskView(weights, self.statistics(task, shared), len(task.classes))

    def statistics(self, task: LearnedTask, shared: Statistics | None) -> Statistics | None:
        """The norm statistics that the task is computed with."""
        return task.statistics if self.backbone.has_task_statistics else shared
