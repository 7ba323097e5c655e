# mypy: ignore-errors
# LLVM builders and compiled loops carry no useful types.
"""The compiled loops of the CPU kernels: 16 weights per instruction, straight from packed bits.

The 16 mask bits of a word are loaded as a vector of 16 booleans and used as the lane mask of an
addition (one instruction with AVX-512, a blend and an addition elsewhere). A tile of up to 16 words
stays in registers while all N masks go by, so each weight is read and written once. Arguments are
addresses and strides in bytes; `cpu` turns tensors into them. Numba's own code would not use lane
masks, so the tiles are written in LLVM, through inner parts of Numba.

A coefficient step of LeNet-300-100 with 100 masks (batch 128, one thread, Zen 4) takes 3.6 ms so,
9.7 ms with tables of 256 sums in plain Numba, and 177 ms in torch.

To delete it: remove this file and `cpu`, and the reference takes over.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from impresslearn.kernels.compiling import compiled

LANES = 16
LARGEST_TILE = 16
# Bytes ahead in each mask's row that a large tile asks the caches for. N rows are more streams of
# memory than the hardware follows by itself.
PREFETCH_AHEAD = 128

FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, LANES)
PREDICATE = ir.VectorType(ir.IntType(1), LANES)
ZEROS = FLOATS(None)
_INDEX = ir.IntType(32)
_WORD = ir.IntType(16)


def scratch_bytes(count: int) -> int:
    """Memory that `sum_rows` needs in a thread: 16 floats per mask, zero before and after."""
    return 4 * LANES * count


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _offset(builder: Any, address: Any, count: int) -> Any:
    return builder.add(address, ir.Constant(address.type, count))


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    """One value in all lanes."""
    empty = ir.Constant(kind, ir.Undefined)
    single = builder.insert_element(empty, value, ir.Constant(_INDEX, 0))
    zeros = ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES)
    return builder.shuffle_vector(single, empty, zeros)


def _first_lanes(builder: Any, count: Any) -> Any:
    """A predicate that is true in the first `count` lanes."""
    wide = ir.VectorType(ir.IntType(64), LANES)
    limit = _splat(builder, count, wide)
    return builder.icmp_signed("<", ir.Constant(wide, list(range(LANES))), limit)


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Calls one of LLVM's own functions."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def _prefetch(builder: Any, address: Any) -> None:
    """Asks for the cache line at an address that may lie past the end of the bits."""
    read, keep, data = (ir.Constant(_INDEX, value) for value in (0, 3, 1))
    place = _pointer(builder, address, ir.IntType(8))
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), place, read, keep, data)


def _load(builder: Any, address: Any, lanes: Any = None, align: int = 4) -> Any:
    """Sixteen floats; only the lanes of a predicate are read, the others are zero."""
    place = _pointer(builder, address, FLOATS)
    if lanes is None:
        return builder.load(place, align=align)
    alignment = ir.Constant(_INDEX, align)
    name = "llvm.masked.load.v16f32.p0"
    return _call(builder, name, FLOATS, place, alignment, lanes, ZEROS)


def _store(builder: Any, value: Any, address: Any, lanes: Any = None, align: int = 4) -> None:
    """Sixteen floats to memory; with a predicate only its lanes are written."""
    place = _pointer(builder, address, FLOATS)
    if lanes is None:
        builder.store(value, place, align=align)
        return
    alignment = ir.Constant(_INDEX, align)
    name = "llvm.masked.store.v16f32.p0"
    _call(builder, name, ir.VoidType(), value, place, alignment, lanes)


def _mask_lanes(builder: Any, bits: Any, word: int) -> Any:
    """The mask bits of one word as 16 booleans."""
    place = _pointer(builder, _offset(builder, bits, 2 * word), _WORD)
    return builder.bitcast(builder.load(place, align=2), PREDICATE)


@intrinsic(prefer_literal=True)
def _mix_tile(
    typingctx, words, tail, bits, mask_stride, count, alpha, alpha_stride, weight, out, valid
):
    """out[tile] = weight[tile] * Σ_t alpha_t * mask_t[tile]; addresses and strides in bytes."""
    tile, has_tail = words.literal_value, bool(tail.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, mask_stride, count, alpha, alpha_stride, weight, out, valid = args[2:]
        sums = [cgutils.alloca_once_value(builder, ZEROS) for _ in range(tile)]
        with cgutils.for_range(builder, count) as loop:
            row = builder.add(bits, builder.mul(loop.index, mask_stride))
            if tile == LARGEST_TILE:
                _prefetch(builder, _offset(builder, row, PREFETCH_AHEAD))
            place = builder.add(alpha, builder.mul(loop.index, alpha_stride))
            coefficient = builder.load(_pointer(builder, place, FLOAT), align=4)
            coefficient = _splat(builder, coefficient, FLOATS)
            for word, total in enumerate(sums):
                before = builder.load(total)
                added = builder.fadd(before, coefficient)
                after = builder.select(_mask_lanes(builder, row, word), added, before)
                builder.store(after, total)
        lanes = _first_lanes(builder, valid) if has_tail else None
        for word, total in enumerate(sums):
            factor = _load(builder, _offset(builder, weight, 64 * word), lanes)
            product = builder.fmul(builder.load(total), factor)
            _store(builder, product, _offset(builder, out, 64 * word), lanes)
        return context.get_dummy_value()

    return types.void(words, tail, *[types.int64] * 8), codegen


@intrinsic(prefer_literal=True)
def _sum_tile(typingctx, words, tail, bits, mask_stride, count, left, right, sums, valid):
    """sums[t, lane] += Σ_word left * right * mask_t, for every mask t."""
    tile, has_tail = words.literal_value, bool(tail.literal_value)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, mask_stride, count, left, right, sums, valid = args[2:]
        lanes = _first_lanes(builder, valid) if has_tail else None
        products = []
        for word in range(tile):
            x = _load(builder, _offset(builder, left, 64 * word), lanes)
            y = _load(builder, _offset(builder, right, 64 * word), lanes)
            products.append(builder.fmul(x, y))
        with cgutils.for_range(builder, count) as loop:
            row = builder.add(bits, builder.mul(loop.index, mask_stride))
            if tile == LARGEST_TILE:
                _prefetch(builder, _offset(builder, row, PREFETCH_AHEAD))
            place = builder.add(sums, builder.mul(loop.index, ir.Constant(loop.index.type, 64)))
            # Four independent chains hide the latency of the additions.
            chains = [_load(builder, place, align=64), *[ZEROS] * min(3, tile - 1)]
            for word, product in enumerate(products):
                chain = word % len(chains)
                added = builder.fadd(chains[chain], product)
                chosen = _mask_lanes(builder, row, word)
                chains[chain] = builder.select(chosen, added, chains[chain])
            total = chains[0]
            for chain in chains[1:]:
                total = builder.fadd(total, chain)
            _store(builder, total, place, align=64)
        return context.get_dummy_value()

    return types.void(words, tail, *[types.int64] * 7), codegen


@intrinsic
def _fold(typingctx, source, target):
    """target[0] = the sum of the 16 lanes at source; then the lanes are set to zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load(builder, args[0], align=64)
        width = LANES
        while width > 1:
            width //= 2
            moved = [(lane + width) if lane < width else lane for lane in range(LANES)]
            order = ir.Constant(ir.VectorType(_INDEX, LANES), moved)
            vector = builder.fadd(vector, builder.shuffle_vector(vector, vector, order))
        lowest = builder.extract_element(vector, ir.Constant(_INDEX, 0))
        builder.store(lowest, _pointer(builder, args[1], FLOAT), align=4)
        _store(builder, ZEROS, args[0], align=64)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@compiled(types.void(*[types.int64] * 12))
def mix_rows(
    bits, mask_stride, row_bytes, count, alpha, alpha_stride, unit_stride, weight, out, fan_in,
    first, last,
):  # fmt: skip
    """Rows [first, last) of one layer; addresses and strides in bytes."""
    for row in range(first, last):
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


@compiled(types.void(*[types.int64] * 14))
def sum_rows(
    bits, mask_stride, row_bytes, count, left_values, right_values, sums, out, mask_step,
    block_step, block_rows, fan_in, first, last,
):  # fmt: skip
    """Sums of rows [first, last), folded into out[block] after every `block_rows` rows.

    `first` is the start of a block; `sums` is memory for (count, 16) floats, all zero.
    """
    for row in range(first, last):
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
            target = out + row // block_rows * block_step
            for t in range(count):
                _fold(sums + t * 64, target + t * mask_step)
