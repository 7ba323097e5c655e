"""Coefficients, the handful of numbers that a task learns, and the weights they make.

A task's weights are W ⊙ Σ_t α_t M^t (eq. 1), with one α per mask and layer (`layer`, the paper) or
per mask and output unit (`unit`), optionally times a learned scale per output unit and per input:
W ⊙ (Σ_t α_t M^t) ⊙ (s_out s_inᵀ). With a number per `weight` each is a mask of its own: W ⊙ A. On
a network that was trained before they start at it: W ⊙ (1 + Σ_t α_t M^t). A head of the task's own
and changes of norms and biases go beside them. A "readout" mixes features instead of weights
(`coefficients.readout`). Coefficients are plain data; nothing is stored in a module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from impresslearn.checks import check_choice, check_number
from impresslearn.errors import InputError
from impresslearn.kernels import mix_layers
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.heads import TUNED, TunedKind
from impresslearn.networks.layers import MaskableLayer

Granularity = Literal["layer", "unit", "weight", "readout"]
GRANULARITIES = get_args(Granularity)
GROUPS = ("alpha", "output_scale", "input_scale", "head", "small", "weights")
"""The tensors of coefficients, in the order that they are kept in.

Numbers on weights are the last, as `trainable_coefficients` and `store_tensors` count on.
"""


@dataclass(frozen=True)
class CoefficientSpec:
    """Which numbers a task learns.

    residual: whether masks add to the network's weights, W ⊙ (1 + Σ α M), which start as they are.
    tune: which small parameters are learned beside the alphas: those of "norm" layers, and "bias".
    bit_price: None for any real numbers; otherwise they are learned as whole numbers on a grid, and
    a bit of their code costs as much as so many bits of cross-entropy, summed over the examples
    (1: the shortest description of labels and coefficients together).
    """

    granularity: Granularity = "layer"
    output_scale: bool = False
    input_scale: bool = False
    bit_price: float | None = None
    residual: bool = False
    tune: tuple[TunedKind, ...] = ()

    @classmethod
    def of(cls, coefficients: Coefficients, bit_price: float | None) -> CoefficientSpec:
        """That of coefficients which were learned at this price."""
        return cls(
            coefficients.granularity,
            coefficients.output_scale is not None,
            coefficients.input_scale is not None,
            bit_price,
            coefficients.residual,
            coefficients.tune,
        )

    def __post_init__(self) -> None:
        if unknown := [kind for kind in self.tune if kind not in TUNED]:
            raise InputError(f"tune must name {' and '.join(TUNED)} only, got {unknown[0]!r}")
        check_choice("granularity", self.granularity, GRANULARITIES)
        if self.bit_price is not None:
            check_number("bit_price", self.bit_price, 0.0)
        if self.granularity == "weight" and (self.output_scale or self.input_scale):
            line = "numbers on single weights need no scales; leave out output_scale, input_scale"
            raise InputError(line)
        if self.granularity == "weight" and self.bit_price is None:
            line = 'granularity="weight" has as many numbers as weights, which must be coded; set'
            raise InputError(f'{line} precision="coded"')
        if self.granularity == "readout" and (self.output_scale or self.input_scale or self.tune):
            line = "a readout changes no weights; leave out output_scale, input_scale and tune"
            raise InputError(line)


@dataclass(frozen=True)
class Grid:
    """Where the numbers of a tensor lie: at offset + step times whole numbers."""

    step: float
    offset: float


@dataclass(frozen=True)
class Readout:
    """That the head of a task reads features of several networks, and which.

    num_masks: the first masks of the bank, under each of which there is one; projection: the number
    of the learner's `Projection` of these features that is read, 0 for the features themselves.
    """

    num_masks: int
    projection: int = 0


@dataclass(frozen=True)
class Coefficients:
    """The numbers of one task, a tensor per maskable layer, float32.

    alpha: (N,) or (N, units); output_scale: (units,); input_scale: (inputs,), the second dimension
    of the weight (for convolutions the input channels of a group). head: of a task with its own,
    the weights (fan_in, K) and, where the layer has one, the bias (K,). small: of each group of
    `Backbone.small_parameters(tune)` all that is added to its members, in their units, one after
    the other. tune, residual: as in `CoefficientSpec`. grids: one a tensor, in the order of
    `tensors`, where they were learned on grids. readout: of a readout, whose head has as many rows
    as there are features and no alpha; the network itself comes before the masks if residual.
    weights: of granularity "weight", (units, fan_in): what each weight is multiplied by, or, if
    residual, is changed by as a share of itself; there is no alpha then.
    """

    alpha: tuple[Tensor, ...]
    output_scale: tuple[Tensor, ...] | None = None
    input_scale: tuple[Tensor, ...] | None = None
    head: tuple[Tensor, ...] | None = None
    small: tuple[Tensor, ...] | None = None
    tune: tuple[TunedKind, ...] = ()
    residual: bool = False
    grids: tuple[Grid, ...] | None = None
    readout: Readout | None = None
    weights: tuple[Tensor, ...] | None = None

    def __post_init__(self) -> None:
        alone = self.head or self.weights is not None
        if len({len(alpha) for alpha in self.alpha}) != 1 and (self.alpha or not alone):
            raise InputError("coefficients need one alpha per layer, all for the same masks")

    @property
    def num_masks(self) -> int:
        """N: how many masks of the bank, from its start, these coefficients combine."""
        if self.readout is not None:
            return self.readout.num_masks
        return len(self.alpha[0]) if self.alpha else 0

    @property
    def granularity(self) -> Granularity:
        """One of GRANULARITIES."""
        if self.readout is not None:
            return "readout"
        if self.weights is not None:
            return "weight"
        return "unit" if self.alpha and self.alpha[0].dim() == 2 else "layer"

    @property
    def numel(self) -> int:
        """How many numbers the task learned."""
        return sum(tensor.numel() for tensor in self.tensors())

    @property
    def groups(self) -> tuple[tuple[Tensor, ...] | None, ...]:
        """The tensors by group; None where there are none."""
        return tuple(getattr(self, name) for name in GROUPS)

    def tensors(self) -> Iterator[Tensor]:
        """All tensors, group by group."""
        yield from (tensor for group in self.groups for tensor in group or ())

    def matrix(self) -> Tensor:
        """(N, layers) float32: the alphas, averaged over units where there is one per unit."""
        if not self.alpha:
            return torch.zeros(0, 0)
        columns = [alpha.mean(dim=1) if alpha.dim() == 2 else alpha for alpha in self.alpha]
        return torch.stack([column.detach().float().cpu() for column in columns], dim=1)

    def like(
        self, tensors: Iterable[Tensor], grids: tuple[Grid, ...] | None = None
    ) -> Coefficients:
        """Other numbers in the same places; tensors: in the order of `tensors`."""
        return replace(self, **in_groups(tensors, self.groups), grids=grids)


def in_groups(values: Iterable[Any], groups: Sequence[Sequence[Any] | None]) -> dict[str, Any]:
    """Splits values into tuples as long as the groups, by name; None where a group is None."""
    left = iter(values)
    pairs = zip(GROUPS, groups, strict=True)
    return {name: None if of is None else tuple(islice(left, len(of))) for name, of in pairs}


def uniform_coefficients(
    layers: Sequence[MaskableLayer],
    num_masks: int,
    spec: CoefficientSpec | None = None,
    device: torch.device | str = "cpu",
) -> Coefficients:
    """Equal coefficients: the start of every optimisation.

    Scales are 1 and α = 1/N, or 0 where they add to the network's own weights.
    """
    spec = spec or CoefficientSpec()
    if num_masks < 1:
        raise InputError("the bank is empty; learn a basis task or add random masks first")
    by_unit = spec.granularity == "unit"
    shapes = [(num_masks, layer.units) if by_unit else (num_masks,) for layer in layers]
    outputs, inputs = (
        tuple(torch.ones(layer.shape[dimension], device=device) for layer in layers)
        for dimension in (0, 1)
    )
    return Coefficients(
        tuple(
            torch.full(shape, 0.0 if spec.residual else 1 / num_masks, device=device)
            for shape in shapes
        ),
        outputs if spec.output_scale else None,
        inputs if spec.input_scale else None,
        residual=spec.residual,
    )


def one_hot_coefficients(
    layers: Sequence[MaskableLayer],
    position: int,
    num_masks: int,
    device: torch.device | str = "cpu",
) -> Coefficients:
    """Coefficients that give mask `position` itself."""
    alpha = torch.nn.functional.one_hot(torch.tensor(position), num_masks).float().to(device)
    return Coefficients(tuple(alpha.clone() for _ in layers))


def mixed_weights(
    bank: MaskBank, weights: dict[str, Tensor], coefficients: Coefficients
) -> dict[str, Tensor]:
    """The effective weights of a task: layer name -> W ⊙ mask, differentiable in the coefficients.

    weights: the backbone's maskable weights, in the bank's layer order. Raises InputError unless
    the coefficients fit the bank's layers and number of masks.
    """
    by_weight, frozen = coefficients.weights, [weights[layer.name] for layer in bank.layers]
    numbers = coefficients.alpha if by_weight is None else by_weight
    if len(numbers) != len(bank.layers) or coefficients.num_masks > len(bank):
        own = f"{coefficients.num_masks} masks and {len(numbers)} layers"
        raise InputError(
            f"coefficients for {own} do not fit {len(bank)} masks and {len(bank.layers)} layers"
        )
    for dimension, scales in enumerate(coefficients.groups[1:3]):
        wanted = [(layer.shape[dimension],) for layer in bank.layers]
        if scales is not None and [tuple(scale.shape) for scale in scales] != wanted:
            found = [tuple(scale.shape) for scale in scales]
            raise InputError(f"scales of shapes {found} do not fit the layers; expected {wanted}")
    if by_weight is None:
        bits = [bank.bits(number, coefficients.num_masks) for number in range(len(bank.layers))]
        products = mix_layers(bits, coefficients.alpha, frozen)
    else:
        pairs = zip(frozen, by_weight, strict=True)
        products = [weight * each.reshape(weight.shape).to(weight.dtype) for weight, each in pairs]
    mixed = {}
    for number, weight in enumerate(products):
        if coefficients.residual:
            weight = frozen[number] + weight
        for dimension, scales in enumerate(coefficients.groups[1:3]):
            if scales is not None:
                trailing = [1] * (weight.dim() - 1 - dimension)
                weight = weight * scales[number].to(weight.dtype).reshape(-1, *trailing)
        mixed[bank.layers[number].name] = weight
    return mixed


def task_weights(
    bank: MaskBank, backbone: Backbone, coefficients: Coefficients
) -> dict[str, Tensor]:
    """All that a task computes with in place of the network's own, by parameter name.

    The mixed weights, its head, and the small parameters that it changes. Raises InputError as
    `mixed_weights`.
    """
    changed, groups = {}, backbone.small_parameters(coefficients.tune)
    for group, changes in zip(groups, coefficients.small or (), strict=True):
        parts = changes.split([prod(each.shape) for each in group])
        for each, change in zip(group, parts, strict=True):
            frozen = backbone.small[each.name]
            changed[each.name] = frozen + (each.unit * change).reshape(each.shape).to(frozen.dtype)
    masked = coefficients.alpha or coefficients.weights
    mixed = mixed_weights(bank, backbone.weights, coefficients) if masked else {}
    return mixed | head_weights(backbone, coefficients.head) | changed


def head_columns(head: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """A head by parameter name as `Coefficients` hold it: (fan_in, K) and (K,), float32."""
    return tuple(
        each.float() if each.ndim == 1 else each.float().flatten(1).t().contiguous()
        for each in head.values()
    )


def head_weights(backbone: Backbone, head: Sequence[Tensor] | None) -> dict[str, Tensor]:
    """A task's head, weights (fan_in, K) and perhaps a bias (K,), by parameter name.

    {} for None.
    """
    if head is None or backbone.own_head is None:
        return {}
    return {
        name: each.t().reshape(-1, *shape).to(backbone.dtype)
        for (name, shape), each in zip(backbone.own_head.shapes.items(), head, strict=True)
    }


def masked_weights(bank: MaskBank, weights: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The weights under one mask of the bank: layer name -> W ⊙ M; the other masks are not read."""
    _, packed = bank.packed(bank.index(name))
    alone = [torch.ones(1, device=bank.device)] * len(packed)
    frozen = [weights[layer.name] for layer in bank.layers]
    mixed = mix_layers([bits[None] for bits in packed], alone, frozen)
    return dict(zip((layer.name for layer in bank.layers), mixed, strict=True))
