"""What is done to inputs after they were read: a shape, then a mean and a standard deviation.

`Arrangement` is the same for tables, arrays and images, and for a batch as for a single image that
is read while training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from impresslearn.errors import InputError

Numbers = float | Sequence[float]


@dataclass(frozen=True)
class Arrangement:
    """The shape of one input (None: as it was read), and the numbers to normalise by."""

    shape: tuple[int, ...] | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @classmethod
    def of(
        cls, shape: Sequence[int] | None, mean: Numbers | None, std: Numbers | None
    ) -> Arrangement:
        """Raises InputError for sizes below 1, numbers not finite, and a std not above 0."""
        return cls(
            None if shape is None else _checked_shape(shape),
            _numbers("mean", mean, 0.0),
            _numbers("std", std, 1.0),
        )

    def apply(self, inputs: Tensor) -> Tensor:
        """(n, ...) float inputs in the shape asked for, normalised; the given tensor may change.

        Flat inputs are folded, others flattened; sizes of 1 come and go; (h, w, c) becomes
        (c, h, w). Raises InputError for other changes of shape, and for as many means as there are
        neither channels nor columns.
        """
        if self.shape is not None:
            inputs = _reshaped(inputs, self.shape)
        if self.mean == (0.0,) and self.std == (1.0,):
            return inputs
        return inputs.sub_(_spread("mean", self.mean, inputs)).div_(
            _spread("std", self.std, inputs)
        )

    def is_grey(self, height: int, width: int) -> bool:
        """Whether the shape asks for one number a pixel of an image of this size."""
        return self.shape is not None and math.prod(self.shape) == height * width


def _reshaped(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    given = tuple(inputs.shape[1:])
    if given == shape:
        return inputs
    if len(given) == len(shape) == 3 and given == (*shape[1:], shape[0]):
        return inputs.movedim(-1, 1).contiguous()
    same_but_ones = [size for size in given if size > 1] == [size for size in shape if size > 1]
    # Any other change, say (3, 32, 32) from (32, 32, 3) by reshape, would shuffle the pixels.
    if math.prod(given) == math.prod(shape) and (
        same_but_ones or len(given) == 1 or len(shape) == 1
    ):
        return inputs.reshape(len(inputs), *shape)
    raise InputError(f"inputs of shape {given} cannot be given the shape {shape}")


def _spread(name: str, values: tuple[float, ...], inputs: Tensor) -> Tensor:
    """Numbers along the channels (or columns) of (n, channels, ...)."""
    if len(values) > 1 and (inputs.dim() < 2 or len(values) != inputs.shape[1]):
        raise InputError(
            f"{name} needs one number, or one for each of the channels of inputs of shape "
            f"{tuple(inputs.shape[1:])}, got {len(values)}"
        )
    return torch.tensor(values, dtype=inputs.dtype).view(-1, *[1] * max(0, inputs.dim() - 2))


def _checked_shape(shape: Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else ()
    if not sizes or any(type(size) is not int or size < 1 for size in sizes):
        raise InputError(f"shape must be whole numbers from 1, as in (1, 28, 28), got {shape!r}")
    return sizes


def _numbers(name: str, given: Numbers | None, default: float) -> tuple[float, ...]:
    if given is None:
        return (default,)
    values = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    valid = values and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        for value in values
    )
    if not valid or (name == "std" and min(values) <= 0):
        bound = " above 0" if name == "std" else ""
        raise InputError(f"{name} must be a number{bound}, or one a channel, got {given!r}")
    return tuple(map(float, values))
