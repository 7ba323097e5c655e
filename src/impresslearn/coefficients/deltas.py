"""What a task may learn beside its masks: a head of its own, and changes of norms and biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from impresslearn.coefficients.parametrisation import (
    Coefficients,
    Parametrisation,
    Start,
    register_parametrisation,
)
from impresslearn.coefficients.quantisation import TensorLayout
from impresslearn.errors import InputError
from impresslearn.masks.bank import MaskBank
from impresslearn.networks import Backbone
from impresslearn.networks.layers import SmallParameter, TunedKind
from impresslearn.networks.norms import batch_norms
from impresslearn.networks.prediction import Statistics

HEAD_STEP, DELTA_STEP = 0.1, 0.05
"""The first steps of coded heads and of coded changes of norms and biases."""


@dataclass(frozen=True)
class Head(Parametrisation):
    """The task's own last layer: weights (features, K), and a bias (K,) where the layer has one."""

    kind = "head"

    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        """The weights, and perhaps the bias."""
        own = backbone.own_head
        if own is None:
            raise ValueError(f"the tasks of {backbone.name} share its head")
        return [
            TensorLayout(f"head.{name}", (own.fan_in, num_classes) if shape else (num_classes,))
            for name, shape in own.shapes.items()
        ]

    def start(
        self, backbone: Backbone, bank: MaskBank, num_masks: int, coded: bool
    ) -> Sequence[Start]:
        """Zeros."""
        return [Start(0.0, HEAD_STEP)] * len(backbone.own_head.shapes if backbone.own_head else ())

    def weights(
        self, backbone: Backbone, bank: MaskBank, tensors: Sequence[Tensor]
    ) -> Mapping[str, Tensor]:
        """The parameters of the last layer."""
        return head_weights(backbone, tensors)


def head_columns(head: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """A head by parameter name as a task keeps it: (features, K) and perhaps (K,), float32."""
    return tuple(
        values.float() if values.ndim == 1 else values.float().flatten(1).t().contiguous()
        for values in head.values()
    )


def head_coefficients(head: Mapping[str, Tensor]) -> Coefficients:
    """A head by parameter name as all that a task learned."""
    return Coefficients((Head(),), (head_columns(head),))


def head_weights(backbone: Backbone, head: Sequence[Tensor] | None) -> dict[str, Tensor]:
    """A task's head as the parameters of the last layer, by name; {} for None."""
    if head is None or backbone.own_head is None:
        return {}
    return {
        name: values.t().reshape(-1, *shape).to(backbone.dtype)
        for (name, shape), values in zip(backbone.own_head.shapes.items(), head, strict=True)
    }


@dataclass(frozen=True)
class NormBiasDeltas(Parametrisation):
    """Changes of the scales and shifts of norms, and of biases, in the units of each parameter.

    - tune: which of them: "norm", "bias".
    """

    tune: tuple[TunedKind, ...] = ()

    kind = "deltas"

    def layout(self, backbone: Backbone, num_masks: int, num_classes: int) -> list[TensorLayout]:
        """A vector for each group of parameters: the scales, the shifts, the biases."""
        groups = backbone.small_parameters(self.tune)
        return [
            TensorLayout(f"delta.{number}", (sum(prod(member.shape) for member in group),))
            for number, group in enumerate(groups)
        ]

    def start(
        self, backbone: Backbone, bank: MaskBank, num_masks: int, coded: bool
    ) -> Sequence[Start]:
        """Zeros."""
        return [Start(0.0, DELTA_STEP)] * len(backbone.small_parameters(self.tune))

    def weights(
        self, backbone: Backbone, bank: MaskBank, tensors: Sequence[Tensor]
    ) -> Mapping[str, Tensor]:
        """The changed parameters by name."""
        changed = {}
        for member, delta in self.members(backbone, tensors):
            frozen = backbone.small[member.name]
            moved = (member.unit * delta).reshape(member.shape).to(frozen.dtype)
            changed[member.name] = frozen + moved
        return changed

    def members(
        self, backbone: Backbone, tensors: Sequence[Tensor]
    ) -> list[tuple[SmallParameter, Tensor]]:
        """Each parameter with its part of the tensors."""
        pairs: list[tuple[SmallParameter, Tensor]] = []
        for group, values in zip(backbone.small_parameters(self.tune), tensors, strict=True):
            parts = values.split([prod(member.shape) for member in group])
            pairs += zip(group, parts, strict=True)
        return pairs


def can_fold(backbone: Backbone, tune: Sequence[TunedKind]) -> bool:
    """Whether a task's norm statistics can be folded into the scales and shifts that it tunes.

    All tasks must share the network's statistics, and every batch norm must be tuned.
    """
    tuned = {member.name for group in backbone.small_parameters(tune) for member in group}
    prefixes = [f"{name}." if name else "" for name, _ in batch_norms(backbone.module)]
    tuned_all = all({f"{prefix}weight", f"{prefix}bias"} <= tuned for prefix in prefixes)
    return tuned_all and backbone.shares_statistics and not backbone.normalises_by_batch


def check_fold(backbone: Backbone, tune: Sequence[TunedKind], fold_after: float) -> None:
    """Raises InputError where norm statistics are to be folded and cannot be."""
    if fold_after and not can_fold(backbone, tune):
        raise InputError(
            f"fold_after = {fold_after} has no effect on {backbone.name}: it folds statistics that "
            "tasks share into tuned batch norms with scales and shifts; leave it out"
        )


@torch.no_grad()
def folded(
    backbone: Backbone,
    deltas: NormBiasDeltas,
    tensors: Sequence[Tensor],
    gathered: Statistics,
    kept: Statistics,
) -> list[Tensor]:
    """Deltas under which the kept norm statistics do what the gathered ones did.

    (x - m) / s · γ + b with mean m and deviation s is (x - m₀) / s₀ · γ' + b' for γ' = γ s₀ / s and
    b' = b + (m₀ - m) γ / s.
    """
    changed = [values.clone() for values in tensors]
    places = {member.name: (member, part) for member, part in deltas.members(backbone, changed)}
    for name, norm in batch_norms(backbone.module):
        prefix = f"{name}." if name else ""
        mean, own_mean = (s[f"{prefix}running_mean"] for s in (kept, gathered))
        deviation, own_deviation = (
            (s[f"{prefix}running_var"] + norm.eps).sqrt() for s in (kept, gathered)
        )
        scale, scale_delta = places[f"{prefix}weight"]
        shift, shift_delta = places[f"{prefix}bias"]
        gamma = backbone.small[scale.name] + scale.unit * scale_delta
        # The parts are views of `changed`: writing to them changes the result.
        shift_delta += gamma * (mean - own_mean) / own_deviation / shift.unit
        new_gamma = gamma * deviation / own_deviation
        scale_delta.copy_((new_gamma - backbone.small[scale.name]) / scale.unit)
    return changed


register_parametrisation(Head)
register_parametrisation(NormBiasDeltas)
