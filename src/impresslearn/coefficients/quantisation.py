"""Rounds the numbers of a task to a precision, and writes them as bytes.

float32 and float16 keep floats. int8, int5 and int4 keep small integers and, for each column of a
tensor, the float16 step with the least squared error. Tensors with values around 1 also have a
float16 offset. "coded" keeps one step and one offset per tensor, of a few bits each, and
entropy-codes the integers (`coding`). These are the integers of the training
(`quantized_parameters`) or, for numbers without a grid, integers mostly from -7 to 7. A tensor of
zeros costs about a bit, and a task with only such tensors takes no byte. A learner always predicts
with the decoded numbers.
"""

import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from impresslearn.checks import check_choice
from impresslearn.coefficients.coding import LARGEST, decode_levels, encode_levels, nearest_steps
from impresslearn.errors import InputError

Precision = Literal["float32", "float16", "int8", "int5", "int4", "coded"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)  # from most to fewest bits
# The largest integers. For "coded" this is used only to choose a step for numbers without a grid.
_TOPS = {"int8": 127, "int5": 15, "int4": 7, "coded": 7}
OF_ANOTHER = "coefficients of another network"


@dataclass(frozen=True)
class TensorLayout:
    """One tensor that a task keeps.

    - name: unique within a task, such as "alpha.fc1.weight".
    - shape: the shape of the tensor. Under int8, int5 and int4 the tensor is reshaped to a matrix
      with the same first dimension, and each column of it has its own step.
    - around_one: whether values are around 1, not 0, so that rounding first subtracts an offset.
    - sparse: whether it is a matrix (units, fan_in) of mostly zeros. Then the positions of the
      values that are not 0 are coded by the densities of rows and columns.
    """

    name: str
    shape: tuple[int, ...]
    around_one: bool = False
    sparse: bool = False


@dataclass(frozen=True)
class Grid:
    """The possible values of a tensor: offset + step times an integer.

    The step of a stored tensor is 0 if all its integers are 0.
    """

    step: float
    offset: float


Grids = Sequence[Grid]


def encode_tensors(
    tensors: Iterable[Tensor],
    layouts: Sequence[TensorLayout],
    precision: str,
    grids: Sequence[Grid] | None = None,
    largest: int | None = None,
) -> bytes:
    """Rounds tensors to a precision and writes them, one after another.

    - tensors: floats on any device, in the order of `layouts`.
    - grids: for "coded", the grids from the training, one per tensor; None chooses grids.
    - largest: for "coded" without grids, steps are chosen for integers up to this, by default 7.
    """
    check_choice("precision", precision, PRECISIONS)
    arrays = []
    for tensor in tensors:
        values = tensor.detach().cpu().float().numpy()
        if not np.isfinite(values).all():
            raise InputError("coefficients hold NaN or infinite values and cannot be stored")
        arrays.append(values)
    if precision == "coded":
        return _encode_coded(arrays, layouts, grids, largest or _TOPS["coded"])
    content = bytearray()
    for values, layout in zip(arrays, layouts, strict=True):
        if precision not in _TOPS:
            content += (values if precision == "float32" else _float16(values)).tobytes()
            continue
        top = _TOPS[precision]
        width = top.bit_length() + 1
        offset = _float16((values.max() + values.min()) / 2 if layout.around_one else 0.0)
        columns = (values - np.float32(offset)).reshape(len(values), -1)
        steps = best_steps(columns, top)
        levels = _round(columns, steps, top).reshape(-1, 1) + top
        bits = (levels >> np.arange(width - 1, -1, -1)) & 1  # most significant first
        content += np.packbits(bits.astype(np.uint8)).tobytes() + steps.tobytes()
        content += offset.tobytes() if layout.around_one else b""
    return bytes(content)


def decode_tensors(
    content: bytes, layouts: Sequence[TensorLayout], precision: str
) -> tuple[list[Tensor], Grids | None]:
    """Float32 tensors, and for "coded" their grids. Raises ValueError for damaged bytes."""
    if precision == "coded":
        return _decode_coded(content, layouts)
    source = io.BytesIO(content)
    tensors = []
    for layout in layouts:
        count = prod(layout.shape)
        if precision not in _TOPS:
            values = _read(source, count, precision).astype(np.float32)
        else:
            top = _TOPS[precision]
            width = top.bit_length() + 1
            packed = _read(source, -(-count * width // 8), "uint8")
            bits = np.unpackbits(packed, count=width * count).reshape(count, width)
            levels = bits.astype(np.int64) @ (1 << np.arange(width - 1, -1, -1)) - top
            steps = _read(source, prod(layout.shape[1:])).astype(np.float32)
            offset = _read(source, 1).astype(np.float32) if layout.around_one else np.float32(0)
            values = levels.reshape(-1, len(steps)).astype(np.float32) * steps + offset
        tensors.append(torch.from_numpy(values.reshape(layout.shape)))
    if source.read(1):
        raise ValueError(OF_ANOTHER)
    return tensors, None


def rounded_tensors(
    tensors: Sequence[Tensor], precision: str, layouts: Sequence[TensorLayout] = (), **how: Any
) -> tuple[list[Tensor], int]:
    """Tensors rounded to a precision, each on its device, and the number of bytes they take.

    - layouts: by default values are around zero.
    - how, errors: see `encode_tensors`.
    """
    layouts = layouts or [TensorLayout("", tuple(tensor.shape)) for tensor in tensors]
    content = encode_tensors(tensors, layouts, precision, **how)
    pairs = zip(decode_tensors(content, layouts, precision)[0], tensors, strict=True)
    return [rounded.to(tensor.device) for rounded, tensor in pairs], len(content)


def best_steps(columns: np.ndarray, top: int) -> np.ndarray:
    """(columns,) float16 steps with the least squared error, up to the step that clips nothing."""
    widest = np.abs(columns).max(axis=0, initial=0.0) / top
    least_step = np.finfo(np.float16).smallest_subnormal
    best = _float16(np.maximum(widest, least_step))
    least = np.full(columns.shape[1], np.inf)
    # A smaller step clips the largest values but rounds all others better: try 26 steps.
    for shrink in np.linspace(1.0, 0.5, 26):
        steps = _float16(np.maximum(widest * shrink, least_step))
        rounded = _round(columns, steps, top) * steps.astype(np.float32)
        error = ((rounded - columns) ** 2).sum(axis=0)
        better = error < least
        best, least = np.where(better, steps, best), np.where(better, error, least)
    return best


def _encode_coded(
    arrays: Sequence[np.ndarray], layouts: Sequence[TensorLayout], grids: Grids | None, top: int
) -> bytes:
    """The grids and integers of all tensors in one stream."""
    integers = []
    steps, offsets = np.zeros((2, len(arrays)), np.float32)
    for place, (values, layout) in enumerate(zip(arrays, layouts, strict=True)):
        if grids:
            step, offset = grids[place].step, grids[place].offset
        else:
            offset = float(np.median(values)) if values.size else 0.0
            step = float(best_steps((values - np.float32(offset)).reshape(-1, 1), top)[0])
        if offset:
            offsets[place] = math.copysign(nearest_steps(abs(offset)), offset)
        levels = np.zeros(values.shape, np.int64)
        if step:
            steps[place] = nearest_steps(step)
            levels = _round(values.reshape(-1, 1) - offsets[place], steps[place], LARGEST)
        integers.append(levels.reshape(layout.shape if layout.sparse else -1))
    return encode_levels(integers, (steps, offsets))


def _read(source: io.BytesIO, count: int, kind: str = "float16") -> np.ndarray:
    """Reads the next `count` numbers. Raises ValueError if there are fewer."""
    size = count * np.dtype(kind).itemsize
    content = source.read(size)
    if len(content) < size:
        raise ValueError(OF_ANOTHER)
    return np.frombuffer(content, kind)


def _decode_coded(content: bytes, layouts: Sequence[TensorLayout]) -> tuple[list[Tensor], Grids]:
    shapes = [layout.shape if layout.sparse else (prod(layout.shape),) for layout in layouts]
    integers, (steps, offsets) = decode_levels(content, shapes, with_grids=True)
    tensors, grids = [], []
    for layout, levels, step, offset in zip(layouts, integers, steps, offsets, strict=True):
        values = offset + levels.reshape(layout.shape).astype(np.float32) * step
        tensors.append(torch.from_numpy(values))
        grids.append(Grid(float(step), float(offset)))
    return tensors, tuple(grids)


def _float16(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = np.asarray(values).astype(np.float16)
    if not np.isfinite(rounded).all():
        line = f"a coefficient or rounding step of {np.abs(values).max():.3g}"
        raise InputError(f"{line} is too large for float16")
    return rounded


def _round(columns: np.ndarray, steps: np.ndarray, top: int) -> np.ndarray:
    return np.clip(np.rint(columns / steps.astype(np.float32)), -top, top).astype(np.int64)
