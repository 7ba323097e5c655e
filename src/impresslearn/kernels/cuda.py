"""GPU kernels on tensors, in Triton.

A program computes a tile of ROWS x WORDS words of 16 bits, that is, ROWS x 16·WORDS weights. The
weights have the shape (16, ROWS, WORDS). The bit is the first dimension, so that a thread keeps the
16 weights of its word in registers. The program reads and writes each weight once and loops over
the masks; bits become numbers only in registers. Every program stores its own partial sums, which
are then added in a fixed order, without atomics, so results are bit-identical in every run. With
TRITON_INTERPRET=1 in the environment the kernels run on CPU tensors.
"""

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_WORDS = 128  # words of bits in a tile: one for each thread of four warps
# The most words of one row in a tile: 64 bytes of bits, for 512 weights.
ROW_WORDS = 32


@triton.jit
def _tile(bits, units, fan_in, words, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """The tile of this program; the tiles of a block of rows are numbered consecutively.

    Returns the rows (1, ROWS, 1) and which exist; addresses of the first mask's words (1, ROWS,
    WORDS) and which exist; bit numbers (16, 1, 1); weights (16, ROWS, WORDS) and which exist.
    """
    tiles = tl.cdiv(words, WORDS)
    program = tl.program_id(0)
    row = ((program // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS))[None, :, None]
    word = ((program % tiles) * WORDS + tl.arange(0, WORDS))[None, None, :]
    bit = tl.arange(0, 16)[:, None, None]
    column = word * 16 + bit
    row_exists = row < units
    packed = bits + (row * words + word)
    weights = row * fan_in + column
    word_exists, weight_exists = row_exists & (word < words), row_exists & (column < fan_in)
    return row, row_exists, packed, word_exists, bit, weights, weight_exists


@triton.jit
def _mix(
    bits, alpha, weight, out, count, units, fan_in, words, mask_stride, alpha_stride, unit_stride,
    ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """out = weight ⊙ Σ_t alpha_t M^t on one tile; bits: int16 words (count, units, words)."""
    row, row_exists, packed, word_exists, bit, weights, weight_exists = _tile(
        bits, units, fan_in, words, ROWS, WORDS
    )
    coefficients = alpha + row * unit_stride
    total = tl.zeros((16, ROWS, WORDS), dtype=tl.float32)
    for _ in range(count):
        chosen = (tl.load(packed, mask=word_exists, other=0) >> bit) & 1
        coefficient = tl.load(coefficients, mask=row_exists, other=0.0)
        total += tl.where(chosen != 0, coefficient, 0.0)
        packed += mask_stride
        coefficients += alpha_stride
    mixed = tl.load(weight + weights, mask=weight_exists, other=0.0).to(tl.float32) * total
    tl.store(out + weights, mixed.to(out.dtype.element_ty), mask=weight_exists)


@triton.jit
def _sums(
    bits, left, right, out, count, units, fan_in, words, mask_stride, out_stride,
    PER_UNIT: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Σ left · right · M^t over one tile for each t: one value per row if PER_UNIT, else one value.

    out: (count, column tiles, units) if PER_UNIT, else (count, programs); out_stride: of count.
    """
    row, row_exists, packed, word_exists, bit, weights, weight_exists = _tile(
        bits, units, fan_in, words, ROWS, WORDS
    )
    # The first load decides how a tile is divided among threads: loading bits gives each a word.
    lanes = tl.load(packed, mask=word_exists, other=0)
    product = tl.load(left + weights, mask=weight_exists, other=0.0).to(tl.float32)
    product *= tl.load(right + weights, mask=weight_exists, other=0.0).to(tl.float32)
    program = tl.program_id(0)
    if PER_UNIT:
        target = out + ((program % tl.cdiv(words, WORDS)).to(tl.int64) * units + row)
    else:
        target = out + program
    for t in range(count):
        packed += tl.where(t + 1 < count, mask_stride, 0)  # the last mask is read twice
        following = tl.load(packed, mask=word_exists, other=0)
        chosen = tl.where(((lanes >> bit) & 1) != 0, product, 0.0)
        by_word = tl.sum(chosen, axis=0, keep_dims=True)
        if PER_UNIT:
            tl.store(target, tl.sum(by_word, axis=2, keep_dims=True), mask=row_exists)
        else:
            tl.store(target, tl.sum(by_word))
        target += out_stride
        lanes = following


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `reference.mix`, for tensors on a GPU."""
    values, alpha = weight.detach().contiguous(), alpha.detach().float()
    if bits.numel() == 0:
        return values * 0
    words, sizes, tile, programs = _plan(bits, values)
    out = torch.empty_like(values)
    alpha_strides = alpha.stride(0), alpha.stride(1) if alpha.dim() == 2 else 0
    with torch.cuda.device_of(values):
        _mix[(programs,)](words, alpha, values, out, *sizes, *alpha_strides, **tile)
    return out


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """As `reference.mask_sums`, for tensors on a GPU."""
    count, units = bits.shape[:2]
    left, right = left.detach().contiguous(), right.detach().contiguous()
    if bits.numel() == 0:
        empty = (count, units) if per_unit else (count,)
        return torch.zeros(empty, dtype=torch.float32, device=left.device)
    words, sizes, tile, programs = _plan(bits, left)
    shape = (count, -(-words.shape[2] // tile["WORDS"]), units) if per_unit else (count, programs)
    partial = torch.empty(shape, dtype=torch.float32, device=left.device)
    with torch.cuda.device_of(left):
        _sums[(programs,)](
            words, left, right, partial, *sizes, partial.stride(0), PER_UNIT=per_unit, **tile
        )
    return partial.sum(dim=1) if partial.shape[1] > 1 else partial.squeeze(1)


def _plan(bits: Tensor, weight: Tensor) -> tuple[Tensor, tuple[int, ...], dict[str, int], int]:
    """Words (N, units, words per row), sizes for the kernels, tile size, number of programs."""
    _, units, width = bits.shape
    even = bits.stride(0) % 2 == 0 and bits.storage_offset() % 2 == 0
    if bits.stride()[1:] != (width, 1) or not even:
        bits = bits.clone(memory_format=torch.contiguous_format)
    words = bits.view(torch.int16)
    fan_in, per_row = prod(weight.shape[1:]), words.shape[2]
    across = min(ROW_WORDS, triton.next_power_of_2(per_row))
    rows = TILE_WORDS // across
    programs = -(-units // rows) * -(-per_row // across)
    sizes = (len(words), units, fan_in, per_row, words.stride(0))
    return words, sizes, {"ROWS": rows, "WORDS": across}, programs
