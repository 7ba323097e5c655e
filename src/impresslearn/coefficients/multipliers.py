"""A sparse integer for each weight, trained with its code length as part of the loss.

A task's weights are W ⊙ n s, with an integer n per weight and a step s per layer. On a random
network n is at least 0, so the signs come from the network and need no bits. The forward pass uses
rounded n; the gradient ignores the rounding (straight-through).
"""

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
from impresslearn.coefficients.quantized_parameters import parts_of, rounded_steps, rounded_to_zero
from impresslearn.errors import InputError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone

# On a random network this fraction of the weights starts at 1, but at least 8 (or half) per unit.
START_DENSITY, LEAST_PER_UNIT = 1 / 6, 8
START_GAIN = 0.5  # the initial root mean square of a layer's weights is this · sqrt(2 / fan_in)
RESIDUAL_STEP = 0.8  # the first step on pretrained weights, relative to these weights
# Integers move faster than the recipe's learning rate by this factor.
LEVELS_PER_UNIT = 1.25
# The price of a position is computed for a density between these limits.
DENSEST, SPARSEST = 0.1, 1e-4
# In the price of sizes, the fractions of 1 and of larger sizes are both at least this.
LOWEST_SHARE = 0.05


@dataclass(frozen=True)
class Multipliers(Parametrisation):
    """An integer multiple n for each weight, without masks.

    - residual: for pretrained networks, W ⊙ (1 + n s) with n of either sign.
    """

    residual: bool = False

    kind = "multipliers"
    is_sparse = True
    # The full price from the first step would set all integers to 0 before they become useful.
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
    ) -> "SparseIntegerMultipliers":
        """The integers of all layers, drawn from the seed or continued from previous values."""
        drawn = SparseIntegerMultipliers(backbone, self.residual, seed)
        if previous:
            drawn.set(previous, [grid.step for grid in grids])
        return drawn


class SparseIntegerMultipliers:
    """The trainable multiples of all layers.

    They start from a random mask drawn with the seed, or from zeros if `residual`. Their price
    approximates the bits that `coding` will write: for the position of a nonzero number, by the
    present densities of its row and column; for its size, by a geometric distribution. The price
    is linear in |n| up to 1, and again above 1, so that numbers which save too little loss go to 0.
    """

    def __init__(self, backbone: Backbone, residual: bool, seed: int) -> None:
        layers, device = backbone.layers, backbone.device
        self._residual = residual
        self._shapes = [(layer.units, layer.fan_in) for layer in layers]
        self._sizes = [layer.numel for layer in layers]
        # One parameter for all layers and one for all steps, as in `QuantizedParameters`.
        numbers = torch.zeros(sum(self._sizes), dtype=torch.float32)
        numbers = numbers if residual else self._random_mask(seed)
        self._numbers = numbers.to(device).requires_grad_(True)
        first = torch.full((len(layers),), RESIDUAL_STEP, dtype=torch.float32)
        first = first if residual else self._first_steps(backbone)
        self._first = first.to(device)
        self._steps = torch.zeros_like(self._first, requires_grad=True)
        self.parameters = [self._numbers, self._steps]

    @torch.no_grad()
    def set(self, values: Sequence[Tensor], steps: Sequence[float]) -> None:
        """Continues from a task's multiples and steps; zeros keep their random values below 0.5."""
        # The step of a layer with only zeros is not kept, so it is 0 here.
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
        """The approximate code length in bits, differentiable."""
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
        """The final values and their grids; dead_zone: see `rounded_to_zero`."""
        steps = self._scaled_steps()
        exact = self._exact().clamp(-LARGEST if self._residual else 0, LARGEST)
        values = self._scaled(rounded_to_zero(exact, dead_zone), steps)
        return values, [Grid(step, 0.0) for step in steps.tolist()]

    def _random_mask(self, seed: int) -> Tensor:
        """Uniform random numbers from 0 up, scaled so that the wanted fraction rounds to 1."""
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
        """Steps that give the layers' weights the size of START_GAIN."""
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
    """Bits of a number of size 1 at each place, (units, fan_in), and of each further unit."""
    used = (rounded != 0).float()
    count, sizes = used.sum(), rounded.abs().sum()
    # A prior of half a nonzero number avoids infinite prices.
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
