"""Superposition: many tasks in one set of weights, Σ_c β_c W_c, and the two searches by it.

A mixture of masks is a point in coefficient space, so a weighted sum of mixtures is again
coefficients over the same bank: one mix gives its weights and one backward pass the derivative for
every task, whether there are ten tasks or ten thousand. `one_shot` ranks tasks by that derivative
(Wortsman et al. 2020, "Supermasks in Superposition"); `alpha` optimises the shares per layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from impresslearn.data import Inputs, TensorBatches
from impresslearn.inference.exhaustive import Mixture
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone, Mode
from impresslearn.networks.inputs import spread_rows
from impresslearn.networks.layers import MaskableLayer
from impresslearn.networks.prediction import Statistics, TaskView
from impresslearn.training.loop import Recipe, fit
from impresslearn.training.objectives import unit_norm_penalty

SUPERPOSED_INPUTS = 512
"""Inputs of one gradient, at most."""


class Superposition:
    """The weighted sum of tasks' weights, differentiable in the tasks' shares.

    - `tasks`: mixtures of masks without residual, or layer name -> weights of tasks that are none.
    """

    def __init__(
        self, backbone: Backbone, bank: MaskBank, tasks: Sequence[Mixture | Mapping[str, Tensor]]
    ) -> None:
        self.backbone = backbone
        self.bank = bank
        self.num_tasks = len(tasks)
        self._dense: dict[int, Mapping[str, Tensor]] = {}
        self._mixed: list[int] = []
        mixtures = []
        for position, task in enumerate(tasks):
            if isinstance(task, Mixture):
                self._mixed.append(position)
                mixtures.append(task)
            else:
                self._dense[position] = task
        by_unit = any(mixture.by_unit or mixture.output_scale for mixture in mixtures)
        alphas = [_by_unit(m, bank.layers) if by_unit else m.alpha for m in mixtures]
        # (C, N) or (C, N, units) a layer, zero for masks that a task was learned without.
        self._alphas = [
            pad_sequence(list(layer), batch_first=True) for layer in zip(*alphas, strict=True)
        ]

    def weights(self, shares: Tensor) -> dict[str, Tensor]:
        """Layer name -> Σ_c β_c W_c. `shares`: (C,), or (C, layers) for a share per layer."""
        names = [layer.name for layer in self.bank.layers]
        frozen = [self.backbone.weights[name] for name in names]
        columns = [shares if shares.dim() == 1 else shares[:, i] for i in range(len(names))]
        if self._mixed:
            alphas = [
                torch.tensordot(column[self._mixed], stack, dims=1)
                for column, stack in zip(columns, self._alphas, strict=True)
            ]
            bits = [self.bank.bits(number, len(alpha)) for number, alpha in enumerate(alphas)]
            total = dict(zip(names, mix_layers(bits, alphas, frozen), strict=True))
        else:
            total = dict(zip(names, map(torch.zeros_like, frozen), strict=True))
        for position, dense in self._dense.items():
            for name, column in zip(names, columns, strict=True):
                total[name] = total[name] + column[position] * dense[name]
        return total

    def uniform(self, per_layer: bool = False) -> Tensor:
        """Equal shares of all tasks, (C,), or (C, layers)."""
        shares = torch.full((self.num_tasks,), 1 / self.num_tasks, device=self.backbone.device)
        return shares[:, None].repeat(1, len(self.bank.layers)) if per_layer else shares


def _by_unit(mixture: Mixture, layers: Sequence[MaskableLayer]) -> list[Tensor]:
    """The same weights as alphas per unit, (N, units) a layer, with output scales folded in."""
    alphas = []
    for place, (layer, alpha) in enumerate(zip(layers, mixture.alpha, strict=True)):
        alpha = alpha if alpha.dim() == 2 else alpha[:, None].expand(-1, layer.units)
        scales = mixture.output_scale
        alphas.append(alpha if scales is None else alpha * scales[place])
    return alphas


@dataclass(frozen=True)
class Search:
    """The two searches over one superposition.

    - `superposition`: of the tasks.
    - `objective`: a loss of logits (n, num_classes).
    - `num_classes`: the most classes of any task.
    - `shared`: norm statistics that all tasks share, or None.
    """

    superposition: Superposition
    objective: Callable[[Tensor], Tensor]
    num_classes: int
    shared: Statistics | None

    @property
    def _mode(self) -> Mode:
        # Tasks' own running statistics cannot be superposed; the statistics of the batch serve.
        return "batch" if self.superposition.backbone.has_task_statistics else "eval"

    def loss(self, shares: Tensor, inputs: Tensor | Inputs) -> Tensor:
        """The objective of the superposed network."""
        weights, backbone = self.superposition.weights(shares), self.superposition.backbone
        logits = backbone.forward(weights, inputs.to(backbone.input_dtype), self.shared, self._mode)
        return self.objective(logits[:, : self.num_classes])

    def one_shot(self, inputs: Tensor | Inputs) -> Tensor:
        """(C,): how the objective changes with each task's share, at equal shares."""
        shares = self.superposition.uniform().requires_grad_(True)
        chunk = spread_rows(inputs, SUPERPOSED_INPUTS).to(shares.device)
        return torch.autograd.grad(self.loss(shares, chunk), shares)[0]

    def alpha(
        self, inputs: Tensor | Inputs, recipe: Recipe, penalty: float, seed: int
    ) -> tuple[TaskView, list[int]]:
        """The network of optimised shares, and the tasks' positions, largest share first."""
        shares = self.superposition.uniform(per_layer=True).requires_grad_(True)
        no_labels = torch.zeros(len(inputs), dtype=torch.long, device=shares.device)

        def loss(batch: Tensor | Inputs, _: Tensor) -> Tensor:
            value = self.loss(shares, batch)
            if penalty:
                value = value + penalty * unit_norm_penalty(list(shares.unbind(dim=1)))
            return value

        fit([shares], loss, TensorBatches(inputs.to(shares.device), no_labels), recipe, seed)
        final = shares.detach()
        view = TaskView(
            self.superposition.weights(final), self.shared, self.num_classes, self._mode
        )
        return view, final.abs().mean(dim=1).argsort(descending=True).tolist()
