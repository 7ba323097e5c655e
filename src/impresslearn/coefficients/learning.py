"""Trains a task's numbers with gradients: eqs. 1 and 2 of the paper, for any parametrisation.

`trainable_numbers` sets up the tensors of a parametrisation for training, as real numbers or as
integers on grids. `TaskTraining.fit` trains them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST
from impresslearn.coefficients.deltas import Head, NormBiasDeltas, can_fold, folded
from impresslearn.coefficients.parametrisation import (
    Coefficients,
    CoefficientSpec,
    Parametrisation,
    Start,
    grouped,
    layouts_of,
    task_weights,
)
from impresslearn.coefficients.quantisation import Grid, TensorLayout, encode_tensors
from impresslearn.coefficients.quantized_parameters import QuantizedParameters
from impresslearn.errors import InputError, TrainingError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.prediction import Statistics
from impresslearn.training.loop import Recipe, TaskTraining, Trainable, unit_norm_penalty

# At least 300 steps of small batches: three epochs of 50 examples would be far too few steps.
COEFFICIENT_RECIPE = Recipe(
    optimizer="adam", lr=0.02, schedule="cosine", epochs=3, min_steps=300, batch_fraction=1 / 8
)

# Gains of the PI controller of the price's logarithm. The size reacts late to the price, so an
# integral alone would overshoot.
GAIN, INTEGRAL_GAIN = 5.0, 0.1
# Trainings aim at these fractions of the budget. Mixtures from scratch end above the second one.
AIM, MIXTURE_AIM = 0.97, 0.92


@dataclass
class Budget:
    """Controls the price of a bit during a training, so that the code fits into max_bytes.

    - max_bytes: limit on the code of all numbers.
    - price: the current price of a bit. It begins with the lowest price.
    - excess: the relative excess of the final code over max_bytes, before it is cut to fit.
    """

    max_bytes: int
    price: float
    excess: float = 0.0

    def __post_init__(self) -> None:
        self._lowest, self._integral, self._peak = self.price, 0.0, 0

    def control(self, size: int, share: float, progress: float) -> None:
        """Sets the price for a code of this size, to end at this share of max_bytes."""
        end = share * self.max_bytes
        self._peak = max(self._peak, size)
        # Early in a training, a code takes several budgets. A high price then would set useful
        # numbers to 0 for good, so the aim falls as slowly as sizes do at a constant price.
        aim = end + max(0.0, self._peak - end) * (1 - progress) ** 4
        ahead = math.log((size + 1) / (aim + 1))
        self._integral = max(0.0, self._integral + INTEGRAL_GAIN * ahead)
        raised = max(0.0, min(self._integral + GAIN * ahead, 12.0))  # e^12 times at most
        self.price = self._lowest * math.exp(raised)


def trainable_numbers(
    training: TaskTraining,
    bank: MaskBank,
    spec: CoefficientSpec,
    *,
    penalty: float,
    previous: Coefficients | None,
    budget: Budget | None,
    head: bool,
) -> Trainable:
    """A task's numbers to train, with the price of their bits and the penalty of eq. 2.

    - training: the task's data and recipe. Its seed also sets the random start values.
    - penalty: λ of eq. 2, for the coefficients of masks.
    - previous: the task's numbers to continue from; None starts from the beginning.
    - budget: limit on the bytes. The price of bits is adjusted so that the code ends near it. If
      the code is too long in the end, small integers are set to 0.
    - head: whether to train the task's own head too, if it has one. Ignored with `previous`.

    Raises InputError for an empty bank if masks are needed, and for previous numbers whose kind
    differs from the settings.
    """
    backbone, examples = training.backbone, len(training.source)
    if previous is None:
        parts, num_masks = _parts_of_new_task(backbone, bank, spec, head)
    else:
        _check_same_kind(backbone, spec, previous)
        parts, num_masks = previous.parts, previous.num_masks
    layouts = layouts_of(parts, backbone, num_masks, training.num_classes)
    groups = _leaves(training, bank, spec, parts, num_masks, layouts, previous)
    is_sparse = spec.parametrisation.is_sparse
    # The full price from the first step would shrink a mixture to zeros before it becomes useful.
    # Numbers that start from a pretrained network are useful at once. So are those of a learned
    # task, unless they are sparse integers.
    steps, warmup = training.recipe.total_steps(examples), 0.0
    if spec.bit_price and not spec.residual and (previous is None or is_sparse):
        warmup = spec.parametrisation.price_warmup * steps
    # A training compares its code with the budget about 60 times; never during the warm-up.
    control_every = max(1, steps // 60)
    share = AIM if is_sparse or spec.residual else MIXTURE_AIM
    step = 0

    def tensors() -> tuple[tuple[Tensor, ...], ...]:
        return grouped(list(chain.from_iterable(group.values() for group in groups)), layouts)

    def step_weights() -> tuple[dict[str, Tensor], Tensor | float]:
        nonlocal step
        if budget is not None and step >= warmup and step % control_every == 0:
            budget.control(size_of(result()), share, (step - warmup) / (steps - warmup))
        # One step of eq. 1: the weights W ⊙ Σ_t α_t M^t, or what other parametrisations make of W.
        coefficients = Coefficients(parts, tensors(), num_masks)
        cost: Tensor | float = 0.0
        if spec.bit_price:
            risen = min(step / warmup, 1.0) if warmup else 1.0
            # The objective is bits of labels plus bits of numbers, converted to nats per example.
            bits = sum(group.bits() for group in groups)
            price = risen * (budget.price if budget else spec.bit_price)
            cost = bits * (price * math.log(2) / examples)
        if penalty and coefficients.alpha:
            cost = cost + penalty * unit_norm_penalty(coefficients.alpha)
        step += 1
        return task_weights(bank, backbone, coefficients), cost

    @torch.no_grad()
    def result(dead_zone: float = 0.5) -> Coefficients:
        values: list[Tensor] = []
        grids: list[Grid] = []
        for group in groups:
            rounded, group_grids = group.result(dead_zone)
            values, grids = values + rounded, grids + group_grids
        kept_grids = None if spec.bit_price is None else tuple(grids)
        return Coefficients(parts, grouped(values, layouts), num_masks, kept_grids)

    def size_of(coefficients: Coefficients) -> int:
        if not all(tensor.isfinite().all() for tensor in coefficients.tensors()):
            line = "the numbers became NaN or infinite while they were trained"
            raise TrainingError(f"{line}; lower the learning rate, or give the network in float32")
        flat = list(chain(*layouts))
        return len(encode_tensors(coefficients.tensors(), flat, "coded", coefficients.grids))

    def result_within() -> Coefficients:
        """The result with the smallest dead zone that makes it fit the budget.

        Integers become 0 if their values before rounding lie in the dead zone around 0.
        """
        learned = result()
        if budget is None:
            return learned
        budget.excess = size_of(learned) / max(1, budget.max_bytes) - 1
        if budget.excess <= 0:
            return learned
        low, high = 0.5, LARGEST + 1.0  # with `high` all integers are 0
        for _ in range(20):  # by bisection
            middle = math.sqrt(low * high)
            if size_of(result(middle)) <= budget.max_bytes:
                high = middle
            else:
                low = middle
        return result(high)

    @torch.no_grad()
    def fold(gathered: Statistics, kept: Statistics) -> None:
        """Folds gathered norm statistics into the changes of scales and shifts."""
        first = 0
        for part, layout, values in zip(parts, layouts, tensors(), strict=True):
            if isinstance(part, NormBiasDeltas):
                groups[0].set(first, folded(backbone, part, values, gathered, kept))
            first += len(layout)

    # Previous numbers already have gathered statistics folded into them.
    can = previous is None and can_fold(backbone, spec.tune)
    quantized = groups[0] if isinstance(groups[0], QuantizedParameters) else None
    parameters = list(chain.from_iterable(group.parameters for group in groups))
    return Trainable(parameters, step_weights, result_within, fold if can else None, quantized)


class _RealParameters:
    """Real tensors to train, with the interface of `QuantizedParameters`."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.parameters = [tensor.requires_grad_(True) for tensor in tensors]

    def values(self) -> list[Tensor]:
        return self.parameters

    def set(self, first: int, tensors: Sequence[Tensor]) -> None:
        for tensor, values in zip(self.parameters[first:], tensors, strict=False):
            tensor.copy_(values)

    def result(self, dead_zone: float) -> tuple[list[Tensor], list[Grid]]:
        return [tensor.detach().clone() for tensor in self.parameters], []


def _parts_of_new_task(
    backbone: Backbone, bank: MaskBank, spec: CoefficientSpec, head: bool
) -> tuple[tuple[Parametrisation, ...], int]:
    """The parametrisations of a new task, and the number of masks that it combines."""
    main = spec.parametrisation
    num_masks = len(bank) if main.uses_masks else 0
    parts: list[Parametrisation] = []
    if backbone.own_head is not None and head:
        parts.append(Head())
    if spec.tune and backbone.small_parameters(spec.tune):
        parts.append(NormBiasDeltas(spec.tune))
    # A task with its own head can do without masks and without maskable layers.
    if backbone.own_head is None or (num_masks if main.uses_masks else backbone.layers):
        parts.insert(len(parts) if main.is_sparse else 0, main)  # sparse integers come last
    return tuple(parts), num_masks


def _leaves(
    training: TaskTraining,
    bank: MaskBank,
    spec: CoefficientSpec,
    parts: Sequence[Parametrisation],
    num_masks: int,
    layouts: Sequence[Sequence[TensorLayout]],
    previous: Coefficients | None,
) -> list[Any]:
    """The objects that hold the leaves: one for all dense tensors, and one per sparse part."""
    backbone, is_coded = training.backbone, spec.bit_price is not None
    values, grids, speeds, sparse = [], [], [], []
    kept = grouped(previous.grids, layouts) if previous and previous.grids else None
    for number, (part, layout) in enumerate(zip(parts, layouts, strict=True)):
        initial = previous.numbers[number] if previous else ()
        initial_grids = kept[number] if kept else ()
        if part.is_sparse:
            sparse.append(part.integers(backbone, training.seed, initial, initial_grids))
            continue
        starts = part.start(backbone, bank, num_masks, is_coded) or [Start(0.0)] * len(layout)
        for place, start in enumerate(starts):
            shape = layout[place].shape
            tensor = torch.full(shape, start.value, dtype=torch.float32, device=backbone.device)
            if initial:
                # A head grows by one column per new class, with the usual start value.
                tensor[..., : initial[place].shape[-1]] = initial[place]
            grid = initial_grids[place] if initial_grids else Grid(start.step, start.value)
            values.append(tensor)
            # A grid of step 0 means that all integers are 0: begin with the usual grid.
            grids.append(grid if grid.step else Grid(start.step, grid.offset))
            speeds.append(start.speed)
    if not is_coded:
        return [_RealParameters(values)]
    if not values:
        return sparse
    shapes = [tuple(tensor.shape) for tensor in values]
    quantized = QuantizedParameters(shapes, grids, speeds, backbone.device)
    quantized.set(0, values)
    return [quantized, *sparse]


def _check_same_kind(backbone: Backbone, spec: CoefficientSpec, previous: Coefficients) -> None:
    """Raises InputError for coefficients of another kind than the specification's."""
    deltas = [part for part in previous.parts if isinstance(part, NormBiasDeltas)]
    main = [part for part in previous.parts if not isinstance(part, (Head, NormBiasDeltas))]
    wanted = [NormBiasDeltas(spec.tune)] if backbone.small_parameters(spec.tune) else []
    # A task without coefficients of masks or weights can continue with any settings.
    other = main and (main != [spec.parametrisation] or deltas != wanted)
    if other or (previous.grids is None) != (spec.bit_price is None):
        line = "the task has coefficients of another kind than this learner's settings give"
        raise InputError(f"{line}; update it with the settings that it was learned with")
