"""Tensors of integers that are trained with their code length as part of the loss.

Each tensor is offset + step · n. The integers n, the step and the offset are all trained. The
forward pass uses all three rounded, as they will be stored; the gradient ignores the rounding
(straight-through). The loss includes the code length of n by a Laplace density with trained width.
So numbers that reduce the loss by less than their bits cost stay at zero.
"""

import math
import weakref
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from impresslearn.coefficients.coding import LARGEST, LARGEST_STEP, PARTS, SMALLEST_STEP
from impresslearn.coefficients.quantisation import Grid


class QuantizedParameters:
    """Tensors on grids: offset (1 + o) + step exp(s) round(speed p), with trained p, s and o.

    There are only four parameters: the p of all tensors, all s, all o, and the logarithms of all
    Laplace widths. A parameter for each tensor would cost a dozen operations in each step. For the
    same reason, tasks that are trained together compute in one object, see `join`.

    - shapes: the shape of each tensor.
    - grids: the initial grid of each tensor, where all integers are 0.
    - speeds: for each tensor, the change of n when p changes by 1.
    - device: the device of the parameters.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        grids: Sequence[Grid],
        speeds: Sequence[float],
        device: torch.device | str,
    ) -> None:
        self._shapes, self._grids, self._rates = list(shapes), list(grids), list(speeds)
        self._sizes = [math.prod(shape) for shape in shapes]
        start = [[grid.step for grid in grids], [grid.offset for grid in grids]]
        self._start = torch.tensor(start, dtype=torch.float32, device=device)
        self._counts = torch.tensor(self._sizes, device=device)
        self._tensor_of = torch.arange(len(shapes), device=device).repeat_interleave(self._counts)
        self._speeds = self._spread(torch.tensor(speeds, dtype=torch.float32, device=device))
        self._numbers = leaf(sum(self._sizes), device)
        self._steps, self._offsets, self._widths = (leaf(len(shapes), device) for _ in range(3))
        self.parameters = [self._numbers, self._steps, self._offsets, self._widths]
        self._tensors: list[Tensor] = []
        self._bits = leaf(0, device)
        # If joined: the object that computes for all, its members, and where own tensors begin.
        self._joint: QuantizedParameters | None = None
        self._members: list[QuantizedParameters] = []
        self._first = 0

    @staticmethod
    def join(members: "Sequence[QuantizedParameters]") -> None:
        """Lets members compute together. Afterwards each must call `values` in every step.

        Members keep separate parameters, because a fused optimiser rounds the end of a vector
        differently.
        """
        shapes, grids, speeds = (
            list(chain.from_iterable(getattr(member, name) for member in members))
            for name in ("_shapes", "_grids", "_rates")
        )
        joint = QuantizedParameters(shapes, grids, speeds, members[0]._numbers.device)
        joint._members = list(members)
        first = 0
        for member in members:
            member._joint, member._first = joint, first
            first += len(member._shapes)

    def values(self) -> list[Tensor]:
        """The tensors on their grids, differentiable."""
        step = self._joint or self
        if self._first == 0 or not step._tensors:
            parameters = step.parameters
            if step._members:
                of_each = [member.parameters for member in step._members]
                parameters = [torch.cat(leaves) for leaves in zip(*of_each, strict=True)]
            flat, step._bits = _Step.apply(*parameters, step)
            step._tensors = parts_of(flat, step._shapes)
        last = self._first + len(self._shapes)
        self._bits = step._bits[self._first : last]
        return step._tensors[self._first : last]

    @torch.no_grad()
    def set(self, first: int, tensors: Sequence[Tensor]) -> None:
        """Sets the tensors from number `first` on to the nearest values on their grids."""
        (self._joint or self)._tensors = []  # computed for the old values
        begin = sum(self._sizes[:first])
        values = torch.cat([tensor.flatten() for tensor in tensors])
        places = slice(begin, begin + len(values))
        step, offset = self._spread(self._steps_and_offsets())[:, places]
        self._numbers[places] = (values - offset) / (step * self._speeds[places])

    def bits(self) -> Tensor:
        """The approximate code length of the last `values`, in bits, differentiable."""
        return self._bits.sum()

    @torch.no_grad()
    def result(self, dead_zone: float = 0.5) -> tuple[list[Tensor], list[Grid]]:
        """The final tensors and their grids; dead_zone: see `rounded_to_zero`."""
        grids = self._steps_and_offsets()
        step, offset = self._spread(grids)
        exact = (self._speeds * self._numbers).clamp(-LARGEST, LARGEST)
        values = offset + step * rounded_to_zero(exact, dead_zone)
        return parts_of(values, self._shapes), [Grid(*pair) for pair in grids.t().tolist()]

    def _steps_and_offsets(self) -> Tensor:
        return rounded_steps(self._start * torch.stack([self._steps.exp(), 1 + self._offsets]))

    def _spread(self, values: Tensor) -> Tensor:
        """(..., tensors) to (..., numbers): repeats a tensor's value for each of its numbers."""
        return values.index_select(-1, self._tensor_of)

    def _sums(self, numbers: Tensor) -> Tensor:
        """(numbers,) to (tensors,): the sum over each tensor, deterministic on a GPU too."""
        return torch.segment_reduce(numbers, "sum", lengths=self._counts)


class _Step(torch.autograd.Function):
    """The values and the code lengths of one step, with the gradients of both written out.

    Autograd would take four times as long, because these many small operations dominate the time.
    Let s be the size of a number and u the inverse width of its density. The number then takes
    -log2 (1 - (e^(-(s + 1/2) u) + e^((s - 1/2) u)) / 2) bits for s < 1/2, and
    ((s - 1/2) u - ln ((1 - e^-u) / 2)) / ln 2 bits for larger s.
    """

    @staticmethod
    def forward(
        ctx: Any, numbers: Tensor, steps: Tensor, offsets: Tensor, widths: Tensor, of: Any
    ) -> tuple[Tensor, Tensor]:
        grids = of._start * torch.stack([steps.exp(), 1 + offsets])
        inverse = (-widths).exp()
        tail = torch.log(-torch.expm1(-inverse) / 2)
        slope = inverse / torch.expm1(inverse)
        table = torch.stack([*rounded_steps(grids), inverse, tail, slope])
        step, offset, u, tail, slope = of._spread(table)
        moved = of._speeds * numbers
        exact = moved.clamp(-LARGEST, LARGEST)
        integers, size = exact.round(), exact.abs()
        # Code lengths in nats, and their derivatives by the size and the logarithm of the width.
        is_near = size < 0.5
        scaled = size * u
        beyond = torch.sub(scaled, u, alpha=0.5)
        below = torch.add(scaled, u, alpha=0.5).neg_().exp_()
        above = beyond.clamp(max=0).exp_()
        both, apart = above + below, above - below
        near = 1 - both / 2
        nats = torch.where(is_near, -near.log(), beyond - tail)
        half = u / (2 * near)
        by_size = torch.where(is_near, apart * half, u)
        by_width = torch.where(is_near, (both / 2 - size * apart) * half, slope - beyond)
        by_exact, by_width = by_size * exact.sign(), of._sums(by_width)
        ctx.save_for_backward(moved, integers, step, grids, by_exact, by_width)
        ctx.of = weakref.ref(of)  # `of` holds this graph; a strong reference would be a cycle
        return torch.addcmul(offset, step, integers), of._sums(nats) / math.log(2)

    @staticmethod
    def backward(ctx: Any, by_value: Tensor, by_bits: Tensor) -> tuple:
        moved, integers, step, grids, by_exact, by_width = ctx.saved_tensors
        of, by_nats = ctx.of(), by_bits / math.log(2)
        by_number = by_value * step + of._spread(by_nats) * by_exact
        # The gradient of clamped numbers is 0.
        by_number = torch.ops.aten.hardtanh_backward(by_number, moved, -LARGEST, LARGEST)
        by_step = of._sums(by_value * integers) * grids[0]
        by_offset = of._sums(by_value) * of._start[1]
        return by_number * of._speeds, by_step, by_offset, by_nats * by_width, None


def parts_of(numbers: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Splits a vector of numbers into tensors of these shapes."""
    parts = numbers.split([math.prod(shape) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def rounded_steps(exact: Tensor) -> Tensor:
    """Steps or offsets rounded as in a code, straight-through; zeros and signs do not change."""
    with torch.no_grad():
        mantissas, exponents = torch.frexp(exact.abs().clamp(SMALLEST_STEP, LARGEST_STEP))
        sizes = torch.ldexp((mantissas * 2 * PARTS).round() / (2 * PARTS), exponents)
        rounded = exact.sign() * sizes
    return exact + (rounded - exact).detach()


def rounded_to_zero(exact: Tensor, dead_zone: float) -> Tensor:
    """Rounds numbers to integers; sizes below `dead_zone` become 0.

    A dead zone of 0.5 gives the nearest integers. A larger one also makes larger sizes smaller.
    """
    if dead_zone == 0.5:
        return exact.round()
    return exact.sign() * (exact.abs() + (1 - dead_zone)).clamp(min=0).floor()


def leaf(size: int, device: torch.device | str) -> Tensor:
    return torch.zeros(size, dtype=torch.float32, device=device, requires_grad=True)
