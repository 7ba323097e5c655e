"""Rounds the numbers of a task to a precision, and writes them as bytes.

float32 and float16 keep plain floats. Under int8, int5 and int4 each column of a tensor gets one
float16 step, the one of least squared error; tensors around one also subtract a float16 offset.
Under "coded" every tensor has one float16 step and offset, and its integers are entropy-coded
(`coding`): either the integers that training found (`quantized_parameters`) or, for other numbers,
integers from -7 to 7. A learner always predicts with the decoded numbers, never with the unrounded
ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_choice, check_integer
from impresslearn.coefficients.coding import LARGEST, MODEL_BYTES, decode_levels, encode_levels
from impresslearn.coefficients.layout import Grid, TensorLayout
from impresslearn.errors import InputError

Precision = Literal["float32", "float16", "int8", "int5", "int4", "coded"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""From most to fewest bits."""
_FLOATS = ("float32", "float16")
_BITS = {"int8": 8, "int5": 5, "int4": 4, "coded": 4}
"""Bits per integer; under "coded" only for numbers that training did not leave on a grid."""
Grids = tuple[Grid, ...]


def encode_tensors(
    tensors: Iterable[Tensor],
    layouts: Sequence[TensorLayout],
    precision: str,
    grids: Sequence[Grid] | None = None,
    largest: int | None = None,
) -> bytes:
    """Rounds tensors to a precision and writes them, one after another.

    - tensors: floats of any device, in the order of `layouts`.
    - precision: one of `PRECISIONS`.
    - grids: under "coded" the grid of each tensor that training left them on; None finds one.
    - largest: under "coded" without grids the largest integer, 7 by default.

    Raises InputError for an unknown precision, for values that are not finite, and for values or
    steps that are too large for float16.
    """
    check_choice("precision", precision, PRECISIONS)
    arrays = [tensor.detach().cpu().float().numpy() for tensor in tensors]
    if not all(np.isfinite(values).all() for values in arrays):
        raise InputError("coefficients hold NaN or infinite values and cannot be stored")
    if precision in _FLOATS:
        floats = arrays if precision == "float32" else [_float16(values) for values in arrays]
        return b"".join(values.tobytes() for values in floats)
    if precision == "coded":
        return _encode_coded(arrays, layouts, grids, largest or _top(_BITS["coded"]))
    bits, content = _BITS[precision], []
    for values, layout in zip(arrays, layouts, strict=True):
        middle = (values.max() + values.min()) / 2 if layout.around_one else 0.0
        offset = _float16(middle)
        columns = _columns(values - np.float32(offset))
        steps = best_steps(columns, _top(bits))
        levels = _round(columns, steps, _top(bits)) + _top(bits)
        content += [_pack(levels, bits), steps.tobytes()]
        content += [offset.tobytes()] if layout.around_one else []
    return b"".join(content)


def decode_tensors(
    content: bytes, layouts: Sequence[TensorLayout], precision: str
) -> tuple[list[Tensor], Grids | None]:
    """The float32 tensors of `encode_tensors`, and under "coded" their grids.

    Raises ValueError for bytes of other tensors, and for a damaged code.
    """
    reader = _Reader(content)
    if precision == "coded":
        return _decode_coded(reader, layouts)
    tensors = []
    for layout in layouts:
        if precision in _FLOATS:
            values = reader.numbers(layout.numel, precision).astype(np.float32)
        else:
            bits = _BITS[precision]
            packed = reader.take(-(-layout.numel * bits // 8))
            levels = _unpack(packed, bits, layout.numel) - _top(bits)
            steps = reader.numbers(prod(layout.shape[1:])).astype(np.float32)
            offset = reader.numbers(1 if layout.around_one else 0).astype(np.float32)
            values = levels.reshape(-1, len(steps)).astype(np.float32) * steps
            values = values + (offset if len(offset) else np.float32(0))
        tensors.append(torch.from_numpy(values.reshape(layout.shape)))
    reader.end()
    return tensors, None


def rounded_tensors(
    tensors: Sequence[Tensor],
    precision: str,
    with_offset: Sequence[bool],
    grids: Sequence[Grid] | None = None,
    matrices: int = 0,
    largest: int | None = None,
) -> tuple[list[Tensor], int]:
    """Tensors as a precision keeps them, each on its own device, and the bytes that takes.

    - with_offset: per tensor, whether its values lie around 1.
    - matrices: the number of tensors at the end that are sparse matrices (units, fan_in).
    - grids, largest, errors: see `encode_tensors`.
    """
    first_matrix = len(tensors) - matrices
    layouts = [
        TensorLayout(str(place), tuple(tensor.shape), around_one, place >= first_matrix)
        for place, (tensor, around_one) in enumerate(zip(tensors, with_offset, strict=True))
    ]
    content = encode_tensors(tensors, layouts, precision, grids, largest)
    rounded, _ = decode_tensors(content, layouts, precision)
    pairs = zip(rounded, tensors, strict=True)
    return [values.to(tensor.device) for values, tensor in pairs], len(content)


def check_largest(largest: int | None, precision: str) -> int | None:
    """The largest magnitude of coded integers, or None where the precision has its own."""
    if largest is None:
        return None
    if precision != "coded":
        raise InputError(f'largest is for precision="coded" alone, got precision={precision!r}')
    return check_integer("largest", largest, 1, LARGEST + 1)


def best_steps(columns: np.ndarray, top: int) -> np.ndarray:
    """(columns,) float16 steps of least squared rounding error, at most the one that clips none."""
    widest = np.abs(columns).max(axis=0, initial=0.0) / top
    least_step = np.finfo(np.float16).smallest_subnormal
    best = _float16(np.maximum(widest, least_step))
    least = np.full(columns.shape[1], np.inf)
    # A smaller step clips the largest values and rounds all others better: try 26 of them.
    for shrink in np.linspace(1.0, 0.5, 26):
        steps = _float16(np.maximum(widest * shrink, least_step))
        rounded = _round(columns, steps, top) * steps.astype(np.float32)
        error = ((rounded - columns) ** 2).sum(axis=0)
        better = error < least
        best, least = np.where(better, steps, best), np.where(better, error, least)
    return best


def _encode_coded(
    arrays: Sequence[np.ndarray],
    layouts: Sequence[TensorLayout],
    grids: Sequence[Grid] | None,
    top: int,
) -> bytes:
    """Model, step and offset of each tensor, then one stream with the integers of all."""
    integers, scales = [], []
    for place, (values, layout) in enumerate(zip(arrays, layouts, strict=True)):
        if grids:
            step, offset = _float16([grids[place].step]), _float16(grids[place].offset)
        else:
            offset = _float16(np.median(values) if values.size else 0.0)
            step = best_steps((values - np.float32(offset)).reshape(-1, 1), top)
        levels = _round((values - np.float32(offset)).reshape(-1, 1), step, LARGEST)
        integers.append(levels.reshape(layout.shape if layout.sparse else -1))
        scales.append(step.tobytes() + offset.tobytes())
    models, stream = encode_levels(integers)
    pairs = zip(models, scales, strict=True)
    return b"".join([*(model + scale for model, scale in pairs), stream])


def _decode_coded(
    reader: _Reader, layouts: Sequence[TensorLayout]
) -> tuple[list[Tensor], Grids | None]:
    models, grids = [], []
    for _ in layouts:
        models.append(reader.take(MODEL_BYTES))
        step, offset = reader.numbers(2).astype(np.float32)
        grids.append((step, offset))
    shapes = [layout.shape if layout.sparse else (layout.numel,) for layout in layouts]
    integers = decode_levels(models, shapes, reader.rest())
    tensors = []
    for levels, (step, offset), layout in zip(integers, grids, layouts, strict=True):
        values = levels.astype(np.float32) * step + offset
        tensors.append(torch.from_numpy(values.reshape(layout.shape)))
    return tensors, tuple(Grid(float(step), float(offset)) for step, offset in grids)


class _Reader:
    """Takes one piece of a content after another. Raises ValueError where it is too short."""

    def __init__(self, content: bytes) -> None:
        self._content, self._place = content, 0

    def take(self, size: int) -> bytes:
        piece = self._content[self._place : self._place + size]
        if len(piece) != size:
            raise ValueError("coefficients of another network")
        self._place += size
        return piece

    def numbers(self, count: int, kind: str = "float16") -> np.ndarray:
        return np.frombuffer(self.take(count * np.dtype(kind).itemsize), kind)

    def rest(self) -> bytes:
        return self._content[self._place :]

    def end(self) -> None:
        if self.rest():
            raise ValueError("coefficients of another network")


def _columns(values: np.ndarray) -> np.ndarray:
    """(n, columns): a column for each place in all dimensions but the first."""
    return values.reshape(len(values), -1)


def _top(bits: int) -> int:
    """The largest integer, in magnitude, of a number of bits."""
    return 2 ** (bits - 1) - 1


def _float16(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = np.asarray(values).astype(np.float16)
    if not np.isfinite(rounded).all():
        raise InputError(
            f"a coefficient or rounding step of {np.abs(values).max():.3g} is too large for float16"
        )
    return rounded


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
