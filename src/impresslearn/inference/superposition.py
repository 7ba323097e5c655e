"""Superposition: many tasks in one set of weights, Σ_c β_c W_c, and the two searches by it.

A mixture of masks is a point in coefficient space, so a weighted sum of mixtures is again
coefficients over the same bank: one mix gives its weights and one backward pass the derivative for
every task, whether there are ten tasks or ten thousand. `one_shot` ranks tasks by that derivative
(Wortsman et al. 2020, "Supermasks in Superposition"); `alpha` optimises the shares per layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import Coefficients
from impresslearn.data import Inputs, TensorBatches
from impresslearn.inference.exhaustive import coefficients_of
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone, Mode
from impresslearn.networks.inputs import spread_rows
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.training.loop import Recipe, fit, unit_norm_penalty

# Inputs of one gradient, at most.
SUPERPOSED_INPUTS = 512
# A loss of logits (n, num_classes).
Objective = Callable[[Tensor], Tensor]


class Superposition:
    """The weighted sum of tasks' weights, differentiable in the tasks' shares.

    - backbone, bank: the network and its masks.
    - tasks: mixtures of masks without residual, or layer name -> weights of tasks that are none.
    - num_classes: the most classes of any task.
    - shared: norm statistics that all tasks share, or None.
    """

    def __init__(
        self,
        backbone: Backbone,
        bank: MaskBank,
        tasks: Sequence[Coefficients | Mapping[str, Tensor]],
        num_classes: int,
        shared: Statistics | None = None,
    ) -> None:
        self.backbone, self.bank, self.num_tasks = backbone, bank, len(tasks)
        self.num_classes, self.shared = num_classes, shared
        self._dense: dict[int, Mapping[str, Tensor]] = {}
        self._mixed: list[int] = []
        mixtures: list[Coefficients] = []
        for position, task in enumerate(tasks):
            if isinstance(task, Coefficients):
                self._mixed.append(position)
                mixtures.append(task)
            else:
                self._dense[position] = task
        self._alphas: list[Tensor] = []
        for place, layer in enumerate(bank.layers if mixtures else ()):
            # Not the whole bank: it may have grown since these tasks were learned.
            depth = max(len(mixture.alpha[place]) for mixture in mixtures)
            weights = backbone.weights[layer.name]
            self._alphas.append(coefficients_of(mixtures, place, depth, weights))

    def weights(self, shares: Tensor) -> dict[str, Tensor]:
        """Layer name -> Σ_c β_c W_c. `shares`: (C,), or (C, layers) for a share per layer."""
        layers = self.bank.layers
        frozen = [self.backbone.weights[layer.name] for layer in layers]
        by_layer = shares if shares.dim() == 2 else shares[:, None].expand(-1, len(layers))
        total = [torch.zeros_like(weights) for weights in frozen]
        if self._mixed:
            alphas, bits = [], []
            for number, stack in enumerate(self._alphas):
                alphas.append(torch.tensordot(by_layer[self._mixed, number], stack, dims=1))
                bits.append(self.bank.bits(number, len(alphas[-1])))
            total = list(mix_layers(bits, alphas, frozen))
        for position, dense in self._dense.items():
            for number, layer in enumerate(layers):
                total[number] = total[number] + by_layer[position, number] * dense[layer.name]
        return {layer.name: weights for layer, weights in zip(layers, total, strict=True)}

    def uniform(self, per_layer: bool = False) -> Tensor:
        """Equal shares of all tasks, (C,), or (C, layers)."""
        shares = torch.full(
            (self.num_tasks,), 1 / self.num_tasks, dtype=torch.float32, device=self.backbone.device
        )
        return shares[:, None].repeat(1, len(self.bank.layers)) if per_layer else shares

    def view(self, shares: Tensor) -> TaskView:
        """The superposed network, ready to compute."""
        # Tasks' own running statistics cannot be superposed; the statistics of the batch serve.
        mode: Mode = "batch" if self.backbone.has_task_statistics else "eval"
        return TaskView(self.weights(shares), self.shared, self.num_classes, mode)

    def _logits(self, shares: Tensor, inputs: Tensor | Inputs) -> Tensor:
        view, inputs = self.view(shares), inputs.to(self.backbone.input_dtype)
        logits = self.backbone.forward(view.weights, inputs, self.shared, view.mode)
        return logits[:, : self.num_classes]

    def one_shot(self, inputs: Tensor | Inputs, objective: Objective) -> Tensor:
        """(C,): how the objective changes with each task's share, at equal shares."""
        shares = self.uniform().requires_grad_(True)
        chunk = spread_rows(inputs, SUPERPOSED_INPUTS).to(shares.device)
        return torch.autograd.grad(objective(self._logits(shares, chunk)), shares)[0]

    def alpha(
        self,
        inputs: Tensor | Inputs,
        objective: Objective,
        recipe: Recipe,
        penalty: float,
        seed: int,
    ) -> tuple[TaskView, list[int]]:
        """The network of optimised shares, and the tasks' positions, largest share first."""
        shares = self.uniform(per_layer=True).requires_grad_(True)
        no_labels = torch.zeros(len(inputs), dtype=torch.long, device=shares.device)

        def loss(batch: Tensor | Inputs, _: Tensor) -> Tensor:
            value = objective(self._logits(shares, batch))
            if penalty:
                value = value + penalty * unit_norm_penalty(list(shares.unbind(dim=1)))
            return value

        fit([shares], loss, TensorBatches(inputs.to(shares.device), no_labels), recipe, seed)
        final = shares.detach()
        return self.view(final), final.abs().mean(dim=1).argsort(descending=True).tolist()
