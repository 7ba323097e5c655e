"""Parametrisations for a task's own head, and for changes of norms and biases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import (
    Coefficients,
    Parametrisation,
    Start,
    Starts,
    Tensors,
    Weights,
    register_parametrisation,
)
from impresslearn.coefficients.quantisation import TensorLayout
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.layers import SmallParameter, TunedKind
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics

DELTA_STEP = 0.05  # the first step of coded changes of norms and biases


@dataclass(frozen=True)
class Head(Parametrisation):
    """The task's own last layer: weights (features, K), and a bias (K,) where the layer has one."""

    kind = "head"

    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        features = backbone.own_head.fan_in if backbone.own_head else 0
        return head_layouts(backbone, self.kind, features, num_classes)

    def start(self, backbone: Backbone, bank: MaskBank, num_masks: int, coded: bool) -> Starts:
        shapes = backbone.head_shapes.values()
        return [Start(0.0 if shape else backbone.head_bias) for shape in shapes]

    def weights(self, backbone: Backbone, bank: MaskBank, tensors: Tensors) -> Weights:
        return head_weights(backbone, tensors)


def head_layouts(
    backbone: Backbone, kind: str, features: int, num_classes: int
) -> list[TensorLayout]:
    """Weights (features, K), and a bias (K,) where the network's last layer has one."""
    # A bias has only the dimension of the classes, so its shape in the layer is ().
    return [
        TensorLayout(f"{kind}.{name}", (features, num_classes) if shape else (num_classes,))
        for name, shape in backbone.head_shapes.items()
    ]


def head_coefficients(head: Mapping[str, Tensor]) -> Coefficients:
    """The numbers of a task that learned only a head; head: name -> (K, features, ...) or (K,)."""
    # Features come first, because precisions of few bits have a separate step for each class.
    wide = [values.float() for values in head.values()]
    columns = (each if each.ndim == 1 else each.flatten(1).t().contiguous() for each in wide)
    return Coefficients((Head(),), (tuple(columns),))


def head_weights(backbone: Backbone, head: Sequence[Tensor] | None) -> dict[str, Tensor]:
    """A task's head as the parameters of the last layer, by name; {} for None."""
    if head is None:
        return {}
    return {
        name: values.t().reshape(-1, *shape).to(backbone.head_dtype)
        for (name, shape), values in zip(backbone.head_shapes.items(), head, strict=True)
    }


@dataclass(frozen=True)
class NormBiasDeltas(Parametrisation):
    """Changes of norms' scales and shifts ("norm") and of biases, in the unit of each parameter."""

    tune: tuple[TunedKind, ...] = ()

    kind = "deltas"

    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        """A vector for each group of parameters: the scales, the shifts, the biases."""
        groups = enumerate(backbone.small_parameters(self.tune))
        sizes = [(number, sum(prod(member.shape) for member in group)) for number, group in groups]
        return [TensorLayout(f"delta.{number}", (size,)) for number, size in sizes]

    def start(self, backbone: Backbone, bank: MaskBank, num_masks: int, coded: bool) -> Starts:
        return [Start(0.0, DELTA_STEP)] * len(backbone.small_parameters(self.tune))

    def weights(self, backbone: Backbone, bank: MaskBank, tensors: Tensors) -> Weights:
        changed = {}
        for member, delta in self.members(backbone, tensors):
            frozen = backbone.small[member.name]
            moved = (member.unit * delta).reshape(member.shape).to(frozen.dtype)
            changed[member.name] = frozen + moved
        return changed

    def members(self, backbone: Backbone, tensors: Tensors) -> list[tuple[SmallParameter, Tensor]]:
        """Each parameter of the network with its part of the tensors."""
        pairs: list[tuple[SmallParameter, Tensor]] = []
        for group, values in zip(backbone.small_parameters(self.tune), tensors, strict=True):
            parts = values.split([prod(member.shape) for member in group])
            pairs += zip(group, parts, strict=True)
        return pairs


def can_fold(backbone: Backbone, tune: Sequence[TunedKind]) -> bool:
    """Whether all batch norms share statistics between tasks and have tuned scales and shifts."""
    tuned = {member.name for member in chain(*backbone.small_parameters(tune))}
    needed = set[str]()
    for prefix, _ in batch_norms(backbone.module):
        needed |= {f"{prefix}weight", f"{prefix}bias"}
    return backbone.shares_statistics and not backbone.normalises_by_batch and needed <= tuned


@torch.no_grad()
def folded(
    backbone: Backbone,
    deltas: NormBiasDeltas,
    tensors: Sequence[Tensor],
    gathered: Statistics,
    kept: Statistics,
) -> list[Tensor]:
    """Deltas with which the network computes the same for the kept statistics as for the gathered.

    With gathered mean m and deviation s, and kept m₀ and s₀, (x - m) / s · γ + b is equal to
    (x - m₀) / s₀ · γ' + b' for γ' = γ s₀ / s and b' = b + (m₀ - m) γ / s.
    """
    changed = [values.clone() for values in tensors]
    parts = {pair[0].name: pair for pair in deltas.members(backbone, changed)}
    for prefix, norm in batch_norms(backbone.module):
        shift_of_mean = kept[f"{prefix}running_mean"] - gathered[f"{prefix}running_mean"]
        deviation = (kept[f"{prefix}running_var"] + norm.eps).sqrt()
        own_deviation = (gathered[f"{prefix}running_var"] + norm.eps).sqrt()
        scale, scale_delta = parts[f"{prefix}weight"]
        shift, shift_delta = parts[f"{prefix}bias"]
        gamma = backbone.small[scale.name] + scale.unit * scale_delta
        # The parts are views of `changed`, so writing to them changes the result.
        shift_delta += gamma * shift_of_mean / own_deviation / shift.unit
        new_gamma = gamma * deviation / own_deviation
        scale_delta.copy_((new_gamma - backbone.small[scale.name]) / scale.unit)
    return changed


register_parametrisation(Head)
register_parametrisation(NormBiasDeltas)
