"""Coefficients in few bits: what a task costs when it is kept.

Rounding happens once, after training. Each alpha vector (a layer's, or a unit's column) gets one
float16 step; scales per unit or input get a float16 step and offset a layer, since they lie around
1. The step is the one of least squared error. What is predicted with is what was stored: a learner
uses `StoredCoefficients.restore()`, never the unrounded numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from impresslearn.errors import InputError
from impresslearn.mixing import Coefficients

PRECISIONS = ("float32", "float16", "int8", "int5", "int4")
_BITS = {"int8": 8, "int5": 5, "int4": 4}


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as bytes: packed integers with their steps, or plain floats.

    offset: subtracted before rounding, float16 or None; steps: one float16 per column (or one).
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
    """A task's coefficients as they are kept."""

    precision: str
    alpha: tuple[StoredTensor, ...]
    output_scale: tuple[StoredTensor, ...] | None = None
    input_scale: tuple[StoredTensor, ...] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of all numbers, rounding steps included."""
        parts = (*self.alpha, *(self.output_scale or ()), *(self.input_scale or ()))
        return sum(part.nbytes for part in parts)

    def restore(self, device: torch.device | str = "cpu") -> Coefficients:
        """The coefficients as float32 tensors."""

        def each(parts: tuple[StoredTensor, ...] | None) -> tuple[Tensor, ...] | None:
            if parts is None:
                return None
            return tuple(_restore(part, self.precision).to(device) for part in parts)

        alpha = each(self.alpha)
        assert alpha is not None
        return Coefficients(alpha, each(self.output_scale), each(self.input_scale))


def store_coefficients(
    coefficients: Coefficients, precision: str = "float32"
) -> StoredCoefficients:
    """Rounds coefficients to a precision: float32, float16, int8, int5 or int4.

    Raises InputError for another precision, and for values that are not finite or too large for
    the float16 that the precision keeps them or their steps in.
    """
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if not all(torch.isfinite(tensor).all() for tensor in coefficients.tensors()):
        raise InputError("coefficients hold NaN or infinite values and cannot be stored")

    def each(tensors: tuple[Tensor, ...] | None, centred: bool) -> tuple[StoredTensor, ...] | None:
        if tensors is None:
            return None
        return tuple(_store(tensor, precision, centred) for tensor in tensors)

    alpha = each(coefficients.alpha, False)
    assert alpha is not None
    return StoredCoefficients(
        precision,
        alpha,
        each(coefficients.output_scale, True),
        each(coefficients.input_scale, True),
    )


def _store(tensor: Tensor, precision: str, centred: bool) -> StoredTensor:
    values = tensor.detach().cpu().float().numpy()
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
