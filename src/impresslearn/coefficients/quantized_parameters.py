"""Tensors of integers that are trained with their code length as part of the loss.

Each tensor is offset + step · n: the integers n, the step and the offset are all learned. The
forward pass uses all three rounded, as they will be kept; the gradient passes the rounding as if it
were not there (straight-through). The code length of n, by a Laplace density whose width is learned
too, is part of the loss, so that numbers which do not earn their bits stay at zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST, LARGEST_STEP, PARTS, SMALLEST_STEP
from impresslearn.coefficients.quantisation import Grid


class QuantizedParameters:
    """Tensors on grids: offset (1 + o) + step exp(s) round(speed p).

    All integers p of all tensors are one parameter, all s another, as are the o and the logarithms
    of the Laplace widths: a parameter for each tensor would cost a dozen operations a step.

    - shapes: the shape of each tensor.
    - grids: the grid of each tensor at the start, where all integers are 0.
    - speeds: for each tensor, by how much n moves when p moves by 1.
    - device: where the parameters lie.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        grids: Sequence[Grid],
        speeds: Sequence[float],
        device: torch.device | str,
    ) -> None:
        self._shapes = list(shapes)
        self._sizes = [math.prod(shape) for shape in shapes]
        start = [[grid.step for grid in grids], [grid.offset for grid in grids]]
        self._start = torch.tensor(start, dtype=torch.float32, device=device)
        self._speeds = self._spread(torch.tensor(speeds, dtype=torch.float32, device=device))
        self._numbers = leaf(sum(self._sizes), device)
        self._steps, self._offsets, self._widths = (leaf(len(shapes), device) for _ in range(3))
        self.parameters = [self._numbers, self._steps, self._offsets, self._widths]

    def values(self) -> list[Tensor]:
        """The tensors, differentiable."""
        step, offset = self._spread(self._steps_and_offsets())
        exact = self._exact()
        rounded = exact + (exact.round() - exact).detach()  # straight-through
        return parts_of(offset + step * rounded, self._shapes)

    @torch.no_grad()
    def set(self, first: int, tensors: Sequence[Tensor]) -> None:
        """Moves the integers of the tensors from number `first` on to the nearest values."""
        if not tensors:
            return
        begin = sum(self._sizes[:first])
        values = torch.cat([tensor.flatten() for tensor in tensors])
        places = slice(begin, begin + len(values))
        step, offset = self._spread(self._steps_and_offsets())[:, places]
        self._numbers[places] = (values - offset) / (step * self._speeds[places])

    def bits(self) -> Tensor:
        """The code length of all integers, approximately, differentiable."""
        return laplace_bits(self._exact(), self._spread(self._widths.exp())).sum()

    @torch.no_grad()
    def result(self, dead_zone: float = 0.5) -> tuple[list[Tensor], list[Grid]]:
        """The tensors and their grids as they are kept.

        dead_zone: see `rounded_to_zero`.
        """
        grids = self._steps_and_offsets()
        step, offset = self._spread(grids)
        values = offset + step * rounded_to_zero(self._exact(), dead_zone)
        return parts_of(values, self._shapes), [Grid(*pair) for pair in grids.t().tolist()]

    def _steps_and_offsets(self) -> Tensor:
        return rounded_steps(self._start * torch.stack([self._steps.exp(), 1 + self._offsets]))

    def _exact(self) -> Tensor:
        return (self._speeds * self._numbers).clamp(-LARGEST, LARGEST)

    def _spread(self, values: Tensor) -> Tensor:
        """(..., tensors) to (..., numbers): the value of each tensor at each of its numbers."""
        # Expanding is faster than indexing in the backward pass, and repeatable on a GPU.
        pairs = zip(values.split(1, dim=-1), self._sizes, strict=True)
        return torch.cat([value.expand(*value.shape[:-1], size) for value, size in pairs], dim=-1)


def parts_of(numbers: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """The tensors of these shapes whose numbers follow one another."""
    parts = numbers.split([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def rounded_steps(exact: Tensor) -> Tensor:
    """Steps or offsets as a code holds them; zeros and signs stay, the gradient passes."""
    with torch.no_grad():
        mantissas, exponents = torch.frexp(exact.abs().clamp(SMALLEST_STEP, LARGEST_STEP))
        sizes = torch.ldexp((mantissas * 2 * PARTS).round() / (2 * PARTS), exponents)
        rounded = exact.sign() * sizes
    return exact + (rounded - exact).detach()


def rounded_to_zero(exact: Tensor, dead_zone: float) -> Tensor:
    """Integers near numbers; sizes below `dead_zone` become 0, and larger ones smaller.

    A dead zone of 0.5 gives the nearest integers.
    """
    if dead_zone == 0.5:
        return exact.round()
    return exact.sign() * (exact.abs() + (1 - dead_zone)).clamp(min=0).floor()


def laplace_bits(exact: Tensor, width: Tensor) -> Tensor:
    """-log2 of the mass that a Laplace density of this width has within 1/2 of each number."""
    size = exact.abs()
    near = 1 - (torch.exp(-(0.5 + size) / width) + torch.exp((size - 0.5).clamp(max=0) / width)) / 2
    far = (size - 0.5) / width - torch.log(-torch.expm1(-1 / width) / 2)
    return torch.where(size < 0.5, -torch.log(near), far) / math.log(2)


def leaf(size: int, device: torch.device | str) -> Tensor:
    """A vector of zeros to be trained."""
    return torch.zeros(size, dtype=torch.float32, device=device, requires_grad=True)
