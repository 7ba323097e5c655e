"""What a task may have of its own beside masked weights: a last layer, and small parameters.

A network with `head="own"` gives every task a last layer with an output for each of its classes.
Small parameters are the scales and shifts of norms, and biases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from impresslearn.errors import InputError
from impresslearn.networks.layers import is_norm, last_layer, units_in_columns

HeadKind = Literal["shared", "own"]
HEADS: tuple[HeadKind, ...] = get_args(HeadKind)
TunedKind = Literal["norm", "bias", "older_bias"]
TUNED: tuple[TunedKind, ...] = ("norm", "bias")
"""What a task can tune. "older_bias" is how tasks in older stores have "bias"."""


WEIGHTS = ("weight", "in_proj_weight", "q_proj_weight")
"""What a layer with a bias may call its weights."""


@dataclass(frozen=True)
class Head:
    """The last layer of a network where every task has its own.

    name: that of its weight; shapes: of its weight and perhaps its bias, by parameter name, without
    the first dimension, the classes.
    """

    name: str
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, module: nn.Module) -> Head:
        """That of a module. Raises InputError for one whose weights other layers use too."""
        last = last_layer(module)
        if last.part or not last.name.endswith("weight"):
            raise InputError(f'the last layer {last.name} is no linear one; use head="shared"')
        named, bias = dict(module.named_parameters(remove_duplicate=False)), last.name[:-6] + "bias"
        if last.name not in named:
            raise InputError(f'the last layer {last.name} is computed; use head="shared"')
        shapes = {last.name: last.shape[1:]} | ({bias: ()} if bias in named else {})
        if any(sum(each is named[name] for each in named.values()) > 1 for name in shapes):
            raise InputError(f'the last layer {last.name} shares its weights; use head="shared"')
        return cls(last.name, shapes)

    @property
    def fan_in(self) -> int:
        """The features that it reads."""
        return prod(self.shapes[self.name])

    def zeros(self, num_classes: int, like: Tensor) -> dict[str, Tensor]:
        """A head for so many classes to start from, by parameter name."""
        return {
            name: torch.zeros((num_classes, *shape), device=like.device, dtype=like.dtype)
            for name, shape in self.shapes.items()
        }


@dataclass(frozen=True)
class SmallParameter:
    """The scale or shift of a norm, or a bias.

    unit: the change that counts as 1, so that changes of different layers are of one size.
    """

    name: str
    shape: tuple[int, ...]
    unit: float


SmallGroups = tuple[tuple[TunedKind, tuple[SmallParameter, ...]], ...]


def small_parameters(module: nn.Module, head: Head | None) -> SmallGroups:
    """Scales of norms, shifts of norms, and biases of other layers but the head, with their kinds.

    Units: of scales and shifts the root mean square of the scales, of biases that of the layer's
    weights times the root of their fan-in. A parameter that several layers share is listed once.
    Older biases leave out those of packed projections, and took the columns of GPT-2's `Conv1D` for
    its fan-in.
    """
    seen: set[int] = set()
    groups: dict[str, list[SmallParameter]] = {
        "scales": [],
        "shifts": [],
        "biases": [],
        "older": [],
    }
    for prefix, layer in module.named_modules():
        own = dict(layer.named_parameters(prefix, recurse=False))
        names = [f"{prefix}.{word}" if prefix else word for word in WEIGHTS]
        weight = next((own[name] for name in names if name in own), None)
        norm, unit, older = is_norm(layer), 1.0, 1.0
        if weight is not None and not weight.is_meta and weight.any():
            size = float(weight.detach().cpu().double().square().mean().sqrt())
            rows = size * prod(weight.shape[1:]) ** 0.5
            columns = units_in_columns(layer)
            unit, older = (size if norm else size * len(weight) ** 0.5 if columns else rows), rows
        for name, parameter in own.items():
            short = name.rpartition(".")[2]
            shift = short in ("bias", "in_proj_bias")
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if (norm or shift) and (head is None or name not in head.shapes):
                group = ("shifts" if norm else "biases") if shift else "scales"
                found = SmallParameter(name, tuple(parameter.shape), unit)
                groups[group].append(found)
                if group == "biases" and short == "bias":
                    groups["older"].append(replace(found, unit=older))
    scales, shifts, biases, before = map(tuple, groups.values())
    return ("norm", scales), ("norm", shifts), ("bias", biases), ("older_bias", before)
