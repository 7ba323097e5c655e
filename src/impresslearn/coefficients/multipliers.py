"""Sparse integers on single weights, learned at the price of their code.

A task's weights are W ⊙ n s: an integer n for each weight, a step s for each layer. On a random
network the integers start as a sparse random mask and stay at 0 or above, so that the signs come
from the network and cost nothing. On a pretrained network the weights are W ⊙ (1 + n s), and all n
start at 0. The forward pass uses n rounded; the gradient passes the rounding (straight-through).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn.checks import torch_seed
from impresslearn.coefficients.coding import LARGEST, LARGEST_STEP, SMALLEST_STEP
from impresslearn.coefficients.parametrisation import (
    CoefficientSpec,
    Parametrisation,
    Tensors,
    Weights,
    register_parametrisation,
)
from impresslearn.coefficients.quantisation import Grid, TensorLayout
from impresslearn.coefficients.quantized_parameters import (
    leaf,
    parts_of,
    rounded_steps,
    rounded_to_zero,
)
from impresslearn.errors import InputError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone

# On a random network this share of the weights starts at 1, but at least 8 (or half) per unit.
START_DENSITY, LEAST_PER_UNIT = 1 / 6, 8
START_GAIN = 0.5  # the layers' weights start this times sqrt(2 / fan_in) large (root mean square)
RESIDUAL_STEP = 0.8  # the first step on pretrained weights, as a share of these
# Integers move this much faster than the learning rate of the recipe says.
LEVELS_PER_UNIT = 1.25
# Densities that the price reckons with: a position never costs less or more than at these.
DENSEST, SPARSEST = 0.1, 1e-4
# The price takes at least this share of the sizes to be 1, and of the others to be larger.
LOWEST_SHARE = 0.05


@dataclass(frozen=True)
class Multipliers(Parametrisation):
    """An integer multiple for each weight; no masks.

    - residual: W ⊙ (1 + n s), with n of either sign, instead of W ⊙ n s with n >= 0.
    """

    residual: bool = False

    kind = "multipliers"
    is_sparse = True
    # In full from the first step on, the price takes all integers before the loss needs any.
    price_warmup = 0.5

    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        """A matrix (units, fan_in) per layer."""
        shapes = [(layer.name, (layer.units, layer.fan_in)) for layer in backbone.layers]
        return [TensorLayout(f"multiple.{name}", shape, sparse=True) for name, shape in shapes]

    def weights(self, backbone: Backbone, bank: MaskBank, tensors: Tensors) -> Weights:
        changed = {}
        for layer, multiple in zip(backbone.layers, tensors, strict=True):
            frozen = backbone.weights[layer.name]
            product = frozen * multiple.reshape(frozen.shape).to(frozen.dtype)
            changed[layer.name] = frozen + product if self.residual else product
        return changed

    def integers(
        self, backbone: Backbone, seed: int, previous: Sequence[Tensor], grids: Sequence[Grid]
    ) -> SparseIntegerMultipliers:
        """The integers of all layers, drawn from the seed or from a task to go on from."""
        drawn = SparseIntegerMultipliers(backbone, self.residual, seed)
        if previous:
            drawn.set(previous, [grid.step for grid in grids])
        return drawn


class SparseIntegerMultipliers:
    """The multiples of all layers under optimisation.

    They start from a random mask that the seed draws, or, `residual`, from zeros. The price
    approximates what `coding` will write: the position of a nonzero number by the densities of its
    row and column, and its size by a geometric law, both as they are at this moment. It is linear
    in |n| up to 1 and beyond, so that numbers which do not earn their bits go to 0.
    """

    def __init__(self, backbone: Backbone, residual: bool, seed: int) -> None:
        layers, device = backbone.layers, backbone.device
        self._residual = residual
        self._shapes = [(layer.units, layer.fan_in) for layer in layers]
        self._sizes = [layer.numel for layer in layers]
        # One parameter for all layers, and one for their steps, as in `QuantizedParameters`.
        numbers = torch.zeros(sum(self._sizes), dtype=torch.float32)
        numbers = numbers if residual else self._random_mask(seed)
        self._numbers = numbers.to(device).requires_grad_(True)
        first = torch.full((len(layers),), RESIDUAL_STEP, dtype=torch.float32)
        first = first if residual else self._first_steps(backbone)
        self._first = first.to(device)
        self._steps = leaf(len(layers), device)
        self.parameters = [self._numbers, self._steps]

    @torch.no_grad()
    def set(self, values: Sequence[Tensor], steps: Sequence[float]) -> None:
        """Starts at a task's multiples and steps; zeros stay where they were drawn, below 0.5."""
        # A layer whose numbers are all zero has kept no step.
        known = torch.tensor(steps, dtype=torch.float32, device=self._first.device)
        self._first.copy_(torch.where(known > 0, known, self._first))
        pairs = zip(values, self._first, strict=True)
        integers = torch.cat([(value / step).flatten() for value, step in pairs])
        drawn = self._exact().clamp(max=0.49)
        self._numbers.copy_(torch.where(integers == 0, drawn, integers) / LEVELS_PER_UNIT)

    def values(self) -> list[Tensor]:
        """A multiple for each weight, (units, fan_in) per layer, differentiable."""
        exact = self._exact()
        rounded = exact + (self._rounded(exact) - exact).detach()  # straight-through
        return self._scaled(rounded, self._scaled_steps())

    def bits(self) -> Tensor:
        """The code length, approximately, differentiable."""
        exact = self._exact()
        size = exact.abs() if self._residual else exact.clamp(min=0)
        total = size.new_zeros(())
        integers = parts_of(self._rounded(exact).detach(), self._shapes)
        for part, rounded in zip(parts_of(size, self._shapes), integers, strict=True):
            first, further = _prices(rounded, signed=self._residual)
            total = total + ((first - further) * part.clamp(max=1)).sum() + further * part.sum()
        return total

    @torch.no_grad()
    def result(self, dead_zone: float = 0.5) -> tuple[list[Tensor], list[Grid]]:
        """The values and their grids as they are kept; dead_zone: see `rounded_to_zero`."""
        steps = self._scaled_steps()
        exact = self._exact().clamp(-LARGEST if self._residual else 0, LARGEST)
        values = self._scaled(rounded_to_zero(exact, dead_zone), steps)
        return values, [Grid(step, 0.0) for step in steps.tolist()]

    def _random_mask(self, seed: int) -> Tensor:
        """Uniform draws, up to where the wanted share of them is rounded to 1."""
        generator = torch.Generator().manual_seed(torch_seed(seed))
        draws = torch.rand(sum(self._sizes), dtype=torch.float32, generator=generator)
        for part, (_, fan_in) in zip(draws.split(self._sizes), self._shapes, strict=True):
            density = max(START_DENSITY, min(LEAST_PER_UNIT / fan_in, 0.5))
            part *= 0.5 / (1 - torch.tensor(density, dtype=torch.float32))
            part /= LEVELS_PER_UNIT
            if not self._rounded(part * LEVELS_PER_UNIT).any():  # a layer of few weights
                part[part.argmax()] = 1 / LEVELS_PER_UNIT
        return draws

    @torch.no_grad()
    def _first_steps(self, backbone: Backbone) -> Tensor:
        """Steps that make the layers' weights as large as START_GAIN says."""
        steps = []
        integers = parts_of(self._rounded(self._exact()), self._shapes)
        for layer, levels in zip(backbone.layers, integers, strict=True):
            used = backbone.weights[layer.name].reshape(levels.shape).float() * levels
            size = float(used.square().mean().sqrt())
            wanted = START_GAIN * math.sqrt(2 / layer.fan_in)
            steps.append(min(wanted / size, LARGEST_STEP) if size else LARGEST_STEP)
        return torch.tensor(steps, dtype=torch.float32)

    def _exact(self) -> Tensor:
        return self._numbers * LEVELS_PER_UNIT

    def _rounded(self, exact: Tensor) -> Tensor:
        return exact.clamp(-LARGEST if self._residual else 0, LARGEST).round()

    def _scaled_steps(self) -> Tensor:
        return rounded_steps((self._steps.exp() * self._first).clamp(SMALLEST_STEP, LARGEST_STEP))

    def _scaled(self, integers: Tensor, steps: Tensor) -> list[Tensor]:
        parts = parts_of(integers, self._shapes)
        return [part * step for part, step in zip(parts, steps, strict=True)]


@torch.no_grad()
def _prices(rounded: Tensor, signed: bool) -> tuple[Tensor, Tensor]:
    """Bits of a number of size 1 at each place, (units, fan_in), and of each further step."""
    used = (rounded != 0).float()
    count, sizes = used.sum(), rounded.abs().sum()
    # Shares with a prior of half a nonzero number, as none may cost infinitely many bits.
    rows = ((used.sum(1) + 0.5) / (used.shape[1] + 1)).log2()
    columns = ((used.sum(0) + 0.5) / (used.shape[0] + 1)).log2()
    whole = ((count + 1) / (used.numel() + 2)).log2()
    place = (whole - rows[:, None] - columns).clamp(-math.log2(DENSEST), -math.log2(SPARSEST))
    ones = ((count + 1) / (sizes + 2)).clamp(LOWEST_SHARE, 1 - LOWEST_SHARE)
    return place - ones.log2() + signed, -torch.log2(1 - ones)


def _made(spec: CoefficientSpec) -> Multipliers:
    if spec.output_scale:
        raise InputError("numbers on single weights need no scales; leave out output_scale")
    if spec.bit_price is None:
        line = 'granularity="weight" has a number for each weight, which must be coded'
        raise InputError(f'{line}; set precision="coded"')
    return Multipliers(spec.residual)


register_parametrisation(Multipliers, {"weight": _made})
