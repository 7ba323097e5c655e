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
from itertools import chain, count, islice
from math import prod

import torch
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.mixing import (
    Coefficients,
    CoefficientSpec,
    Grid,
    head_columns,
    task_weights,
    uniform_coefficients,
)
from impresslearn.coefficients.weights import SMALLEST_STEP, WeightNumbers
from impresslearn.errors import InputError
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.heads import SmallParameter, TunedKind
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics
from impresslearn.training.loop import Recipe, Trainable
from impresslearn.training.objectives import unit_norm_penalty

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
UNIT_LEVELS_PER_UNIT, LEVELS_PER_UNIT = 2.5, 10.0
"""Whole numbers, alphas of units and others, move so much faster than the learning rate says."""
WEIGHT_PRICE_WARMUP, PRICE_WARMUP = 0.5, 0.25
"""The share of the steps over which the price rises from zero, of numbers on weights and of others:
in full from the first step on, it takes them all before the loss needs any."""
TINY = 1e-30


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
    seed: int = 0,
    present: Coefficients | None = None,
) -> Trainable:
    """Equal coefficients over all masks of the bank, or numbers on weights, to be trained.

    With `bit_price` their code length costs, with `penalty` λ times the penalty of eq. 2. examples:
    how many they are trained on; seed: see `WeightNumbers`; present: those to start from instead.
    """
    spec, steps = training.spec, count()
    if present is None:
        trained = trainable_coefficients(bank, backbone, spec, num_classes, seed)
    else:
        trained = resumed_coefficients(bank, backbone, spec, num_classes, present, seed)
    on_weights = spec.granularity == "weight"
    share = WEIGHT_PRICE_WARMUP if on_weights else PRICE_WARMUP if present is None else 0.0
    warmup = 0.0 if spec.residual else share * training.recipe.total_steps(examples)

    def weights() -> tuple[dict[str, Tensor], Tensor | float]:
        coefficients = trained.coefficients()
        cost: Tensor | float = 0.0
        if spec.bit_price:  # in nats an example
            risen = min(next(steps) / warmup, 1.0) if warmup else 1.0
            cost = trained.bits() * (risen * spec.bit_price * math.log(2) / examples)
        if training.penalty and coefficients.alpha:
            cost = cost + training.penalty * unit_norm_penalty(coefficients.alpha)
        return task_weights(bank, backbone, coefficients), cost

    def fold(gathered: Statistics, kept: Statistics) -> None:
        changes = trained.coefficients().small or ()
        trained.set_small(folded(backbone, spec.tune, changes, gathered, kept))

    folds = can_fold(backbone, spec.tune)
    return Trainable(trained.parameters, weights, trained.result, fold if folds else None)


def can_fold(backbone: Backbone, tune: Sequence[TunedKind]) -> bool:
    """Whether a task's norm statistics can be folded into the small parameters that it tunes.

    All tasks must share the network's, and every batch norm have scales and shifts that are tuned.
    """
    tuned = {each.name for group in backbone.small_parameters(tune) for each in group}
    prefixes = (f"{name}." if name else "" for name, _ in batch_norms(backbone.module))
    whole = all({f"{prefix}weight", f"{prefix}bias"} <= tuned for prefix in prefixes)
    return whole and backbone.shares_statistics and not backbone.normalises_by_batch


def check_fold(backbone: Backbone, tune: Sequence[TunedKind], fold_after: float) -> None:
    """Raises InputError for norm statistics that are to be folded where none can be."""
    if fold_after and not can_fold(backbone, tune):
        raise InputError(
            f"fold_after = {fold_after} has no effect on {backbone.name}: it folds statistics that "
            "tasks share into tuned batch norms with scales and shifts; leave it out"
        )


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
    """Coefficients under optimisation, as they are or as whole numbers.

    start: all tensors, of which those that are whole numbers only tell the shape; on_grids,
    by_weight: the whole numbers, in the order of the tensors. parameters: the leaf tensors to
    optimise.
    """

    def __init__(
        self,
        start: Coefficients,
        on_grids: OnGrids | None = None,
        by_weight: WeightNumbers | None = None,
    ) -> None:
        self._start, self._on_grids = start, on_grids
        self._whole = [each for each in (on_grids, by_weight) if each is not None]
        self.parameters = [each for whole in self._whole for each in whole.parameters]
        if not self._whole:
            self.parameters = [tensor.requires_grad_(True) for tensor in start.tensors()]

    def coefficients(self) -> Coefficients:
        """The coefficients that the parameters stand for, differentiable in them."""
        if not self._whole:
            return self._start
        return self._start.like(value for whole in self._whole for value in whole.values())

    def bits(self) -> Tensor | float:
        """The code length of whole numbers, about, differentiable; 0 of real ones."""
        return sum(whole.bits() for whole in self._whole)

    @torch.no_grad()
    def set_small(self, values: Sequence[Tensor]) -> None:
        """Sets the changes of small parameters, before rounding."""
        if self._on_grids:
            self._on_grids.set_last(torch.cat(list(values)))
            return
        for tensor, value in zip(self._start.small or (), values, strict=True):
            tensor.copy_(value)

    @torch.no_grad()
    def result(self) -> Coefficients:
        """What was learned, without gradient."""
        if self._whole:
            kept = [whole.kept() for whole in self._whole]
            tensors, grids = (list(chain.from_iterable(each)) for each in zip(*kept, strict=True))
            return self._start.like(tensors, tuple(grids))
        return self._start.like(tensor.detach().clone() for tensor in self._start.tensors())


def trainable_coefficients(
    bank: MaskBank, backbone: Backbone, spec: CoefficientSpec, num_classes: int, seed: int = 0
) -> TrainableCoefficients:
    """Coefficients over all masks of the bank at their start: the same α everywhere, scales 1.

    α = 1/N; quantised ones start as large as makes each layer's weights as large as the network's
    own, or FIRST_GAIN of He's where those are larger. A head, changes of small parameters and
    masks that add to the network's own weights start at 0. Without masks a head is learned alone.
    Numbers on single weights use no masks; seed: see `WeightNumbers`.
    """
    head, by_weight, num_masks = head_columns(backbone.new_head(num_classes)), None, len(bank)
    if spec.granularity == "weight" and bank.layers:
        frozen = [backbone.weights[layer.name] for layer in bank.layers]
        by_weight, num_masks = WeightNumbers(bank.layers, frozen, spec.residual, seed), 0
        shapes = tuple(torch.empty(each, device="meta") for each in by_weight.shapes)
        start = Coefficients((), weights=shapes, residual=spec.residual)
    elif head and not num_masks:
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
    scales = (*(start.output_scale or ()), *(start.input_scale or ()))
    grids = _first_grids(num_masks, bank, backbone.weights, spec.residual) if num_masks else []
    grids += [Grid(FIRST_SCALE_STEP, 1.0) for _ in scales]
    grids += [Grid(FIRST_HEAD_STEP, 0.0) for _ in head]
    grids += [Grid(FIRST_SMALL_STEP, 0.0) for _ in small]
    return TrainableCoefficients(start, _on_grids(start, grids), by_weight)


def resumed_coefficients(
    bank: MaskBank,
    backbone: Backbone,
    spec: CoefficientSpec,
    num_classes: int,
    present: Coefficients,
    seed: int = 0,
) -> TrainableCoefficients:
    """A task's coefficients to be trained further, over the masks that they combine.

    A head grows to so many classes; new ones start at 0. Raises InputError for coefficients of
    another kind than the specification's.
    """
    tune = spec.tune if backbone.small_parameters(spec.tune) else ()
    other = CoefficientSpec.of(present, spec.bit_price) != replace(spec, tune=tune)
    alone = not present.alpha and present.weights is None  # with a head, whatever the settings
    if (other and not alone) or (present.grids is None) != (spec.bit_price is None):
        raise InputError(
            "the task has coefficients of another kind than this learner's settings give "
            "(granularity, scales, precision, start, tune); update it with those of its learning"
        )
    head = head_columns(backbone.new_head(num_classes))
    for grown, own in zip(head, present.head or (), strict=True):
        grown[..., : own.shape[-1]] = own
    start = replace(present, head=head or None, grids=None)
    if present.grids is None:
        return TrainableCoefficients(start.like(each.clone() for each in start.tensors()))
    count, by_weight = len(present.grids) - len(present.weights or ()), None
    if present.weights is not None:
        frozen = [backbone.weights[layer.name] for layer in bank.layers]
        by_weight = WeightNumbers(bank.layers, frozen, spec.residual, seed)
        by_weight.set(present.weights, [grid.step for grid in present.grids[count:]])
    on_grids = _on_grids(start, present.grids[:count])
    if on_grids is not None:
        values = islice(start.tensors(), count)
        on_grids.set_last(torch.cat([each.flatten() for each in values]))
    return TrainableCoefficients(start, on_grids, by_weight)


def _on_grids(start: Coefficients, grids: Sequence[Grid]) -> OnGrids | None:
    """The first tensors on these grids, alphas before the others; None without any."""
    by_unit = not start.residual and any(each.dim() > 1 for each in start.alpha)
    moves = UNIT_LEVELS_PER_UNIT if by_unit else LEVELS_PER_UNIT
    factors = [moves] * len(start.alpha) + [LEVELS_PER_UNIT] * (len(grids) - len(start.alpha))
    like = list(islice(start.tensors(), len(grids)))
    return OnGrids(like, list(zip(grids, factors, strict=True))) if like else None


class OnGrids:
    """Tensors on grids, one each: offset (1 + o) + step exp(s) round(factor p).

    All numbers p are one parameter and all s another, as are the o and the widths of the Laplace
    densities (their logarithms): a parameter of its own costs a dozen operations a step.

    like: tensors whose shapes and device these have; starts: the first grid of each, and how many
    whole numbers it moves when its parameter moves by 1. All numbers start at 0. parameters: the
    leaf tensors to optimise.
    """

    def __init__(self, like: Sequence[Tensor], starts: Sequence[tuple[Grid, float]]) -> None:
        device, self._shapes = like[0].device, [tensor.shape for tensor in like]
        self._sizes = [tensor.numel() for tensor in like]
        table = [(grid.step, grid.offset, factor) for grid, factor in starts]
        *firsts, factors = torch.tensor(table, device=device).t()
        self._firsts, self._factors = torch.stack(firsts), self._spread(factors)
        self._numbers = torch.zeros(sum(self._sizes), device=device, requires_grad=True)
        self._steps, self._shifts, self._widths = (
            torch.zeros(len(like), device=device, requires_grad=True) for _ in range(3)
        )
        self.parameters = [self._numbers, self._steps, self._shifts, self._widths]

    def values(self) -> list[Tensor]:
        """The tensors, differentiable."""
        step, offset = self._spread(self._steps_and_offsets())
        exact = self._exact()
        rounded = exact + (exact.round() - exact).detach()  # straight-through
        return self._split(offset + step * rounded)

    @torch.no_grad()
    def set_last(self, values: Tensor) -> None:
        """Moves the last numbers to where they stand for these, as nearly as grids allow."""
        first = len(self._numbers) - len(values)
        step, offset = self._spread(self._steps_and_offsets())[:, first:]
        self._numbers[first:] = (values - offset) / (step * self._factors[first:])

    def bits(self) -> Tensor:
        """The code length of all numbers, about, differentiable."""
        return laplace_bits(self._exact(), self._spread(self._widths.exp())).sum()

    @torch.no_grad()
    def kept(self) -> tuple[list[Tensor], tuple[Grid, ...]]:
        """The tensors and their grids as they are kept, in float16."""
        steps, offsets = self._steps_and_offsets()
        grids = torch.stack([steps.clamp_min(SMALLEST_STEP), offsets]).half().float()
        step, offset = self._spread(grids)
        tensors = self._split(offset + step * self._exact().round())
        return tensors, tuple(Grid(*pair) for pair in grids.t().tolist())

    def _steps_and_offsets(self) -> Tensor:
        return self._firsts * torch.stack([self._steps.exp(), 1 + self._shifts])

    def _exact(self) -> Tensor:
        return (self._factors * self._numbers).clamp(-LARGEST, LARGEST)

    def _spread(self, values: Tensor) -> Tensor:
        """(..., T), one value a tensor, to (..., P), one a number."""
        # Sums of gradients are faster so than by an index, and repeat on a GPU.
        pairs = zip(values.split(1, dim=-1), self._sizes, strict=True)
        return torch.cat([each.expand(*each.shape[:-1], size) for each, size in pairs], dim=-1)

    def _split(self, numbers: Tensor) -> list[Tensor]:
        parts = numbers.split(self._sizes)
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]


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
