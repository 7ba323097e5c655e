"""The tensors that a task keeps: their shapes, and the grids that their numbers lie on.

Everything that handles a task's numbers (training, rounding, counting, the store) goes through a
list of `TensorLayout`, so that none of it knows which parametrisation the numbers belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True)
class TensorLayout:
    """One tensor that a task keeps.

    - name: what the tensor is, unique within a task ("alpha.fc1.weight").
    - shape: sizes of its dimensions; under int8 to int4 each column (all but the first dimension)
      has its own rounding step.
    - around_one: whether the values lie around 1 rather than 0, so that rounding subtracts an
      offset first.
    - sparse: whether it is a matrix (units, fan_in) of mostly zeros, whose positions are coded by
      the densities of its rows and columns.
    """

    name: str
    shape: tuple[int, ...]
    around_one: bool = False
    sparse: bool = False

    @property
    def numel(self) -> int:
        """The number of values."""
        return prod(self.shape)


@dataclass(frozen=True)
class Grid:
    """Where the values of a tensor lie: at offset + step times integers."""

    step: float
    offset: float
