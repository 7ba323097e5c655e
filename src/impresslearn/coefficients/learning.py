"""Learning a new task's numbers with gradients, by any parametrisation (eqs. 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from torch import Tensor

from impresslearn.coefficients.deltas import Head, NormBiasDeltas, can_fold, folded
from impresslearn.coefficients.layout import Grid, TensorLayout
from impresslearn.coefficients.parametrisation import (
    Coefficients,
    CoefficientSpec,
    Integers,
    Parametrisation,
    Start,
    grouped,
    layouts_of,
    task_weights,
)
from impresslearn.coefficients.quantized_parameters import QuantizedParameters
from impresslearn.errors import InputError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics
from impresslearn.training.loop import Recipe, Trainable
from impresslearn.training.objectives import unit_norm_penalty

COEFFICIENT_RECIPE = Recipe(
    optimizer="adam", lr=0.02, schedule="cosine", epochs=3, min_steps=300, batch_fraction=1 / 8
)
"""At least 300 steps of small batches: a task of 50 labels needs them as much as one of 50,000."""


@dataclass(frozen=True)
class CoefficientTraining:
    """How coefficients are learned.

    - spec: which numbers.
    - recipe: the optimisation.
    - penalty: λ of eq. 2, on the alphas of masks.
    - fold_after: see `TaskTraining`; for tuned norms.
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
    """A task's numbers to be trained, with the price of their bits and the penalty of eq. 2.

    - bank: the masks, all of which a new task combines.
    - examples: the number of training examples; the price of bits is shared among them.
    - num_classes: outputs of the task's own head, where it has one.
    - seed: of what a parametrisation draws at the start.
    - present: numbers of the task to go on from; None starts anew.

    Raises InputError for a bank without masks where they are needed, and for present numbers of
    another kind than the settings give.
    """
    spec, steps = training.spec, count()
    if present is None:
        numbers = _new_numbers(backbone, bank, spec, num_classes, seed)
    else:
        numbers = _resumed_numbers(backbone, bank, spec, num_classes, seed, present)
    warmup = 0.0
    if not spec.residual and (present is None or spec.parametrisation.is_sparse):
        share = spec.parametrisation.price_warmup
        warmup = share * training.recipe.total_steps(examples)

    def weights() -> tuple[dict[str, Tensor], Tensor | float]:
        coefficients = numbers.coefficients()
        cost: Tensor | float = 0.0
        if spec.bit_price:
            risen = min(next(steps) / warmup, 1.0) if warmup else 1.0
            # The objective is bits of labels plus bits of numbers: in nats, per example.
            cost = numbers.bits() * (risen * spec.bit_price * math.log(2) / examples)
        if training.penalty and coefficients.alpha:
            cost = cost + training.penalty * unit_norm_penalty(coefficients.alpha)
        return task_weights(bank, backbone, coefficients), cost

    def fold(gathered: Statistics, kept: Statistics) -> None:
        numbers.fold(backbone, gathered, kept)

    folds = can_fold(backbone, spec.tune)
    return Trainable(numbers.parameters, weights, numbers.result, fold if folds else None)


class TrainableNumbers:
    """The tensors of a task under optimisation, real or as integers.

    - parts, sizes: the parametrisations, and the number of tensors of each.
    - num_masks: the number of masks that are combined.
    - real: all tensors, to be trained as they are; None where they are integers.
    - integers: the objects that hold the integers of all tensors, in layout order.
    """

    def __init__(
        self,
        parts: Sequence[Parametrisation],
        sizes: Sequence[int],
        num_masks: int,
        real: Sequence[Tensor] | None = None,
        integers: Sequence[Integers] = (),
    ) -> None:
        self._parts, self._sizes, self._num_masks = tuple(parts), list(sizes), num_masks
        self._real = None if real is None else [tensor.requires_grad_(True) for tensor in real]
        self._integers = list(integers)
        self.parameters = self._real or [p for each in integers for p in each.parameters]

    def coefficients(self) -> Coefficients:
        """The coefficients that the parameters stand for, differentiable in them."""
        tensors = self._real
        if tensors is None:
            tensors = [value for integers in self._integers for value in integers.values()]
        return self._as_coefficients(tensors)

    def bits(self) -> Tensor | float:
        """The code length of the integers, approximately, differentiable; 0 for real numbers."""
        return sum(integers.bits() for integers in self._integers)

    @torch.no_grad()
    def fold(self, backbone: Backbone, gathered: Statistics, kept: Statistics) -> None:
        """Moves gathered norm statistics into the changes of scales and shifts."""
        place = next(n for n, part in enumerate(self._parts) if isinstance(part, NormBiasDeltas))
        deltas, first = self._parts[place], sum(self._sizes[:place])
        assert isinstance(deltas, NormBiasDeltas)
        present = self.coefficients().numbers[place]
        changed = folded(backbone, deltas, present, gathered, kept)
        if self._real is None:
            dense = next(each for each in self._integers if isinstance(each, QuantizedParameters))
            dense.set(first, changed)
            return
        for tensor, values in zip(self._real[first:], changed, strict=False):
            tensor.copy_(values)

    @torch.no_grad()
    def result(self) -> Coefficients:
        """What was learned, without gradient."""
        if self._real is not None:
            return self._as_coefficients([tensor.detach().clone() for tensor in self._real])
        tensors: list[Tensor] = []
        grids: list[Grid] = []
        for integers in self._integers:
            values, steps = integers.result()
            tensors += values
            grids += steps
        return self._as_coefficients(tensors, tuple(grids))

    def _as_coefficients(
        self, tensors: Sequence[Tensor], grids: tuple[Grid, ...] | None = None
    ) -> Coefficients:
        numbers = grouped(tensors, self._sizes)
        return Coefficients(self._parts, numbers, self._num_masks, grids)


def _new_numbers(
    backbone: Backbone, bank: MaskBank, spec: CoefficientSpec, num_classes: int, seed: int
) -> TrainableNumbers:
    main, num_masks = spec.parametrisation, len(bank) if spec.parametrisation.uses_masks else 0
    parts: list[Parametrisation] = []
    # With a head of its own a task can be learned without masks or maskable layers.
    alone = backbone.own_head is not None and (
        not num_masks if main.uses_masks else not backbone.layers
    )
    if not alone and not main.is_sparse:
        parts.append(main)
    if backbone.own_head is not None:
        parts.append(Head())
    if spec.tune and backbone.small_parameters(spec.tune):
        parts.append(NormBiasDeltas(spec.tune))
    if not alone and main.is_sparse:
        parts.append(main)  # the sparse integers come last
    coded = spec.bit_price is not None
    starts = [start for part in parts for start in part.start(backbone, bank, num_masks, coded)]
    layouts = layouts_of(parts, backbone, num_masks, num_classes)
    if not coded:
        flat = [layout for group in layouts for layout in group]
        real = [_filled(*pair, backbone) for pair in zip(starts, flat, strict=True)]
        return TrainableNumbers(parts, [len(group) for group in layouts], num_masks, real)
    dense = [layout for group in layouts for layout in group if not layout.sparse]
    integers: list[Integers] = []
    if dense:
        grids = [
            Grid(start.step, 0.0 if isinstance(start.value, Tensor) else start.value)
            for start in starts
        ]
        quantized = _quantized(dense, grids, [start.speed for start in starts], backbone)
        for place, start in enumerate(starts):
            if isinstance(start.value, Tensor):
                quantized.set(place, [start.value.to(backbone.device)])
        integers.append(quantized)
    sparse = [part for part in parts if part.is_sparse]
    integers += [part.integers(backbone, seed, (), ()) for part in sparse]
    return TrainableNumbers(parts, [len(group) for group in layouts], num_masks, integers=integers)


def _resumed_numbers(
    backbone: Backbone,
    bank: MaskBank,
    spec: CoefficientSpec,
    num_classes: int,
    seed: int,
    present: Coefficients,
) -> TrainableNumbers:
    """The task's numbers over the masks that they combine; a head grows by columns of zeros."""
    _check_same_kind(backbone, spec, present)
    layouts = layouts_of(present.parts, backbone, present.num_masks, num_classes)
    tensors = []
    for group, numbers in zip(layouts, present.numbers, strict=True):
        for layout, values in zip(group, numbers, strict=True):
            grown = torch.zeros(layout.shape, dtype=torch.float32, device=backbone.device)
            grown[..., : values.shape[-1]] = values
            tensors.append(grown)
    sizes = [len(group) for group in layouts]
    if present.grids is None:
        return TrainableNumbers(present.parts, sizes, present.num_masks, tensors)
    flat = [layout for group in layouts for layout in group]
    dense = [place for place, layout in enumerate(flat) if not layout.sparse]
    integers: list[Integers] = []
    if dense:
        speeds = [
            start.speed
            for part in present.parts
            for start in part.start(backbone, bank, present.num_masks, True)
        ]
        quantized = _quantized(
            [flat[place] for place in dense],
            [present.grids[place] for place in dense],
            speeds,
            backbone,
        )
        quantized.set(0, [tensors[place] for place in dense])
        integers.append(quantized)
    grids_of = grouped(present.grids, sizes)
    tensors_of = grouped(tensors, sizes)
    for part, own, steps in zip(present.parts, tensors_of, grids_of, strict=True):
        if part.is_sparse:
            integers.append(part.integers(backbone, seed, own, steps))
    return TrainableNumbers(present.parts, sizes, present.num_masks, integers=integers)


def _check_same_kind(backbone: Backbone, spec: CoefficientSpec, present: Coefficients) -> None:
    """Raises InputError for coefficients of another kind than the specification's."""
    deltas = [part for part in present.parts if isinstance(part, NormBiasDeltas)]
    wanted = [NormBiasDeltas(spec.tune)] if backbone.small_parameters(spec.tune) else []
    main = [part for part in present.parts if not isinstance(part, (Head, NormBiasDeltas))]
    # A task that is a head alone goes on under any settings.
    other = main and (main != [spec.parametrisation] or deltas != wanted)
    if other or (present.grids is None) != (spec.bit_price is None):
        raise InputError(
            "the task has coefficients of another kind than this learner's settings give "
            "(granularity, scales, precision, start, tune); update it with those of its learning"
        )


def _filled(start: Start, layout: TensorLayout, backbone: Backbone) -> Tensor:
    if isinstance(start.value, Tensor):
        return start.value.detach().to(backbone.device, torch.float32).clone()
    return torch.full(layout.shape, start.value, dtype=torch.float32, device=backbone.device)


def _quantized(
    layouts: Sequence[TensorLayout],
    grids: Sequence[Grid],
    speeds: Sequence[float],
    backbone: Backbone,
) -> QuantizedParameters:
    shapes = [layout.shape for layout in layouts]
    return QuantizedParameters(shapes, grids, speeds, backbone.device)
