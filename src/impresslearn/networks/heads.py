"""The parameters that a task may have beside masked weights: a last layer and small parameters.

A network with `head="own"` gives every task a last layer with an output for each of its classes.
Small parameters are the scales and shifts of norms, and biases.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from impresslearn.errors import InputError
from impresslearn.networks.layers import is_norm, last_layer, units_in_columns

HeadKind = Literal["shared", "own"]
HEADS: tuple[HeadKind, ...] = get_args(HeadKind)
TunedKind = Literal["norm", "bias"]
TUNED: tuple[TunedKind, ...] = get_args(TunedKind)
"""What a task can tune."""
WEIGHTS = ("weight", "in_proj_weight", "q_proj_weight")
"""What a layer with a bias may call its weights."""


@dataclass(frozen=True)
class Head:
    """The last layer of a network in which every task has its own last layer.

    - `name`: the name of its weight.
    - `shapes`: parameter name -> shape of its weight and perhaps its bias, without the first
      dimension, the classes.
    """

    name: str
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, module: nn.Module) -> Head:
        """The head of a module. Raises InputError if its weights are computed or shared."""
        last = last_layer(module)
        if last.part or not last.name.endswith("weight"):
            raise InputError(f'the last layer {last.name} is not linear; use head="shared"')
        named, bias = dict(module.named_parameters(remove_duplicate=False)), last.name[:-6] + "bias"
        if last.name not in named:
            raise InputError(f'the last layer {last.name} is computed; use head="shared"')
        shapes = {last.name: last.shape[1:]} | ({bias: ()} if bias in named else {})
        for name in shapes:
            if sum(parameter is named[name] for parameter in named.values()) > 1:
                raise InputError(
                    f'the last layer {last.name} shares its weights; use head="shared"'
                )
        return cls(last.name, shapes)

    @property
    def fan_in(self) -> int:
        """The number of features that it reads."""
        return prod(self.shapes[self.name])

    def zeros(self, num_classes: int, like: Tensor) -> dict[str, Tensor]:
        """A head to start from, by parameter name."""
        return {
            name: torch.zeros((num_classes, *shape), device=like.device, dtype=like.dtype)
            for name, shape in self.shapes.items()
        }


@dataclass(frozen=True)
class SmallParameter:
    """The scale or shift of a norm, or a bias.

    - `unit`: the change that counts as 1, so that changes of different layers are of one size.
    """

    name: str
    shape: tuple[int, ...]
    unit: float


SmallGroups = tuple[tuple[TunedKind, tuple[SmallParameter, ...]], ...]


def small_parameters(module: nn.Module, head: Head | None) -> SmallGroups:
    """Scales of norms, shifts of norms, and biases of other layers but the head, with their kinds.

    Scales of all norms are one group and shifts another, so that a grid of rounded numbers is paid
    once and not for every layer. A parameter that several layers share is listed once.
    """
    seen: set[int] = set()
    scales: list[SmallParameter] = []
    shifts: list[SmallParameter] = []
    biases: list[SmallParameter] = []
    for prefix, layer in module.named_modules():
        parameters = dict(layer.named_parameters(prefix, recurse=False))
        unit = _unit(layer, prefix, parameters)
        for name, parameter in parameters.items():
            short = name.rpartition(".")[2]
            is_shift, in_norm = short in ("bias", "in_proj_bias"), is_norm(layer)
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if (in_norm or is_shift) and (head is None or name not in head.shapes):
                group = (shifts if in_norm else biases) if is_shift else scales
                group.append(SmallParameter(name, tuple(parameter.shape), unit))
    return ("norm", tuple(scales)), ("norm", tuple(shifts)), ("bias", tuple(biases))


def _unit(layer: nn.Module, prefix: str, parameters: dict[str, nn.Parameter]) -> float:
    """The size of a norm's scales, or of an output of any other layer.

    An output's is the root mean square of the weights times the root of their fan-in.
    """
    weight = None
    for word in WEIGHTS:
        weight = parameters.get(f"{prefix}.{word}" if prefix else word)
        if weight is not None:
            break
    if weight is None or weight.is_meta or not weight.any():
        return 1.0
    size = float(weight.detach().cpu().double().square().mean().sqrt())
    if is_norm(layer):
        return size
    fan_in = len(weight) if units_in_columns(layer) else prod(weight.shape[1:])
    return size * fan_in**0.5
