"""Superposition: many tasks in one set of weights, Σ_c β_c (task c's mask) applied to W.

A task is a point in coefficient space, so a weighted sum of tasks is again coefficients over the
same bank; one mix gives its weights and one backward pass the derivative for every task, whether
there are ten tasks or ten thousand.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from impresslearn.coefficients.mixing import Coefficients, mixed_weights
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.layers import MaskableLayer


class Superposition:
    """The weighted sum of tasks' weights, differentiable in the tasks' shares."""

    def __init__(self, backbone: Backbone, bank: MaskBank, tasks: Sequence[Coefficients]) -> None:
        self.backbone = backbone
        self.bank = bank
        self.num_tasks = len(tasks)
        # Input scales and numbers on weights cannot be written as coefficients over masks: such
        # tasks are kept as dense weights.
        self._dense = {
            position: mixed_weights(bank, backbone.weights, coefficients)
            for position, coefficients in enumerate(tasks)
            if coefficients.input_scale is not None or coefficients.weights is not None
        }
        self._mixable = [i for i in range(len(tasks)) if i not in self._dense]
        mixable = [tasks[i] for i in self._mixable]
        by_unit = any(each.granularity == "unit" or each.output_scale for each in mixable)
        alphas = [_by_unit(each, bank.layers) if by_unit else each.alpha for each in mixable]
        # (C, N) or (C, N, units) a layer, zero for masks that a task was learned without.
        self._alphas = [
            pad_sequence(list(layer), batch_first=True) for layer in zip(*alphas, strict=True)
        ]

    def weights(self, shares: Tensor) -> dict[str, Tensor]:
        """Layer name -> Σ_c β_c W_c. shares: (C,), or (C, layers) for a share per layer."""
        names = [layer.name for layer in self.bank.layers]
        frozen = [self.backbone.weights[name] for name in names]
        columns = [shares if shares.dim() == 1 else shares[:, i] for i in range(len(names))]
        if self._mixable:
            alphas = [
                torch.tensordot(column[self._mixable], stack, dims=1)
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

    def uniform(self, active: Tensor | None = None, per_layer: bool = False) -> Tensor:
        """Equal shares of the active tasks (all by default), zero for the others."""
        shares = torch.zeros(self.num_tasks, device=self.backbone.device)
        chosen = slice(None) if active is None else active
        shares[chosen] = 1 / len(shares[chosen])
        return shares[:, None].repeat(1, len(self.bank.layers)) if per_layer else shares


def _by_unit(coefficients: Coefficients, layers: Sequence[MaskableLayer]) -> list[Tensor]:
    """The same mask as alphas per unit, (N, units) a layer, with the output scales folded in."""
    scales = coefficients.output_scale or [torch.ones(()).to(coefficients.alpha[0])] * len(layers)
    return [
        (alpha if alpha.dim() == 2 else alpha[:, None].expand(-1, layer.units)) * scale
        for layer, alpha, scale in zip(layers, coefficients.alpha, scales, strict=True)
    ]
