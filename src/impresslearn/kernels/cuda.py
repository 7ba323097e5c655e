"""The GPU kernels on tensors, in Triton.

A program owns a tile of ROWS x WORDS words of 16 bits, and with it ROWS x 16·WORDS weights, as an
array (16, ROWS, WORDS): the bit comes first, so that one thread keeps the 16 weights of a word in
its registers. It reads and writes each weight once and walks over the masks, a word of bits a lane;
no mask is unpacked anywhere else. Sums over several tiles are stored one a program and then added
in a fixed order, without atomics: results repeat bit for bit. With TRITON_INTERPRET=1 the kernels
run on CPU tensors.
"""

from __future__ import annotations

from math import prod

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_WORDS = 128
"""Words of bits in a tile: one a thread of four warps."""
ROW_WORDS = 32
"""Words of one row in a tile, at most: 64 bytes of bits, and the 512 weights under them."""


@triton.jit
def _tile(units, words, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """This program's first row and word: tiles of a row block follow one another."""
    tiles = tl.cdiv(words, WORDS)
    program = tl.program_id(0)
    row = (program // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    word = (program % tiles) * WORDS + tl.arange(0, WORDS)
    return row, word, row < units, (row < units)[:, None] & (word < words)[None, :]


@triton.jit
def _weights(row, word, rows_inside, fan_in):
    """Bit numbers (16, 1, 1); offsets of the tile's weights, and which exist, (16, ROWS, WORDS)."""
    bit = tl.arange(0, 16)[:, None, None]
    column = word[None, None, :] * 16 + bit
    offsets = row[None, :, None] * fan_in + column
    return bit, offsets, rows_inside[None, :, None] & (column < fan_in)


@triton.jit
def _mix(
    bits, alpha, weight, out, count, units, fan_in, words, mask_stride, alpha_stride, unit_stride,
    ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """out = weight ⊙ Σ_t alpha_t M^t on one tile; bits: int16 words (count, units, words)."""
    row, word, rows_inside, inside = _tile(units, words, ROWS, WORDS)
    bit, offsets, exists = _weights(row, word, rows_inside, fan_in)
    packed = bits + (row[:, None] * words + word[None, :])
    coefficients = alpha + row * unit_stride
    total = tl.zeros((16, ROWS, WORDS), dtype=tl.float32)
    for _ in range(count):
        lanes = tl.load(packed, mask=inside, other=0)
        coefficient = tl.load(coefficients, mask=rows_inside, other=0.0)
        chosen = ((lanes[None, :, :] >> bit) & 1) != 0
        total += tl.where(chosen, coefficient[None, :, None], 0.0)
        packed += mask_stride
        coefficients += alpha_stride
    mixed = tl.load(weight + offsets, mask=exists, other=0.0).to(tl.float32) * total
    tl.store(out + offsets, mixed.to(out.dtype.element_ty), mask=exists)


@triton.jit
def _sums(
    bits, left, right, out, count, units, fan_in, words, mask_stride, out_stride,
    PER_UNIT: tl.constexpr, ROWS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Σ left · right · M^t over one tile, for each t: a value a row if PER_UNIT, else a single one.

    out: (count, column tiles, units) if PER_UNIT, else (count, programs); out_stride: one t.
    """
    row, word, rows_inside, inside = _tile(units, words, ROWS, WORDS)
    bit, offsets, exists = _weights(row, word, rows_inside, fan_in)
    packed = bits + (row[:, None] * words + word[None, :])
    product = tl.load(left + offsets, mask=exists, other=0.0).to(tl.float32)
    product *= tl.load(right + offsets, mask=exists, other=0.0).to(tl.float32)
    if PER_UNIT:
        target = out + ((tl.program_id(0) % tl.cdiv(words, WORDS)).to(tl.int64) * units + row)
    else:
        target = out + tl.program_id(0)
    for _ in range(count):
        lanes = tl.load(packed, mask=inside, other=0)
        chosen = ((lanes[None, :, :] >> bit) & 1) != 0
        by_word = tl.sum(tl.where(chosen, product, 0.0), axis=0)
        by_row = tl.sum(by_word, axis=1)
        if PER_UNIT:
            tl.store(target, by_row, mask=rows_inside)
        else:
            tl.store(target, tl.sum(by_row, axis=0))
        packed += mask_stride
        target += out_stride


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `reference.mix`, for tensors on a GPU.

    bits: (N, units, row_bytes) uint8; alpha: (N,) or (N, units); weight: (units, ...).
    """
    values, alpha = weight.detach().contiguous(), alpha.detach().float()
    out = torch.empty_like(values)
    if out.numel():
        words, tile, programs = _plan(bits)
        unit_stride = alpha.stride(1) if alpha.dim() == 2 else 0
        with torch.cuda.device_of(values):
            _mix[(programs,)](
                words, alpha, values, out, *_sizes(words, values), words.stride(0),
                alpha.stride(0), unit_stride, **tile,
            )  # fmt: skip
    return out


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """As `reference.mask_sums`, for tensors on a GPU.

    left, right: (units, ...). Returns (N, units) float32 if `per_unit`, else (N,) float32.
    """
    count, units = bits.shape[:2]
    left, right = left.detach().contiguous(), right.detach().contiguous()
    if not (count and left.numel()):
        return torch.zeros((count, units) if per_unit else count, device=left.device)
    words, tile, programs = _plan(bits)
    tiles = -(-words.shape[2] // tile["WORDS"])
    shape = (count, tiles, units) if per_unit else (count, programs)
    partial = torch.empty(shape, dtype=torch.float32, device=left.device)
    with torch.cuda.device_of(left):
        _sums[(programs,)](
            words, left, right, partial, *_sizes(words, left), words.stride(0), partial.stride(0),
            PER_UNIT=per_unit, **tile,
        )  # fmt: skip
    return partial.sum(dim=1)


def _plan(bits: Tensor) -> tuple[Tensor, dict[str, int], int]:
    """The bits as words (N, units, words), the tile's size, and the number of programs."""
    _, units, width = bits.shape
    whole_words = bits.stride(0) % 2 == 0 and bits.storage_offset() % 2 == 0
    if bits.stride()[1:] != (width, 1) or not whole_words:
        bits = bits.contiguous().clone() if bits.storage_offset() % 2 else bits.contiguous()
    words = bits.view(torch.int16)
    per_row = min(ROW_WORDS, triton.next_power_of_2(words.shape[2]))
    rows = TILE_WORDS // per_row
    tiles = -(-words.shape[2] // per_row) * -(-units // rows)
    return words, {"ROWS": rows, "WORDS": per_row}, tiles


def _sizes(words: Tensor, weight: Tensor) -> tuple[int, int, int, int]:
    """Masks, units, fan_in, and words in a row."""
    count, units, width = words.shape
    return count, units, prod(weight.shape[1:]), width
