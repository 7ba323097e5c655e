# mypy: ignore-errors
# LLVM builders and compiled loops carry no useful types.
"""Loops for many masks that are faster than `tiles`: one addition per four mask bits.

Four numbers have 16 possible sums, and four mask bits select one. `mix_rows` sums coefficients of
four masks at one weight, in lanes of 16 weights. `sum_rows` sums products of weights at four places
of one mask, in lanes of 16 masks. One instruction looks up 16 entries of a table of 16 floats.

With 100 masks over 300 x 784 weights (one thread, Sapphire Rapids), mixing takes 0.57 and summing
0.75 of the time that `tiles` takes. The instructions are AVX-512 with VBMI and GFNI (Intel since
Ice Lake, AMD since Zen 4). Arguments are as in `tiles`. Numba's cache on disk follows changes to
this file only: after a change to `tiles`, delete the cached code of this file.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from impresslearn.kernels import tiles as llvm
from impresslearn.kernels.compiling import compiled
from impresslearn.kernels.tiles import ALL, FLOAT, FLOATS, LANES, ZEROS

WORDS = 4  # words (16 weights each) in a part of a row, whose mask bits are one 64-bit integer
WIDE = 4 * WORDS  # words in a tile; a larger tile uses more of each cache line at a time

INDEX, LONG = ir.IntType(32), ir.IntType(64)
BYTES, INTEGERS = ir.VectorType(ir.IntType(8), 64), ir.VectorType(INDEX, LANES)
LONGS, MASKS = ir.VectorType(LONG, LANES), ir.VectorType(LONG, 8)
COUNTING = LONGS(list(range(LANES)))


def _shuffle(builder: Any, left: Any, right: Any, places: list[int]) -> Any:
    return builder.shuffle_vector(left, right, ir.VectorType(INDEX, len(places))(places))


def _for_tiles(builder: Any, fan_in: Any, emit: Callable[[Any, list], None]) -> None:
    """Emits the code for each tile of a row by `emit(first word, lanes of each word)`.

    The last tile ends where the row ends. lanes: which weights exist and are in no earlier tile.
    """
    words = builder.lshr(builder.add(fan_in, LONG(LANES - 1)), LONG(4))
    whole = builder.and_(builder.lshr(fan_in, LONG(4)), LONG(-WIDE))
    with cgutils.for_range_slice(builder, LONG(0), whole, LONG(WIDE)) as (first, _):
        emit(first, [ALL] * WIDE)
    with cgutils.for_range_slice(builder, whole, words, LONG(WORDS)) as (start, _):
        last = builder.sub(words, LONG(WORDS))
        first = llvm.call(builder, "llvm.smin.i64", LONG, start, last)
        begin = llvm.splat(builder, builder.mul(start, LONG(LANES)), LONGS)
        end, lanes = llvm.splat(builder, fan_in, LONGS), []
        for word in range(WORDS):
            place = builder.mul(builder.add(first, LONG(word)), LONG(LANES))
            weights = builder.add(llvm.splat(builder, place, LONGS), COUNTING)
            new = builder.icmp_signed(">=", weights, begin)
            lanes.append(builder.and_(new, builder.icmp_signed("<", weights, end)))
        emit(first, lanes)


def _for_groups(builder: Any, count: Any, size: int, emit: Callable[[Any, list], None]) -> None:
    """Emits the code for each group of `size` masks by `emit(group, masks)`.

    The last mask is repeated to fill the last group.
    """

    def masks(group: Any) -> list:
        return [builder.add(builder.mul(group, LONG(size)), LONG(n)) for n in range(size)]

    whole, last = builder.udiv(count, LONG(size)), builder.sub(count, LONG(1))
    with cgutils.for_range(builder, whole) as loop:
        emit(loop.index, masks(loop.index))
    with builder.if_then(builder.icmp_signed("<", builder.mul(whole, LONG(size)), count)):
        emit(whole, [llvm.call(builder, "llvm.smin.i64", LONG, n, last) for n in masks(whole)])


def _rows(builder: Any, bits: Any, stride: Any, masks: list, part: int) -> Any:
    """The 64 bits of a part of eight masks' rows, as one vector."""
    vector = ir.Constant(MASKS, ir.Undefined)
    for lane, mask in enumerate(masks):
        row = llvm.offset(builder, bits, mask, stride)
        if part == 0:
            llvm.prefetch(builder, row)
        place = llvm.pointer(builder, llvm.offset(builder, row, part, 2 * WORDS), LONG)
        vector = builder.insert_element(vector, builder.load(place, align=2), INDEX(lane))
    return vector


def _transposed(builder: Any, rows: Any) -> Any:
    """The bits of eight masks in one byte per weight, from `_rows`."""
    # Integer n gets byte n of all eight rows. Then each integer is transposed, as a matrix of 8 x 8
    # bits. The instruction reads its matrix from the last byte to the first.
    order = [8 * (7 - byte % 8) + byte // 8 for byte in range(64)]
    matrix = _shuffle(builder, builder.bitcast(rows, BYTES), BYTES(None), order)
    unit, name = BYTES([1 << byte % 8 for byte in range(64)]), "llvm.x86.vgf2p8affineqb.512"
    return llvm.call(builder, name, BYTES, unit, matrix, ir.IntType(8)(0))


def _look_up(builder: Any, table: Any, integers: Any, nibble: int) -> Any:
    """The table's entry at the given nibble of each of 16 integers."""
    index = builder.lshr(integers, INTEGERS([4 * nibble] * LANES))
    return llvm.call(builder, "llvm.x86.avx512.permvar.sf.512", FLOATS, table, index)


def _tables_of(builder: Any, values: Any) -> list:
    """A table for every four of 16 floats; entry i sums the floats at the set bits of i."""

    def sums(first: int) -> Any:
        """0, x, y and x + y, for x and y at `first` and `first + 1` of every four."""
        x = [lane // 4 * 4 + first if lane & 1 else LANES for lane in range(LANES)]
        y = [lane // 4 * 4 + first + 1 if lane & 2 else LANES for lane in range(LANES)]
        return builder.fadd(*(_shuffle(builder, values, ZEROS, places) for places in (x, y)))

    low, high, tables = sums(0), sums(2), []
    for start in range(0, LANES, 4):
        by_low = _shuffle(builder, low, low, [start + entry % 4 for entry in range(LANES)])
        by_high = _shuffle(builder, high, high, [start + entry // 4 for entry in range(LANES)])
        tables.append(builder.fadd(by_low, by_high))
    return tables


@intrinsic
def _coefficient_tables(typingctx, alpha, alpha_stride, count, tables):
    """Writes a table for every four of `count` coefficients."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        alpha, alpha_stride, count, tables = args
        start, stride, end = (llvm.splat(builder, n, LONGS) for n in (alpha, alpha_stride, count))
        with cgutils.for_range_slice(builder, LONG(0), count, LONG(LANES)) as (first, _):
            masks = builder.add(llvm.splat(builder, first, LONGS), COUNTING)
            places = builder.add(start, builder.mul(masks, stride))
            pointers = builder.inttoptr(places, ir.VectorType(FLOAT.as_pointer(), LANES))
            exist, name = builder.icmp_signed("<", masks, end), "llvm.masked.gather.v16f32.v16p0"
            values = llvm.call(builder, name, FLOATS, pointers, INDEX(4), exist, ZEROS)
            for number, table in enumerate(_tables_of(builder, values)):
                llvm.store(builder, table, llvm.offset(builder, tables, first, 16), number)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), codegen


@intrinsic
def _mix_row(typingctx, bits, mask_stride, count, tables, weight, out, fan_in):
    """out = weight * Σ_t alpha_t * mask_t on one row."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, mask_stride, count, tables, weight, out, fan_in = args

        def tile(first: Any, lanes: list) -> None:
            start = llvm.offset(builder, bits, first, 2)
            # Lane l of a part's sum k belongs to its weight 4 l + k.
            sums = [cgutils.alloca_once(builder, FLOATS) for _ in lanes]
            for place in sums:
                builder.store(ZEROS, place)

            def group(index: Any, masks: list) -> None:
                two = llvm.offset(builder, tables, index, 128)
                low, high = (llvm.load(builder, two, half) for half in (0, 1))
                for number, place in enumerate(sums):
                    part, k = divmod(number, WORDS)
                    if k == 0:
                        rows = _rows(builder, start, mask_stride, masks, part)
                        integers = builder.bitcast(_transposed(builder, rows), INTEGERS)
                    one = _look_up(builder, low, integers, 2 * k)
                    other = _look_up(builder, high, integers, 2 * k + 1)
                    total = builder.fadd(builder.load(place), one)
                    builder.store(builder.fadd(total, other), place)

            _for_groups(builder, count, 8, group)
            source, target = (llvm.offset(builder, address, first, 64) for address in (weight, out))
            for word, exist in enumerate(lanes):
                part, quarter = divmod(word, WORDS)
                a, b, c, d = (builder.load(place) for place in sums[WORDS * part :][:WORDS])
                places = [4 * quarter + lane // 4 + lane % 2 * LANES for lane in range(LANES)]
                pairs = (_shuffle(builder, *pair, places) for pair in ((a, b), (c, d)))
                in_order = [lane + lane % 4 // 2 * LANES for lane in range(LANES)]
                total = _shuffle(builder, *pairs, in_order)
                product = builder.fmul(total, llvm.load(builder, source, word, exist))
                llvm.store(builder, product, target, word, exist)

        _for_tiles(builder, fan_in, tile)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), codegen


@intrinsic
def _sum_row(typingctx, bits, mask_stride, count, left, right, sums, fan_in):
    """sums[t] += Σ left * right * mask_t on one row; `sums` has room for whole groups of 16."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, mask_stride, count, left, right, sums, fan_in = args

        def tile(first: Any, lanes: list) -> None:
            one, other = (llvm.offset(builder, address, first, 64) for address in (left, right))
            start, tables = llvm.offset(builder, bits, first, 2), []
            for word, exist in enumerate(lanes):
                x, y = (llvm.load(builder, address, word, exist) for address in (one, other))
                for table in _tables_of(builder, builder.fmul(x, y)):
                    tables.append(cgutils.alloca_once(builder, FLOATS))
                    builder.store(table, tables[-1])

            def group(number: Any, masks: list) -> None:
                # Four independent sums hide the latency of the additions.
                chains = [llvm.load(builder, sums, number), *[ZEROS] * 3]
                for nibble, place in enumerate(tables):
                    part, within = divmod(nibble, 16)
                    if within == 0:
                        halves = (masks[:8], masks[8:])
                        rows = [_rows(builder, start, mask_stride, half, part) for half in halves]
                        rows = [builder.bitcast(each, INTEGERS) for each in rows]
                    if within % 8 == 0:  # the lower or the upper 32 weights of each mask
                        integers = _shuffle(builder, *rows, list(range(within // 8, 32, 2)))
                    sums_of_masks = _look_up(builder, builder.load(place), integers, within % 8)
                    chains[nibble % 4] = builder.fadd(chains[nibble % 4], sums_of_masks)
                pairs = (builder.fadd(*chains[:2]), builder.fadd(*chains[2:]))
                llvm.store(builder, builder.fadd(*pairs), sums, number)

            _for_groups(builder, count, 16, group)

        _for_tiles(builder, fan_in, tile)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), codegen


@compiled(types.void(*[types.int64] * 13))
def mix_rows(
    bits, mask_stride, row_bytes, count, alpha, alpha_stride, unit_stride, weight, out, fan_in,
    tables, first, last,
):  # fmt: skip
    """As `tiles.mix_rows`; `tables` is memory for (count rounded up to 16) * 4 floats."""
    for row in range(first, last):
        packed, place = bits + row * row_bytes, 4 * row * fan_in
        if unit_stride or row == first:
            _coefficient_tables(alpha + row * unit_stride, alpha_stride, count, tables)
        _mix_row(packed, mask_stride, count, tables, weight + place, out + place, fan_in)


@compiled(types.void(*[types.int64] * 13))
def sum_rows(
    bits, mask_stride, row_bytes, count, left, right, _, out, block_step, block_rows, fan_in,
    first, last,
):  # fmt: skip
    """As `tiles.sum_rows`; out[block] has room for whole groups of 16 masks, all zero."""
    for row in range(first, last):
        packed, place = bits + row * row_bytes, 4 * row * fan_in
        sums = out + row // block_rows * block_step
        _sum_row(packed, mask_stride, count, left + place, right + place, sums, fan_in)
