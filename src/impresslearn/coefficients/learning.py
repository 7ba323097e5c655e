"""Learning a new task: its coefficients over the masks of a bank (eqs. 1 and 2).

With `bit_price` each tensor is offset + step · n: the whole numbers n, the step and the offset are
all learned. The forward pass uses n rounded, as it will be kept; the gradient passes the rounding
as if it were not there (straight-through). The code length of n, by a Laplace density whose width
is learned too, is part of the loss, so that numbers which do not earn their bits stay at zero.
`quantisation` writes them near that length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from math import prod

import torch
from torch import Tensor

from impresslearn.coefficients.mixing import (
    Coefficients,
    CoefficientSpec,
    Grid,
    head_columns,
    task_weights,
    uniform_coefficients,
)
from impresslearn.coefficients.quantisation import LARGEST
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.heads import SmallParameter, TunedKind
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics
from impresslearn.optimisation.loop import Recipe, Trainable
from impresslearn.optimisation.objectives import unit_norm_penalty

COEFFICIENT_RECIPE = Recipe(
    optimizer="adam", lr=0.02, schedule="cosine", epochs=3, min_steps=300, batch_fraction=1 / 8
)
"""Adam 0.02 with cosine decay, at least 300 steps of small batches (docs/decisions.md)."""
FIRST_GAIN = 0.5
"""Coded coefficients start with weights of this times sqrt(2 / fan_in) at most (their r.m.s.)."""
FIRST_STEP = 0.5
"""The first step of alphas, as a share of the weights at the start."""
FIRST_SCALE_STEP = FIRST_HEAD_STEP = 0.1
RESIDUAL_STEP = FIRST_SMALL_STEP = 0.05
"""Of alphas that add to trained weights, as a share of these; of changes to norms and biases."""
LEVELS_PER_UNIT = 2.5
"""Whole numbers move so much faster than the recipe's learning rate says (which Adam allows)."""
SCALE_LEVELS_PER_UNIT = RESIDUAL_LEVELS_PER_UNIT = 10.0
TINY = 1e-30
SMALLEST_STEP = 2.0**-24
"""The smallest that float16 knows."""


@dataclass(frozen=True)
class CoefficientTraining:
    """How coefficients are learned: which numbers, the optimisation, and λ of eq. 2 (`penalty`).

    fold_after: as of `TaskTraining`, for tuned norms.
    """

    spec: CoefficientSpec = field(default_factory=CoefficientSpec)
    recipe: Recipe = COEFFICIENT_RECIPE
    penalty: float = 0.0
    fold_after: float = 0.0


def trainable_numbers(
    backbone: Backbone,
    bank: MaskBank,
    training: CoefficientTraining,
    examples: int,
    num_classes: int,
) -> Trainable:
    """Equal coefficients over all masks of the bank, to be trained on so many examples.

    With `bit_price` their code length costs, with `penalty` λ times the penalty of eq. 2.
    """
    trained = trainable_coefficients(bank, backbone, training.spec, num_classes)

    def weights() -> tuple[dict[str, Tensor], Tensor | float]:
        coefficients = trained.coefficients()
        cost: Tensor | float = 0.0
        if training.spec.bit_price:  # in nats an example
            cost = trained.bits() * (training.spec.bit_price * math.log(2) / examples)
        if training.penalty and coefficients.alpha:
            cost = cost + training.penalty * unit_norm_penalty(coefficients.alpha)
        return task_weights(bank, backbone, coefficients), cost

    def fold(gathered: Statistics, kept: Statistics) -> None:
        changes = trained.coefficients().small or ()
        trained.set_small(folded(backbone, training.spec.tune, changes, gathered, kept))

    tuned = {each.name for group in backbone.small_parameters(training.spec.tune) for each in group}
    prefixes = (f"{name}." if name else "" for name, _ in batch_norms(backbone.module))
    folds = all({f"{prefix}weight", f"{prefix}bias"} <= tuned for prefix in prefixes)
    return Trainable(trained.parameters, weights, trained.result, fold if folds else None)


@torch.no_grad()
def folded(
    backbone: Backbone,
    tune: Sequence[TunedKind],
    changes: Sequence[Tensor],
    gathered: Statistics,
    kept: Statistics,
) -> list[Tensor]:
    """Changes of small parameters under which the kept norm statistics do as the gathered ones.

    (x - m) / s · γ + b with mean m and deviation s is (x - m₀) / s₀ · γ' + b' for γ' = γ s₀ / s and
    b' = b + (m₀ - m) γ / s, for each batch norm that has both scales and shifts.
    """
    found = [each.clone() for each in changes]
    places: dict[str, tuple[SmallParameter, Tensor]] = {}
    for group, values in zip(backbone.small_parameters(tune), found, strict=True):
        parts = values.split([prod(each.shape) for each in group])
        places |= {each.name: (each, part) for each, part in zip(group, parts, strict=True)}
    for prefix, norm in batch_norms(backbone.module):
        of = f"{prefix}." if prefix else ""
        means, variances = (
            [statistics[of + leaf] for statistics in (kept, gathered)]
            for leaf in ("running_mean", "running_var")
        )
        first, own = ((variance + norm.eps).sqrt() for variance in variances)
        (scale, scale_change), (shift, shift_change) = places[f"{of}weight"], places[f"{of}bias"]
        gamma = backbone.small[scale.name] + scale.unit * scale_change
        moved = gamma * (means[0] - means[1]) / own
        shift_change += moved / shift.unit
        scale_change.copy_((gamma * first / own - backbone.small[scale.name]) / scale.unit)
    return found


class TrainableCoefficients:
    """Coefficients under optimisation, as they are or on grids.

    parameters: the leaf tensors to optimise.
    """

    def __init__(self, start: Coefficients, on_grids: Sequence[_OnGrid] = ()) -> None:
        self._start, self._on_grids = start, on_grids
        self.parameters = [each for tensor in on_grids for each in tensor.parameters]
        if not on_grids:
            self.parameters = [tensor.requires_grad_(True) for tensor in start.tensors()]

    def coefficients(self) -> Coefficients:
        """The coefficients that the parameters stand for, differentiable in them."""
        if not self._on_grids:
            return self._start
        return self._start.like(tensor.values() for tensor in self._on_grids)

    def bits(self) -> Tensor:
        """The code length of whole numbers, about, differentiable."""
        return torch.stack([tensor.bits() for tensor in self._on_grids]).sum()

    @torch.no_grad()
    def set_small(self, values: Sequence[Tensor]) -> None:
        """Sets the changes of small parameters, before rounding."""
        if not self._on_grids:
            for tensor, value in zip(self._start.small or (), values, strict=True):
                tensor.copy_(value)
            return
        last = self._on_grids[len(self._on_grids) - len(values) :]
        for on_grid, value in zip(last, values, strict=True):
            on_grid.set(value)

    @torch.no_grad()
    def result(self) -> Coefficients:
        """What was learned, without gradient."""
        if not self._on_grids:
            kept = (tensor.detach().clone() for tensor in self._start.tensors())
            return self._start.like(kept)
        grids = tuple(tensor.grid() for tensor in self._on_grids)
        pairs = zip(grids, self._on_grids, strict=True)
        values = [grid.offset + grid.step * tensor.exact().round() for grid, tensor in pairs]
        return self._start.like(values, grids)


def trainable_coefficients(
    bank: MaskBank, backbone: Backbone, spec: CoefficientSpec, num_classes: int
) -> TrainableCoefficients:
    """Coefficients over all masks of the bank at their start: the same α everywhere, scales 1.

    α = 1/N; quantised ones start as large as makes each layer's weights as large as the network's
    own, or FIRST_GAIN of He's where those are larger. A head, changes of small parameters and
    masks that add to the network's own weights start at 0. Without masks a head is learned alone.
    """
    head = head_columns(backbone.new_head(num_classes))
    if head and not len(bank):
        start = Coefficients((), head=head)
    else:
        start = uniform_coefficients(bank.layers, len(bank), spec, backbone.device)
    small = tuple(
        torch.zeros(sum(prod(each.shape) for each in group), device=backbone.device)
        for group in backbone.small_parameters(spec.tune)
    )
    start = replace(start, head=head or None, small=small or None, tune=spec.tune if small else ())
    if spec.bit_price is None:
        return TrainableCoefficients(start)
    firsts = _first_grids(len(bank), bank, backbone.weights, spec.residual) if len(bank) else []
    alpha_factor = RESIDUAL_LEVELS_PER_UNIT if spec.residual else LEVELS_PER_UNIT
    around_one, factor = Grid(FIRST_SCALE_STEP, 1.0), repeat(SCALE_LEVELS_PER_UNIT)
    scales = (*(start.output_scale or ()), *(start.input_scale or ()))
    on_grids = [
        *map(_OnGrid, start.alpha, firsts, repeat(alpha_factor)),
        *map(_OnGrid, scales, repeat(around_one), factor),
        *map(_OnGrid, head, repeat(Grid(FIRST_HEAD_STEP, 0.0)), factor),
        *map(_OnGrid, small, repeat(Grid(FIRST_SMALL_STEP, 0.0)), factor),
    ]
    return TrainableCoefficients(start, on_grids)


class _OnGrid:
    """One tensor: offset (1 + o) + step exp(s) round(factor p), for parameters p, s and o."""

    def __init__(self, like: Tensor, first: Grid, factor: float) -> None:
        self._first = first
        self._factor = factor
        self._numbers = torch.zeros_like(like)
        self._step, self._shift, self._width = (like.new_zeros(()) for _ in range(3))
        self.parameters = [self._numbers, self._step, self._shift, self._width]
        for parameter in self.parameters:
            parameter.requires_grad_(True)

    def _step_and_offset(self) -> tuple[Tensor, Tensor]:
        return self._first.step * self._step.exp(), self._first.offset * (1 + self._shift)

    def values(self) -> Tensor:
        step, offset = self._step_and_offset()
        exact = self.exact()
        rounded = exact + (exact.round() - exact).detach()  # straight-through
        return offset + step * rounded

    def set(self, values: Tensor) -> None:
        """Moves the numbers to where they stand for these values, as nearly as the grid allows."""
        step, offset = self._step_and_offset()
        self._numbers.copy_((values - offset) / (step * self._factor))

    def bits(self) -> Tensor:
        return laplace_bits(self.exact(), self._width.exp()).sum()

    def grid(self) -> Grid:
        """As it is kept, in float16."""
        step = self._first.step * float(self._step.exp())
        offset = self._first.offset * (1 + float(self._shift))
        kept = torch.tensor([max(step, SMALLEST_STEP), offset], dtype=torch.float16)
        return Grid(float(kept[0]), float(kept[1]))

    def exact(self) -> Tensor:
        return (self._factor * self._numbers).clamp(-LARGEST, LARGEST)


def laplace_bits(exact: Tensor, width: Tensor) -> Tensor:
    """-log2 of the mass that a Laplace density of this width has within 1/2 of each number."""
    size = exact.abs()
    near = 1 - (torch.exp(-(0.5 + size) / width) + torch.exp((size - 0.5).clamp(max=0) / width)) / 2
    far = (size - 0.5) / width - torch.log(-torch.expm1(-1 / width) / 2)
    return torch.where(size < 0.5, -torch.log(near), far) / math.log(2)


@torch.no_grad()
def _first_grids(
    num_masks: int, bank: MaskBank, weights: Mapping[str, Tensor], residual: bool
) -> list[Grid]:
    """The grids of alphas at the start: equal alphas, steps that add up as independent numbers do.

    With masks of density ρ, N ρ alphas meet in a weight.
    """
    bits = [bank.bits(number, num_masks) for number in range(len(bank.layers))]
    frozen = [weights[layer.name] for layer in bank.layers]
    ones = torch.ones(num_masks, device=bank.device)
    sums = mix_layers(bits, [ones] * len(bits), frozen)
    grids = []
    for number, (layer, weight, total) in enumerate(zip(bank.layers, frozen, sums, strict=True)):
        own = max(_rms(weight), TINY)
        wanted = min(own, FIRST_GAIN * math.sqrt(2 / layer.fan_in))
        met = sum(info.ones[number] for info in bank.infos[:num_masks]) / layer.numel
        if residual:
            grids.append(Grid(RESIDUAL_STEP / math.sqrt(max(met, 1 / layer.numel)), 0.0))
            continue
        step = FIRST_STEP * wanted / (own * math.sqrt(max(met, 1 / layer.numel)))
        grids.append(Grid(step, wanted / max(_rms(total), own / layer.numel)))
    return grids


def _rms(tensor: Tensor) -> float:
    return float(tensor.float().square().mean().sqrt())
