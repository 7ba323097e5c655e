"""Quantises coefficients: in how many bytes a task is kept.

Under int8, int5 and int4 rounding happens once, after training. Each alpha vector (a layer's, or a
unit's column) gets one float16 step; scales per unit or input get a float16 step and offset a
layer, since they lie around 1. The step is the one of least squared error. Under "coded" every
tensor has one float16 step and offset, and its whole numbers are entropy-coded (`coding`); they
are those that were learned (`learning`) or, for other coefficients, rounded as in int4. A learner
predicts with what was stored, `StoredCoefficients.restore()`, never with the unrounded numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_choice, check_integer
from impresslearn.coefficients.coding import LARGEST, decode_levels, encode_levels
from impresslearn.coefficients.mixing import (
    GROUPS,
    Coefficients,
    Granularity,
    Grid,
    Readout,
    in_groups,
)
from impresslearn.errors import InputError
from impresslearn.networks.heads import TunedKind

Precision = Literal["float32", "float16", "int8", "int5", "int4", "coded"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""From most to fewest bits."""
_BITS = {"int8": 8, "int5": 5, "int4": 4, "coded": 4}
"""Of a whole number; of a coded one, where it was neither learned on a grid nor asked otherwise."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as bytes: packed integers with their steps, or plain floats.

    offset: subtracted before rounding, float16 or nothing; steps: one float16 per column (or one).
    Under "coded" the payload is the model that the whole numbers are coded by, as a matrix where
    there is one for each weight of a layer.
    """

    shape: tuple[int, ...]
    payload: bytes = field(repr=False)
    steps: bytes = field(default=b"", repr=False)
    offset: bytes = field(default=b"", repr=False)
    is_matrix: bool = False

    @property
    def coded_shape(self) -> tuple[int, ...]:
        """The shape of the whole numbers as `coding` has them."""
        return self.shape if self.is_matrix else (prod(self.shape),)

    @property
    def nbytes(self) -> int:
        """Bytes of numbers, steps and offset."""
        return len(self.payload) + len(self.steps) + len(self.offset)


@dataclass(frozen=True)
class StoredCoefficients:
    """A task's coefficients as they are kept; levels: the coded whole numbers of all tensors.

    The other fields are those of `Coefficients`.
    """

    precision: str
    alpha: tuple[StoredTensor, ...]
    output_scale: tuple[StoredTensor, ...] | None = None
    input_scale: tuple[StoredTensor, ...] | None = None
    head: tuple[StoredTensor, ...] | None = None
    small: tuple[StoredTensor, ...] | None = None
    tune: tuple[TunedKind, ...] = ()
    residual: bool = False
    readout: Readout | None = None
    weights: tuple[StoredTensor, ...] | None = None
    levels: bytes = field(default=b"", repr=False)

    @property
    def _groups(self) -> tuple[tuple[StoredTensor, ...] | None, ...]:
        return tuple(getattr(self, name) for name in GROUPS)

    @property
    def parts(self) -> tuple[StoredTensor, ...]:
        """All tensors, group by group."""
        return tuple(part for group in self._groups for part in group or ())

    @property
    def granularity(self) -> Granularity:
        """As of `Coefficients`."""
        if self.readout is not None:
            return "readout"
        if self.weights is not None:
            return "weight"
        return "unit" if self.alpha and len(self.alpha[0].shape) == 2 else "layer"

    @property
    def is_head(self) -> bool:
        """Whether there is nothing but a head on the network itself."""
        others = (self.weights, self.small, self.readout)
        return not self.alpha and all(each is None for each in others)

    @property
    def form(self) -> dict[str, Any]:
        """What says how the tensors are used, as `Coefficients` take it."""
        return {"tune": self.tune, "residual": self.residual, "readout": self.readout}

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers, rounding steps included."""
        return sum(part.nbytes for part in self.parts) + len(self.levels)

    def restore(self, device: torch.device | str = "cpu") -> Coefficients:
        """The coefficients as float32 tensors. Raises ValueError for a damaged code."""
        values, grids = restore_tensors(self.parts, self.precision, self.levels)
        moved = (value.to(device) for value in values)
        groups = in_groups(moved, self._groups)
        return Coefficients(**groups, **self.form, grids=grids)


def store_coefficients(
    coefficients: Coefficients, precision: str = "float32"
) -> StoredCoefficients:
    """Rounds coefficients to a precision: float32, float16, int8, int5, int4 or coded.

    Raises InputError for another precision, and for values that are not finite or too large for
    the float16 that the precision keeps them or their steps in.
    """
    around_one = [
        place in (1, 2) for place, group in enumerate(coefficients.groups) for _ in group or ()
    ]
    tensors, matrices = coefficients.tensors(), len(coefficients.weights or ())
    parts, levels = store_tensors(tensors, precision, around_one, coefficients.grids, matrices)
    groups = in_groups(parts, coefficients.groups)
    form = {name: getattr(coefficients, name) for name in ("tune", "residual", "readout")}
    return StoredCoefficients(precision, **groups, **form, levels=levels)


def store_tensors(
    tensors: Iterable[Tensor],
    precision: str,
    with_offset: Sequence[bool],
    grids: tuple[Grid, ...] | None = None,
    matrices: int = 0,
    largest: int | None = None,
) -> tuple[list[StoredTensor], bytes]:
    """Rounds tensors; those that lie around zero want no offset.

    Beside them come the coded whole numbers of all, under "coded". A tensor (n, columns ...) has a
    step for each column, under "coded" one and an offset for all. matrices: how many, the last
    ones, have a number for each weight of a layer, (units, fan_in). largest: the magnitude up to
    which coded numbers without grids are rounded, 7 by default. Errors as `store_coefficients`.
    """
    tensors = list(tensors)
    check_choice("precision", precision, PRECISIONS)
    if not all(torch.isfinite(tensor).all() for tensor in tensors):
        raise InputError("coefficients hold NaN or infinite values and cannot be stored")
    arrays = [tensor.detach().cpu().float().numpy() for tensor in tensors]
    if precision not in _BITS:
        kept = arrays if precision == "float32" else map(_float16, arrays)
        return [StoredTensor(each.shape, each.tobytes()) for each in kept], b""
    coded, bits = precision == "coded", _BITS[precision]
    top = largest or _top(bits)
    by_weight = range(len(arrays) - matrices, len(arrays))
    levels, steps, offsets = [], [], []
    for number, values in enumerate(arrays):
        shifted = coded or with_offset[number]
        if coded and grids:
            step, offset = _float16([grids[number].step]), _float16(grids[number].offset)
        else:
            step, middle = None, np.median(values) if coded else (values.max() + values.min()) / 2
            offset = _float16(middle if shifted else 0.0)
        columns = (values - np.float32(offset)).reshape(-1, 1 if coded else prod(values.shape[1:]))
        step = best_steps(columns, top) if step is None else step
        rounded = _round(columns, step, LARGEST if coded else top)
        levels.append(rounded.reshape(values.shape if number in by_weight else -1))
        steps.append(step.tobytes())
        offsets.append(offset.tobytes() if shifted else b"")
    if coded:
        payloads, content = encode_levels(levels)
    else:
        payloads, content = [_pack(each + top, bits) for each in levels], b""
    shapes = (values.shape for values in arrays)
    is_matrix = (number in by_weight for number in range(len(arrays)))
    return list(map(StoredTensor, shapes, payloads, steps, offsets, is_matrix)), content


def rounded_tensors(
    tensors: Sequence[Tensor],
    precision: str,
    with_offset: Sequence[bool],
    grids: tuple[Grid, ...] | None = None,
    matrices: int = 0,
    largest: int | None = None,
) -> tuple[list[Tensor], int]:
    """Tensors as they are kept in a precision, and the bytes of that; settings as `store_tensors`.

    Each comes back on its own device. Errors as `store_coefficients`.
    """
    stored, levels = store_tensors(tensors, precision, with_offset, grids, matrices, largest)
    values, _ = restore_tensors(stored, precision, levels)
    moved = [value.to(each.device) for value, each in zip(values, tensors, strict=True)]
    return moved, sum(part.nbytes for part in stored) + len(levels)


def check_largest(largest: int | None, precision: str) -> int | None:
    """The largest magnitude of coded numbers, or None where the precision has its own."""
    if largest is None:
        return None
    if precision != "coded":
        raise InputError(f'largest is for precision="coded" alone, got precision={precision!r}')
    return check_integer("largest", largest, 1, LARGEST + 1)


def restore_tensors(
    parts: Sequence[StoredTensor], precision: str, levels: bytes = b""
) -> tuple[list[Tensor], tuple[Grid, ...] | None]:
    """The tensors in float32, and the grids of coded ones. Raises ValueError for damage."""
    if precision not in _BITS:
        floats = (np.frombuffer(part.payload, precision).reshape(part.shape) for part in parts)
        return [torch.from_numpy(each.astype(np.float32)) for each in floats], None
    coded, bits = precision == "coded", _BITS[precision]
    if coded:
        shapes = [part.coded_shape for part in parts]
        found = decode_levels([part.payload for part in parts], shapes, levels)
    else:
        pairs = ((part, prod(part.shape)) for part in parts)
        found = [_unpack(part.payload, bits, count) - _top(bits) for part, count in pairs]
    tensors, grids = [], []
    for part, whole in zip(parts, found, strict=True):
        steps = np.frombuffer(part.steps, np.float16).astype(np.float32)
        offset = np.frombuffer(part.offset or bytes(2), np.float16).astype(np.float32)
        values = whole.reshape(-1, len(steps)).astype(np.float32) * steps + offset
        tensors.append(torch.from_numpy(values.reshape(part.shape)))
        grids.append(Grid(float(steps[0]), float(offset[0])))
    return tensors, tuple(grids) if coded else None


def best_steps(columns: np.ndarray, top: int) -> np.ndarray:
    """(columns,) float16 steps of least squared rounding error, at most the one that clips none."""
    widest = np.abs(columns).max(axis=0) / top
    least_step = np.finfo(np.float16).smallest_subnormal
    best = _float16(np.maximum(widest, least_step))
    least = np.full(columns.shape[1], np.inf)
    for shrink in np.linspace(1.0, 0.5, 26):
        steps = _float16(np.maximum(widest * shrink, least_step))
        found = _round(columns, steps, top) * steps.astype(np.float32)
        error = ((found - columns) ** 2).sum(axis=0)
        better = error < least
        best, least = np.where(better, steps, best), np.where(better, error, least)
    return best


def _top(bits: int) -> int:
    """The largest whole number, in magnitude, of so many bits."""
    return 2 ** (bits - 1) - 1


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
