"""Whole numbers on single weights, learned at the price of their code.

A task's weights are W ⊙ n s: a number n for each weight, a step s for each layer. Those of a random
network start as a sparse random mask and stay at 0 or above, so that the signs come from the
network and cost nothing. On a network that was trained before the weights are W ⊙ (1 + n s), and
all n start at 0. The forward pass uses n rounded, the gradient passes the rounding
(straight-through). The price is about what `coding` will write: the position of a number other
than zero by the densities of its row and column, and its size by a geometric law, both as they are
at this moment. It is linear in |n| up to 1 and beyond, so that numbers which do not earn their bits
go to 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from impresslearn.checks import torch_seed
from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.mixing import Grid
from impresslearn.networks.layers import MaskableLayer

DENSITY, FEWEST = 1 / 6, 8
"""A task on a random network starts with this share of weights, but so many a unit, or half."""
GAIN = 0.5
"""The layers' weights start this times sqrt(2 / fan_in) large (their r.m.s.)."""
RESIDUAL_STEP = 0.8
"""Of numbers on trained weights, as a share of these."""
LEVELS_PER_UNIT = 1.25
"""Numbers move so much faster than the recipe's learning rate says (which Adam allows)."""
DENSEST, SPARSEST = 0.1, 1e-4
"""Densities that the price reckons with: positions never cost less, or more, than at these."""
LOWEST_SHARE = 0.05
"""Of the sizes that are 1, and of the others, in the price."""
SMALLEST_STEP, LARGEST_STEP = 2.0**-24, 65504.0
"""Those that float16 knows."""


class WeightNumbers:
    """The numbers of all layers under optimisation.

    parameters: the leaf tensors to optimise; shapes: (units, fan_in) of each layer.
    """

    def __init__(
        self,
        layers: Sequence[MaskableLayer],
        weights: Sequence[Tensor],
        residual: bool,
        seed: int,
    ) -> None:
        self._residual, device = residual, weights[0].device
        self.shapes = [(layer.units, layer.fan_in) for layer in layers]
        self._sizes = [layer.numel for layer in layers]
        total, draws = sum(self._sizes), torch.Generator().manual_seed(torch_seed(seed))
        numbers = torch.zeros(total)
        if not residual:  # uniform up to where the wanted share is rounded to 1
            wanted = torch.tensor([max(DENSITY, min(FEWEST / n, 0.5)) for _, n in self.shapes])
            highest = (0.5 / (1 - wanted)).repeat_interleave(torch.tensor(self._sizes))
            numbers = torch.rand(total, generator=draws) * highest / LEVELS_PER_UNIT
            for part in numbers.split(self._sizes):
                if not self._rounded(part * LEVELS_PER_UNIT).any():  # a layer of few weights
                    part[part.argmax()] = 1 / LEVELS_PER_UNIT
        self._numbers = numbers.to(device).requires_grad_(True)
        firsts = [RESIDUAL_STEP] * len(layers) if residual else self._first(layers, weights)
        self._firsts = torch.tensor(firsts, device=device)
        self._steps = torch.zeros(len(layers), device=device, requires_grad=True)
        self.parameters = [self._numbers, self._steps]

    @torch.no_grad()
    def set(self, values: Sequence[Tensor], steps: Sequence[float]) -> None:
        """Starts at the multiples of a task instead, (units, fan_in) a layer, and their steps.

        Those that are 0 stay where they were drawn, as far as that is rounded to 0.
        """
        parts = [value / step for value, step in zip(values, steps, strict=True)]
        whole, drawn = torch.cat([each.flatten() for each in parts]), self._exact().clamp(max=0.49)
        self._numbers.copy_(torch.where(whole == 0, drawn, whole) / LEVELS_PER_UNIT)
        self._firsts.copy_(torch.tensor(steps))

    def values(self) -> list[Tensor]:
        """A multiple for each weight, (units, fan_in) a layer, differentiable."""
        exact = self._exact()
        rounded = exact + (self._rounded(exact) - exact).detach()
        parts = self._split(rounded)
        return [part * step for part, step in zip(parts, self._scaled_steps(), strict=True)]

    def bits(self) -> Tensor:
        """The code length, about, differentiable."""
        exact = self._exact()
        size = exact.abs() if self._residual else exact.clamp(min=0)
        total = size.new_zeros(())
        for part, rounded in zip(self._split(size), self._split(self._rounded(exact)), strict=True):
            first, further = _prices(rounded.detach(), signed=self._residual)
            total = total + ((first - further) * part.clamp(max=1)).sum() + further * part.sum()
        return total

    @torch.no_grad()
    def kept(self) -> tuple[list[Tensor], list[Grid]]:
        """The values and their grids as they are kept, steps in float16."""
        steps = self._scaled_steps().half().float()
        parts = self._split(self._rounded(self._exact()))
        values = [part * step for part, step in zip(parts, steps, strict=True)]
        return values, [Grid(step, 0.0) for step in steps.tolist()]

    def _exact(self) -> Tensor:
        return self._numbers * LEVELS_PER_UNIT

    def _rounded(self, exact: Tensor) -> Tensor:
        return exact.clamp(-LARGEST if self._residual else 0, LARGEST).round()

    def _scaled_steps(self) -> Tensor:
        return (self._steps.exp() * self._firsts).clamp(SMALLEST_STEP, LARGEST_STEP)

    def _split(self, numbers: Tensor) -> list[Tensor]:
        parts = numbers.split(self._sizes)
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    @torch.no_grad()
    def _first(self, layers: Sequence[MaskableLayer], weights: Sequence[Tensor]) -> list[float]:
        """Steps that make the layers' weights as large as GAIN says."""
        rounded = self._split(self._rounded(self._exact()))
        used = [
            weight.reshape(n.shape).float() * n for weight, n in zip(weights, rounded, strict=True)
        ]
        sizes = [float(each.square().mean().sqrt()) for each in used]
        wanted = [GAIN * math.sqrt(2 / layer.fan_in) for layer in layers]
        pairs = zip(wanted, sizes, strict=True)
        return [min(want / size, LARGEST_STEP) if size else LARGEST_STEP for want, size in pairs]


@torch.no_grad()
def _prices(rounded: Tensor, signed: bool) -> tuple[Tensor, Tensor]:
    """Bits of a number of size 1 at each place, (units, fan_in), and of each further step."""
    used = (rounded != 0).float()
    count, sizes = used.sum(), rounded.abs().sum()
    rows = ((used.sum(1) + 0.5) / (used.shape[1] + 1)).log2()
    columns = ((used.sum(0) + 0.5) / (used.shape[0] + 1)).log2()
    whole = ((count + 1) / (used.numel() + 2)).log2()
    place = (whole - rows[:, None] - columns).clamp(-math.log2(DENSEST), -math.log2(SPARSEST))
    ones = ((count + 1) / (sizes + 2)).clamp(LOWEST_SHARE, 1 - LOWEST_SHARE)
    return place - ones.log2() + signed, -torch.log2(1 - ones)
