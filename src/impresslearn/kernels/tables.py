# mypy: ignore-errors
# LLVM builders and compiled loops carry no useful types.
"""Optional compiled loops for many masks: four bits at a time, looked up in tables.

What that buys: one coefficient step of LeNet-300-100 (batch 128, one thread, Zen 4), minima in ms
of interleaved runs:

    masks                     100    1,000
    with `tiles` alone        3.7     17.2
    with this file            3.3     14.0

It needs AVX-512 with VBMI and GFNI; where these or the inner parts of Numba that it uses are
missing, `tiles` serve. To delete it: remove this file, its tests and the choice in `cpu._loops`.

The sum over four masks of their coefficients takes one of 16 values for any weight, and so does the
sum over four weights under any mask (the "four Russians"). A table of 16 floats is one vector, and
one permutation looks up 16 lanes at once: one addition for four bits instead of one for each. In
`mix_rows` the lanes are 16 weights and the tables hold sums of four coefficients; in `sum_rows`
they are 16 masks and the tables hold sums of four products. Either way bits must first be turned so
that those of a lane come together: 64 bytes of 8 or 16 masks at a time, in registers.

A run of rows is one stream of bits, cut where coefficients or sums change. Words of 16 bits at the
ends of rows may be padded, the weights are not. Arguments are as in `tiles`. Numba's cache on disk
looks at a loop's own file only: after a change to `tiles`, remove the cached code of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from impresslearn.kernels import tiles as make
from impresslearn.kernels.compiling import UnsupportedProcessorError, compiled

FEATURES = ("avx512f", "avx512bw", "avx512vbmi", "gfni")
CHUNK = 64
"""Bytes of each mask that are turned at a time: 32 words, 512 weights."""

INTEGERS = ir.VectorType(ir.IntType(32), 16)
WORDS = ir.VectorType(ir.IntType(16), 32)
BYTES = ir.VectorType(ir.IntType(8), CHUNK)

_present = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
if not {f"+{feature}" for feature in FEATURES} <= set(_present):
    raise UnsupportedProcessorError(f"tables need a processor with {', '.join(FEATURES)}")


def scratch_bytes(count: int) -> int:
    """Room that a thread needs; both functions divide it up for themselves, summing needs less.

    In lines: coefficients, their tables, the sums of 32 words, and 16 groups of eight masks turned.
    """
    return 64 * (5 * -(-count // 16) + 32 + 128)


def _constant(kind: Any, values: list[int]) -> Any:
    return ir.Constant(kind, values * (kind.count // len(values)))


def _opaque(builder: Any, value: Any) -> Any:
    """The value, hidden from the optimiser, which would else replace the instruction it is for."""
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=v,0", [value], False)


def _look_up(builder: Any, table: Any, index: Any) -> Any:
    """table[index & 15] in every lane; table: floats, index: integers."""
    return make.call(builder, "llvm.x86.avx512.permvar.sf.512", make.FLOATS, table, index)


def _line(builder: Any, address: Any, number: int, kind: Any = make.FLOATS) -> Any:
    """Line `number` of the cache from an address on."""
    return make.load(builder, make.offset(builder, address, 64 * number), align=64, kind=kind)


def _keep(builder: Any, value: Any, address: Any, number: int) -> None:
    make.store(builder, value, make.offset(builder, address, 64 * number), align=64)


def _rows(builder: Any, bits: Any, stride: Any, last: Any, valid: Any, count: int) -> list:
    """64 bytes of `count` masks, the first `valid` of them; the last mask stands in for more."""
    exists = make.first_lanes(builder, valid, CHUNK)
    rows = []
    for number in range(count):
        mask = make.call(builder, "llvm.smin.i64", last.type, last, last.type(number))
        row = builder.add(bits, builder.mul(mask, stride))
        make.prefetch(builder, make.offset(builder, row, make.AHEAD))
        rows.append(make.load(builder, row, exists, align=1, kind=BYTES))
    return rows


def _woven(builder: Any, rows: list, size: int) -> list:
    """Elements of `size` bytes: the first of each row, then the second; by quarters of a row."""
    if len(rows) == 1:
        return rows
    kind = ir.VectorType(ir.IntType(8 * size), CHUNK // size)
    quarter = kind.count // 4
    vectors = []
    for pair in zip(*(_woven(builder, rows[side::2], size) for side in (0, 1)), strict=True):
        left, right = (builder.bitcast(each, kind) for each in pair)
        for begin in (0, quarter // 2):
            starts = range(begin, kind.count, quarter)
            firsts = [start + step for start in starts for step in range(quarter // 2)]
            places = [place + side for place in firsts for side in (0, kind.count)]
            vectors.append(make.shuffle(builder, left, right, places))
    return vectors


def _quarters(builder: Any, left: Any, right: Any, first: int) -> Any:
    """Quarters `first` and first + 2 of both vectors."""
    places = [4 * quarter + step for quarter in (first, first + 2) for step in range(4)]
    return make.shuffle(builder, left, right, places + [16 + place for place in places])


@intrinsic
def _turn_eight(typingctx, bits, stride, last, valid, to):
    """Eight masks x 64 bytes to 8 vectors of 64 bytes, each byte the bits of one weight.

    Vector j holds the words j, j + 8, j + 16 and j + 24, as `_add_tile` wants them: byte k of its
    16 integers belongs to the 16 weights of word j + 8k.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        *source, to = args
        rows = _rows(builder, *source, 8)
        order = [16 * word + weight for weight in range(16) for word in range(4)]
        order = _opaque(builder, _constant(BYTES, order))
        single = _constant(BYTES, [1 << place for place in range(8)])
        for number, vector in enumerate(_woven(builder, rows[::-1], 1)):
            # The 8x8 bits of every 8 bytes, transposed; mirrored already in the order of the rows.
            turned = (single, vector, ir.IntType(8)(0))
            bits = make.call(builder, "llvm.x86.vgf2p8affineqb.512", BYTES, *turned)
            bits = make.call(builder, "llvm.x86.avx512.permvar.qi.512", BYTES, bits, order)
            _keep(builder, bits, to, number)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def _turn_sixteen(typingctx, bits, stride, last, valid, to):
    """Sixteen masks x 64 bytes to 16 vectors of integers: 32 weights each, a lane a mask."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        *source, to = args
        rows = _rows(builder, *source, 16)
        fours = [_woven(builder, rows[first : first + 4], 4) for first in range(0, 16, 4)]
        for step, parts in enumerate(zip(*fours, strict=True)):
            for first in (0, 1):
                left, right = (_quarters(builder, *parts[two : two + 2], first) for two in (0, 2))
                for half in (0, 1):
                    vector = _quarters(builder, left, right, half)
                    _keep(builder, vector, to, 4 * (first + 2 * half) + step)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


def _factors(builder: Any) -> list:
    """What `_nibbles` multiplies by. Made outside of loops: what is opaque is not moved."""
    return [_opaque(builder, _constant(WORDS, [1 << shift])) for shift in (12, 8, 4)]


def _nibbles(builder: Any, address: Any, factors: list) -> Callable[[int], Any]:
    """nibble(n): the integers at an address, shifted so that their lowest bits are nibble n.

    The upper half of a product costs as much as a shift, but on other ports of the processor than
    the permutation that follows.
    """
    halves = [_line(builder, address, 0, INTEGERS)]
    halves.append(builder.lshr(halves[0], _constant(INTEGERS, [16])))

    def nibble(number: int) -> Any:
        half, factor = halves[number // 4], factors[number % 4 - 1]
        if number % 4 == 0:
            return half
        words = builder.bitcast(half, WORDS)
        product = make.call(builder, "llvm.x86.avx512.pmulhu.w.512", WORDS, words, factor)
        return builder.bitcast(product, INTEGERS)

    return nibble


@intrinsic(prefer_literal=True)
def _add_tile(typingctx, words, first, bits, groups, tables, sums):
    """Σ_t alpha_t for the weights of words 0, 8, ... of a chunk: set if `first`, else added."""
    if not isinstance(words, types.IntegerLiteral):
        return None
    tile = words.literal_value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first, bits, groups, tables, sums = args[1:]
        fresh = builder.icmp_signed("!=", first, first.type(0))
        totals = []
        for word in range(tile):
            start = builder.select(fresh, make.ZEROS, _line(builder, sums, 8 * word))
            totals.append(cgutils.alloca_once_value(builder, start))
        factors = _factors(builder)
        with cgutils.for_range(builder, groups) as loop:
            step = builder.mul(loop.index, loop.index.type(2 * 64))
            table = builder.add(tables, step)
            pair = [_line(builder, table, half) for half in (0, 1)]
            eight = builder.mul(loop.index, loop.index.type(8 * CHUNK))
            nibble = _nibbles(builder, builder.add(bits, eight), factors)
            for word, total in enumerate(totals):
                now = builder.load(total)
                for half in (0, 1):
                    found = _look_up(builder, pair[half], nibble(2 * word + half))
                    now = builder.fadd(now, found)
                builder.store(now, total)
        for word, total in enumerate(totals):
            _keep(builder, builder.load(total), sums, 8 * word)
        return context.get_dummy_value()

    return types.void(words, *[types.int64] * 5), codegen


@intrinsic
def _add_sixteen(typingctx, bits, integers, tables, sums):
    """sums[mask] += the products that 16 masks choose, 32 weights an integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, integers, tables, sums = args
        # Four independent chains hide the latency of the additions.
        starts = [_line(builder, sums, 0), *[make.ZEROS] * 3]
        chains = [cgutils.alloca_once_value(builder, start) for start in starts]
        factors = _factors(builder)
        with cgutils.for_range(builder, integers) as loop:
            step = builder.mul(loop.index, loop.index.type(8 * 64))
            table = builder.add(tables, step)
            turned = builder.mul(loop.index, loop.index.type(CHUNK))
            nibble = _nibbles(builder, builder.add(bits, turned), factors)
            for number in range(8):
                found = _look_up(builder, _line(builder, table, number), nibble(number))
                chain = chains[number % 4]
                builder.store(builder.fadd(builder.load(chain), found), chain)
        one, two, three, four = (builder.load(chain) for chain in chains)
        total = builder.fadd(builder.fadd(one, two), builder.fadd(three, four))
        _keep(builder, total, sums, 0)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def _tables(typingctx, values, to):
    """16 floats to four tables, one for every four of them: entry i sums those at the bits of i."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _line(builder, args[0], 0)

        def sums(first: int) -> Any:
            """Quarter q: 0, x, y and x + y, x and y being values `first` and first + 1 of four."""
            zero, starts = 16, [4 * quarter + first for quarter in range(4)]
            lower = [place for x in starts for place in (zero, x, zero, x)]
            upper = [place for x in starts for place in (zero, zero, x + 1, x + 1)]
            both = (make.shuffle(builder, vector, make.ZEROS, each) for each in (lower, upper))
            return builder.fadd(*both)

        low, high = sums(0), sums(2)
        for table in range(4):
            by_low = make.shuffle(builder, low, low, [4 * table + i % 4 for i in range(16)])
            by_high = make.shuffle(builder, high, high, [4 * table + i // 4 for i in range(16)])
            _keep(builder, builder.fadd(by_low, by_high), args[1], table)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def _multiply(typingctx, left, right, valid, out, kept):
    """out = left * right for the first `valid` of 16 floats, and zeros up to the first `kept`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right, valid, out, kept = args
        lanes = make.first_lanes(builder, valid)
        product = builder.fmul(*(make.load(builder, each, lanes) for each in (left, right)))
        make.store(builder, product, out, make.first_lanes(builder, kept))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5), codegen


@intrinsic
def _copy(typingctx, source, target):
    """Copies one float."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, target = (make.pointer(builder, address, make.FLOAT) for address in args)
        builder.store(builder.load(source, align=4), target, align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@compiled(types.void(*[types.int64] * 12))
def mix_rows(
    bits, mask_stride, row_bytes, count, alpha, alpha_stride, unit_stride, weight, out, fan_in,
    scratch, span,
):  # fmt: skip
    """Rows [first, last) of one layer, coded in span = first * 2**32 + last."""
    last = span & 0xFFFFFFFF
    sixteens, eights = (count + 15) >> 4, (count + 7) >> 3
    alphas, tables = scratch, scratch + sixteens * 64
    sums = tables + sixteens * 256
    turned = sums + 2048
    words_a_row = row_bytes >> 1
    tail = fan_in - 16 * (words_a_row - 1)
    rows = 1 if unit_stride else last
    for first in range(span >> 32, last, rows):
        for sixteen in range(sixteens):
            _multiply(alphas + 64 * sixteen, alphas + 64 * sixteen, 0, alphas + 64 * sixteen, 16)
        for t in range(count):
            _copy(alpha + t * alpha_stride + first * unit_stride, alphas + 4 * t)
        for sixteen in range(sixteens):
            _tables(alphas + 64 * sixteen, tables + 256 * sixteen)
        stream = bits + first * row_bytes
        length = min(rows, last - first) * row_bytes
        w, o = weight + first * fan_in * 4, out + first * fan_in * 4
        column = 0
        for start in range(0, length, 64):
            words = min(32, (length - start) >> 1)
            for group in range(0, eights, 16):
                groups = min(16, eights - group)
                for eight in range(group, group + groups):
                    b, to = stream + start + eight * 8 * mask_stride, turned + 512 * (eight - group)
                    _turn_eight(b, mask_stride, count - 1 - 8 * eight, 2 * words, to)
                table = tables + 128 * group
                for j in range(min(8, words)):
                    tile, s, b = (words - j + 7) >> 3, sums + 64 * j, turned + 64 * j
                    if tile == 4:
                        _add_tile(4, group == 0, b, groups, table, s)
                    elif tile == 3:
                        _add_tile(3, group == 0, b, groups, table, s)
                    elif tile == 2:
                        _add_tile(2, group == 0, b, groups, table, s)
                    else:
                        _add_tile(1, group == 0, b, groups, table, s)
            for word in range(words):
                column += 1
                valid = 16 if column < words_a_row else tail
                _multiply(sums + 64 * word, w, valid, o, valid)
                w, o = w + 4 * valid, o + 4 * valid
                if column == words_a_row:
                    column = 0


@compiled(types.void(*[types.int64] * 13))
def sum_rows(
    bits, mask_stride, row_bytes, count, left_values, right_values, scratch, out, out_stride,
    block_stride, block_rows, fan_in, span,
):  # fmt: skip
    """Sums of rows [first, last), one out[block] for every `block_rows` rows from `first` on."""
    last = span & 0xFFFFFFFF
    sixteens = (count + 15) >> 4
    sums, tables = scratch, scratch + 64 * sixteens
    turned, products = tables + 8192, tables + 8192 + 1024
    words_a_row = row_bytes >> 1
    tail = fan_in - 16 * (words_a_row - 1)
    for first in range(span >> 32, last, block_rows):
        for sixteen in range(sixteens):
            _multiply(sums + 64 * sixteen, sums + 64 * sixteen, 0, sums + 64 * sixteen, 16)
        stream = bits + first * row_bytes
        length = min(block_rows, last - first) * row_bytes
        x, y = left_values + first * fan_in * 4, right_values + first * fan_in * 4
        column = 0
        for start in range(0, length, 64):
            words = min(32, (length - start) >> 1)
            for word in range(words):
                column += 1
                valid = 16 if column < words_a_row else tail
                _multiply(x, y, valid, products, 16)
                x, y = x + 4 * valid, y + 4 * valid
                if column == words_a_row:
                    column = 0
                _tables(products, tables + 256 * word)
            if words & 1:  # an integer of bits is two words; these tables stand for no weights
                _multiply(products, products, 0, products, 16)
                _tables(products, tables + 256 * words)
            for sixteen in range(sixteens):
                b = stream + start + sixteen * 16 * mask_stride
                _turn_sixteen(b, mask_stride, count - 1 - 16 * sixteen, 2 * words, turned)
                _add_sixteen(turned, (words + 1) >> 1, tables, sums + 64 * sixteen)
        target = out + first // block_rows * block_stride
        for t in range(count):
            _copy(sums + 4 * t, target + t * out_stride)
