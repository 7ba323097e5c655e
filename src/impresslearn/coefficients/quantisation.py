"""Quantises coefficients: in how many bytes a task is kept.

Under int8, int5 and int4 rounding happens once, after training. Each alpha vector (a layer's, or a
unit's column) gets one float16 step; scales per unit or input get a float16 step and offset a
layer, since they lie around 1. The step is the one of least squared error. Under "coded" every
tensor has one float16 step and offset, and its whole numbers are entropy-coded (`levels`); they are
those that were learned (`parameters`) or, for other coefficients, rounded as in int4. What is
predicted with is what was stored: a learner uses `StoredCoefficients.restore()`, never the
unrounded numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from impresslearn.coefficients.levels import LARGEST, decode_levels, encode_levels
from impresslearn.coefficients.mixing import Coefficients, Grid, in_groups
from impresslearn.errors import InputError

Precision = Literal["float32", "float16", "int8", "int5", "int4", "coded"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""From most to fewest bits."""
_BITS = {"int8": 8, "int5": 5, "int4": 4}
_TOP_OF_CODED = 7
"""The largest whole number, in magnitude, of coefficients that were not learned on grids."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as bytes: packed integers with their steps, or plain floats.

    offset: subtracted before rounding, float16 or nothing; steps: one float16 per column (or one).
    Under "coded" the payload is the model that the whole numbers are coded by.
    """

    shape: tuple[int, ...]
    payload: bytes
    steps: bytes = b""
    offset: bytes = b""

    @property
    def nbytes(self) -> int:
        """Bytes of numbers, steps and offset."""
        return len(self.payload) + len(self.steps) + len(self.offset)


@dataclass(frozen=True)
class StoredCoefficients:
    """A task's coefficients as they are kept; levels: the coded whole numbers of all tensors."""

    precision: str
    alpha: tuple[StoredTensor, ...]
    output_scale: tuple[StoredTensor, ...] | None = None
    input_scale: tuple[StoredTensor, ...] | None = None
    levels: bytes = b""

    @property
    def _groups(self) -> tuple[tuple[StoredTensor, ...] | None, ...]:
        return self.alpha, self.output_scale, self.input_scale

    @property
    def parts(self) -> tuple[StoredTensor, ...]:
        """All tensors: alphas, then output scales, then input scales."""
        return tuple(part for group in self._groups for part in group or ())

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers, rounding steps included."""
        return sum(part.nbytes for part in self.parts) + len(self.levels)

    def restore(self, device: torch.device | str = "cpu") -> Coefficients:
        """The coefficients as float32 tensors. Raises ValueError for a damaged code."""
        values, grids = restore_tensors(self.parts, self.precision, self.levels)
        moved = (value.to(device) for value in values)
        return Coefficients(*in_groups(moved, self._groups), grids)


def store_coefficients(
    coefficients: Coefficients, precision: str = "float32"
) -> StoredCoefficients:
    """Rounds coefficients to a precision: float32, float16, int8, int5, int4 or coded.

    Raises InputError for another precision, and for values that are not finite or too large for
    the float16 that the precision keeps them or their steps in.
    """
    parts, levels = store_tensors(
        coefficients.tensors(), precision, len(coefficients.alpha), coefficients.grids
    )
    return StoredCoefficients(precision, *in_groups(parts, coefficients.groups), levels)


def store_tensors(
    tensors: Iterable[Tensor],
    precision: str,
    around_zero: int,
    grids: tuple[Grid, ...] | None = None,
) -> tuple[list[StoredTensor], bytes]:
    """Rounds tensors, of which the first `around_zero` lie around zero and get no offset.

    Beside them come the coded whole numbers of all, under "coded". A tensor (n, columns ...) has a
    step for each column, under "coded" one and an offset for all.
    Errors as `store_coefficients`.
    """
    tensors = list(tensors)
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if not all(torch.isfinite(tensor).all() for tensor in tensors):
        raise InputError("coefficients hold NaN or infinite values and cannot be stored")
    arrays = [tensor.detach().cpu().float().numpy() for tensor in tensors]
    if precision == "coded":
        return _coded(arrays, grids or tuple(_grid_for(array) for array in arrays))
    centred = (number >= around_zero for number in range(len(arrays)))
    return [_store(*each, precision) for each in zip(arrays, centred, strict=True)], b""


def restore_tensors(
    parts: Sequence[StoredTensor], precision: str, levels: bytes = b""
) -> tuple[list[Tensor], tuple[Grid, ...] | None]:
    """The tensors in float32, and the grids of coded ones. Raises ValueError for damage."""
    if precision == "coded":
        return _decoded(parts, levels)
    return [_restore(part, precision) for part in parts], None


def _coded(arrays: Sequence[np.ndarray], grids: Sequence[Grid]) -> tuple[list[StoredTensor], bytes]:
    kept = [(_float16(grid.step), _float16(grid.offset)) for grid in grids]
    levels = [
        _round(array - np.float32(offset), step, LARGEST)
        for array, (step, offset) in zip(arrays, kept, strict=True)
    ]
    models, coded = encode_levels(levels)
    parts = [
        StoredTensor(array.shape, model, step.tobytes(), offset.tobytes())
        for array, model, (step, offset) in zip(arrays, models, kept, strict=True)
    ]
    return parts, coded


def _decoded(parts: Sequence[StoredTensor], coded: bytes) -> tuple[list[Tensor], tuple[Grid, ...]]:
    counts = [int(np.prod(part.shape)) for part in parts]
    found = decode_levels([part.payload for part in parts], counts, coded)
    grids = [
        Grid(*(float(np.frombuffer(kept, np.float16)[0]) for kept in (part.steps, part.offset)))
        for part in parts
    ]
    values = [
        torch.from_numpy(
            (levels * np.float32(grid.step) + np.float32(grid.offset))
            .astype(np.float32)
            .reshape(part.shape)
        )
        for levels, grid, part in zip(found, grids, parts, strict=True)
    ]
    return values, tuple(grids)


def _grid_for(values: np.ndarray) -> Grid:
    """The grid of least squared error around the median, where nothing was learned on one."""
    offset = float(_float16(np.median(values)))
    steps = _best_steps((values - np.float32(offset)).reshape(-1, 1), _TOP_OF_CODED)
    return Grid(float(steps[0]), offset)


def _store(values: np.ndarray, centred: bool, precision: str) -> StoredTensor:
    if precision in ("float32", "float16"):
        kept = values.astype(np.float32) if precision == "float32" else _float16(values)
        return StoredTensor(values.shape, kept.tobytes())
    top = 2 ** (_BITS[precision] - 1) - 1
    offset = _float16((values.max() + values.min()) / 2 if centred else 0.0)
    columns = (values - np.float32(offset)).reshape(len(values), -1)
    steps = _best_steps(columns, top)
    levels = _round(columns, steps, top)
    return StoredTensor(
        values.shape,
        _pack(levels + top, _BITS[precision]),
        steps.tobytes(),
        offset.tobytes() if centred else b"",
    )


def _restore(part: StoredTensor, precision: str) -> Tensor:
    if precision in ("float32", "float16"):
        values = np.frombuffer(part.payload, dtype=precision).astype(np.float32)
        return torch.from_numpy(values.reshape(part.shape))
    bits = _BITS[precision]
    count = int(np.prod(part.shape))
    levels = _unpack(part.payload, bits, count) - (2 ** (bits - 1) - 1)
    steps = np.frombuffer(part.steps, dtype=np.float16).astype(np.float32)
    values = levels.reshape(part.shape[0], -1).astype(np.float32) * steps
    if part.offset:
        values = values + np.frombuffer(part.offset, dtype=np.float16).astype(np.float32)
    return torch.from_numpy(values.reshape(part.shape).astype(np.float32))


def _best_steps(columns: np.ndarray, top: int) -> np.ndarray:
    """(columns,) float16 steps of least squared rounding error, at most the one that clips none."""
    widest = np.abs(columns).max(axis=0) / top
    least_step = np.finfo(np.float16).smallest_subnormal
    best = _float16(np.maximum(widest, least_step))
    least = np.full(columns.shape[1], np.inf)
    for shrink in np.linspace(1.0, 0.5, 26):
        steps = _float16(np.maximum(widest * shrink, least_step))
        error = ((_round(columns, steps, top) * steps.astype(np.float32) - columns) ** 2).sum(
            axis=0
        )
        better = error < least
        best, least = np.where(better, steps, best), np.where(better, error, least)
    return best


def _float16(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        kept = np.asarray(values).astype(np.float16)
    if not np.isfinite(kept).all():
        raise InputError(
            f"a coefficient or rounding step of {np.abs(values).max():.3g} is too large for float16"
        )
    return kept


def _round(columns: np.ndarray, steps: np.ndarray, top: int) -> np.ndarray:
    return np.clip(np.rint(columns / steps.astype(np.float32)), -top, top).astype(np.int64)


def _pack(levels: np.ndarray, bits: int) -> bytes:
    """Non-negative integers below 2**bits, `bits` bits each, most significant first."""
    flat = levels.reshape(-1, 1)
    spread = (flat >> np.arange(bits - 1, -1, -1)) & 1
    return np.packbits(spread.astype(np.uint8).ravel()).tobytes()


def _unpack(payload: bytes, bits: int, count: int) -> np.ndarray:
    spread = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), count=bits * count)
    return spread.reshape(count, bits).astype(np.int64) @ (1 << np.arange(bits - 1, -1, -1))
