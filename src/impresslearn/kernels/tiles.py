"""The compiled loops of the CPU kernels: 16 weights an instruction, straight from packed bits.

The 16 mask bits of a word are loaded as a vector of 16 booleans and used as the lane mask of an
addition (one instruction with AVX-512, a blend and an addition elsewhere). A tile of up to 16
words stays in registers while all N masks go by, so each weight is read and written once.
Arguments are addresses and strides in bytes; `cpu` turns tensors into them. Numba caches the
compiled code on disk, so only the first process compiles.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from impresslearn.kernels import instructions as make
from impresslearn.kernels.compiling import compiled
from impresslearn.kernels.instructions import LANES, literals

LARGEST_TILE = 16
AHEAD = 128
"""Bytes ahead in each mask's row that a large tile asks the caches for: N rows are more streams
than the hardware follows by itself."""

_word = ir.IntType(16)


def scratch_bytes(count: int) -> int:
    """Room that `sum_rows` needs in a thread: 16 floats a mask, which it finds and leaves zero."""
    return 4 * LANES * count


def _lanes(builder: Any, bits: Any, word: int) -> Any:
    """The mask bits of one word as 16 booleans."""
    place = make.pointer(builder, make.offset(builder, bits, 2 * word), _word)
    return builder.bitcast(builder.load(place, align=2), make.PREDICATE)


def _load(builder: Any, address: Any, word: int, valid: Any, tail: bool) -> Any:
    lanes = make.first_lanes(builder, valid) if tail else None
    return make.load(builder, make.offset(builder, address, 4 * LANES * word), lanes)


def _store(builder: Any, value: Any, address: Any, word: int, valid: Any, tail: bool) -> None:
    lanes = make.first_lanes(builder, valid) if tail else None
    make.store(builder, value, make.offset(builder, address, 4 * LANES * word), lanes)


@intrinsic(prefer_literal=True)
def _mix_tile(
    typingctx, words, tail, bits, mask_stride, count, alpha, alpha_stride, weight, out, valid
):
    """out[tile] = weight[tile] * Σ_t alpha_t * mask_t[tile]; addresses and strides in bytes."""
    if not literals(words, tail):
        return None
    tile, has_tail = words.literal_value, bool(tail.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, mask_stride, count, alpha, alpha_stride, weight, out, valid = args[2:]
        sums = [cgutils.alloca_once_value(builder, make.ZEROS) for _ in range(tile)]
        with cgutils.for_range(builder, count) as loop:
            row = builder.add(bits, builder.mul(loop.index, mask_stride))
            if tile == LARGEST_TILE:
                make.prefetch(builder, make.offset(builder, row, AHEAD))
            place = builder.add(alpha, builder.mul(loop.index, alpha_stride))
            coefficient = make.splat(
                builder, builder.load(make.pointer(builder, place, make.FLOAT), align=4)
            )
            for word, total in enumerate(sums):
                now = builder.load(total)
                added = builder.fadd(now, coefficient)
                builder.store(builder.select(_lanes(builder, row, word), added, now), total)
        for word, total in enumerate(sums):
            factor = _load(builder, weight, word, valid, has_tail)
            product = builder.fmul(builder.load(total), factor)
            _store(builder, product, out, word, valid, has_tail)
        return context.get_dummy_value()

    return types.void(words, tail, *[types.int64] * 8), codegen


@intrinsic(prefer_literal=True)
def _sum_tile(typingctx, words, tail, bits, mask_stride, count, left, right, sums, valid):
    """sums[t, lane] += Σ_word left * right * mask_t, for every mask t."""
    if not literals(words, tail):
        return None
    tile, has_tail = words.literal_value, bool(tail.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, mask_stride, count, left, right, sums, valid = args[2:]
        values = [
            builder.fmul(
                _load(builder, left, word, valid, has_tail),
                _load(builder, right, word, valid, has_tail),
            )
            for word in range(tile)
        ]
        with cgutils.for_range(builder, count) as loop:
            row = builder.add(bits, builder.mul(loop.index, mask_stride))
            if tile == LARGEST_TILE:
                make.prefetch(builder, make.offset(builder, row, AHEAD))
            place = builder.add(sums, builder.mul(loop.index, ir.Constant(loop.index.type, 64)))
            pointer = make.pointer(builder, place, make.FLOATS)
            # Four independent chains hide the latency of the additions.
            chains = [builder.load(pointer, align=64), *[make.ZEROS] * min(3, tile - 1)]
            for word, value in enumerate(values):
                chain = word % len(chains)
                added = builder.fadd(chains[chain], value)
                chains[chain] = builder.select(_lanes(builder, row, word), added, chains[chain])
            total = chains[0]
            for chain in chains[1:]:
                total = builder.fadd(total, chain)
            builder.store(total, pointer, align=64)
        return context.get_dummy_value()

    return types.void(words, tail, *[types.int64] * 7), codegen


@intrinsic
def _fold(typingctx, source, target):
    """target[0] = the sum of the 16 lanes at source; then the lanes are set to zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = make.pointer(builder, args[0], make.FLOATS)
        vector = builder.load(pointer, align=64)
        width = LANES
        while width > 1:
            width //= 2
            moved = [(lane + width) if lane < width else lane for lane in range(LANES)]
            vector = builder.fadd(vector, make.shuffle(builder, vector, vector, moved))
        lowest = builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))
        builder.store(lowest, make.pointer(builder, args[1], make.FLOAT), align=4)
        builder.store(make.ZEROS, pointer, align=64)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@compiled(types.void(*[types.int64] * 11))
def mix_rows(
    bits, mask_stride, row_bytes, count, alpha, alpha_stride, unit_stride, weight, out, fan_in, span
):
    """Rows [first, last) of one layer, coded in span = first * 2**32 + last."""
    for row in range(span >> 32, span & 0xFFFFFFFF):
        b = bits + row * row_bytes
        a = alpha + row * unit_stride
        w = weight + row * fan_in * 4
        o = out + row * fan_in * 4
        left = fan_in // 16
        while left >= 16:
            _mix_tile(16, 0, b, mask_stride, count, a, alpha_stride, w, o, 16)
            b, w, o, left = b + 32, w + 1024, o + 1024, left - 16
        if left >= 8:
            _mix_tile(8, 0, b, mask_stride, count, a, alpha_stride, w, o, 16)
            b, w, o, left = b + 16, w + 512, o + 512, left - 8
        if left >= 4:
            _mix_tile(4, 0, b, mask_stride, count, a, alpha_stride, w, o, 16)
            b, w, o, left = b + 8, w + 256, o + 256, left - 4
        while left >= 1:
            _mix_tile(1, 0, b, mask_stride, count, a, alpha_stride, w, o, 16)
            b, w, o, left = b + 2, w + 64, o + 64, left - 1
        if fan_in % 16:
            _mix_tile(1, 1, b, mask_stride, count, a, alpha_stride, w, o, fan_in % 16)


@compiled(types.void(*[types.int64] * 13))
def sum_rows(
    bits, mask_stride, row_bytes, count, left_values, right_values, sums, out, out_stride,
    block_stride, block_rows, fan_in, span,
):  # fmt: skip
    """Sums of rows [first, last), folded into out[block] after every `block_rows` rows.

    first is the start of a block; `sums` is room for (count, 16) floats, all zero.
    """
    last = span & 0xFFFFFFFF
    for row in range(span >> 32, last):
        b = bits + row * row_bytes
        x = left_values + row * fan_in * 4
        y = right_values + row * fan_in * 4
        left = fan_in // 16
        while left >= 16:
            _sum_tile(16, 0, b, mask_stride, count, x, y, sums, 16)
            b, x, y, left = b + 32, x + 1024, y + 1024, left - 16
        if left >= 8:
            _sum_tile(8, 0, b, mask_stride, count, x, y, sums, 16)
            b, x, y, left = b + 16, x + 512, y + 512, left - 8
        if left >= 4:
            _sum_tile(4, 0, b, mask_stride, count, x, y, sums, 16)
            b, x, y, left = b + 8, x + 256, y + 256, left - 4
        while left >= 1:
            _sum_tile(1, 0, b, mask_stride, count, x, y, sums, 16)
            b, x, y, left = b + 2, x + 64, y + 64, left - 1
        if fan_in % 16:
            _sum_tile(1, 1, b, mask_stride, count, x, y, sums, fan_in % 16)
        if (row + 1) % block_rows == 0 or row + 1 == last:
            target = out + row // block_rows * block_stride
            for t in range(count):
                _fold(sums + t * 64, target + t * out_stride)
