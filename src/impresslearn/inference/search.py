"""Searches by what the tasks' superposition predicts: one gradient, pairs, optimised shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn.data import Inputs, TensorBatches
from impresslearn.inference.superposition import Superposition
from impresslearn.networks import Mode
from impresslearn.networks.inputs import spread_rows
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.training.loop import Recipe, fit
from impresslearn.training.objectives import unit_norm_penalty

PAIRED = 512
SUPERPOSED_INPUTS = 512


@dataclass(frozen=True)
class Search:
    """The gradient methods over one superposition; each gives task positions, best first."""

    superposition: Superposition
    objective: Callable[[Tensor], Tensor]
    num_classes: int
    shared: Statistics | None

    @property
    def _mode(self) -> Mode:
        # Running statistics of different tasks cannot be superposed; those of the batch can be had.
        per_task = self.superposition.backbone.has_task_statistics
        return "batch" if per_task else "eval"

    def loss(self, shares: Tensor, inputs: Tensor | Inputs) -> Tensor:
        weights, backbone = self.superposition.weights(shares), self.superposition.backbone
        logits = backbone.forward(weights, inputs.to(backbone.input_dtype), self.shared, self._mode)
        return self.objective(logits[:, : self.num_classes])

    def gradient(self, inputs: Tensor | Inputs, active: Tensor | None = None) -> Tensor:
        """(C,): how the objective changes with each task's share, at equal shares."""
        shares = self.superposition.uniform(active).requires_grad_(True)
        chunk = spread_rows(inputs, SUPERPOSED_INPUTS).to(shares.device)
        return torch.autograd.grad(self.loss(shares, chunk), shares)[0]

    def one_shot(self, inputs: Tensor | Inputs) -> list[int]:
        return self.gradient(inputs).argsort().tolist()

    def halving(self, inputs: Tensor | Inputs) -> list[int]:
        """Every round superposes two tasks at a time and keeps the better one of each pair.

        Superposing all that are left, as a binary search would, fails: the kept half agrees on
        the inputs by chance and outvotes the right task (docs/decisions.md). Beyond `PAIRED`
        tasks one gradient over all of them decides which take part.
        """
        order = self.one_shot(inputs) if self.superposition.num_tasks > PAIRED else None
        active = list(range(self.superposition.num_tasks)) if order is None else order[:PAIRED]
        dropped = [] if order is None else order[PAIRED:]
        while len(active) > 1:
            lost = []
            for pair in zip(active[::2], active[1::2], strict=False):
                slopes = self.gradient(inputs, torch.tensor(pair))
                lost.append(max(pair, key=slopes.tolist().__getitem__))
            dropped = lost + dropped
            active = [task for task in active if task not in set(lost)]
        return active + dropped

    def optimise(
        self, inputs: Tensor | Inputs, recipe: Recipe, penalty: float, seed: int
    ) -> tuple[TaskView, list[int]]:
        shares = self.superposition.uniform(per_layer=True).requires_grad_(True)
        no_labels = torch.zeros(len(inputs), dtype=torch.long, device=shares.device)

        def loss(batch: Tensor | Inputs, _: Tensor) -> Tensor:
            value = self.loss(shares, batch)
            if penalty:
                value = value + penalty * unit_norm_penalty(list(shares.unbind(dim=1)))
            return value

        fit([shares], loss, TensorBatches(inputs.to(shares.device), no_labels), recipe, seed)
        found = shares.detach()
        weights = self.superposition.weights(found)
        view = TaskView(weights, self.shared, self.num_classes, self._mode)
        return view, found.abs().mean(dim=1).argsort(descending=True).tolist()
