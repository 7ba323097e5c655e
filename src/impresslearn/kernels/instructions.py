"""Vector instructions of 16 floats, or 64 bytes, from which `tiles` and `tables` are built.

Each function takes an LLVM builder and values and returns a value; addresses are integers. What has
a plain form in LLVM is written in it, so that any processor can run it; the functions under
"AVX-512" name instructions that `available` must have found. Numba's cache on disk looks at
a loop's own file only: after a change here, remove the cached code of `tiles` and `tables`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

LANES = 16

FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, LANES)
INTEGERS = ir.VectorType(ir.IntType(32), LANES)
WORDS = ir.VectorType(ir.IntType(16), 2 * LANES)
BYTES = ir.VectorType(ir.IntType(8), 4 * LANES)
PREDICATE = ir.VectorType(ir.IntType(1), LANES)
ZEROS = FLOATS(None)
_INDEX = ir.IntType(32)


@functools.cache
def available(*features: str) -> bool:
    """Whether Numba compiles for a processor with these instructions, such as "avx512f"."""
    from numba.core.registry import cpu_target  # not at import: `tiles` can do without

    _, _, target = cpu_target.target_context.codegen().magic_tuple()
    return {f"+{feature}" for feature in features} <= set(target.split(","))


def literals(*arguments: Any) -> bool:
    """Whether all arguments of an intrinsic are compile-time integers."""
    return all(isinstance(argument, types.IntegerLiteral) for argument in arguments)


def pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def offset(builder: Any, address: Any, count: int) -> Any:
    return builder.add(address, ir.Constant(address.type, count))


def constant(kind: Any, values: Sequence[int] | int) -> Any:
    """A vector of these values, or of one value in all lanes."""
    each = [values] * kind.count if isinstance(values, int) else list(values)
    return ir.Constant(kind, each)


def opaque(builder: Any, value: Any) -> Any:
    """The value, hidden from the optimiser, which would else replace the instruction that uses it:
    a multiplication by a power of two by a shift, a general permutation by a dozen simple ones."""
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=v,0", [value], False)


def splat(builder: Any, value: Any, kind: Any = FLOATS) -> Any:
    """One value in all lanes."""
    empty = ir.Constant(kind, ir.Undefined)
    single = builder.insert_element(empty, value, ir.Constant(_INDEX, 0))
    return shuffle(builder, single, empty, [0] * kind.count)


def shuffle(builder: Any, left: Any, right: Any, places: Sequence[int]) -> Any:
    """Lanes of two vectors side by side, at fixed places."""
    order = ir.Constant(ir.VectorType(_INDEX, len(places)), list(places))
    return builder.shuffle_vector(left, right, order)


def first_lanes(builder: Any, count: Any, lanes: int = LANES) -> Any:
    """A predicate: true in the first `count` lanes (in all of them if there are no more)."""
    wide = ir.VectorType(ir.IntType(64), lanes)
    limit = splat(builder, count, wide)
    return builder.icmp_signed("<", constant(wide, range(lanes)), limit)


def load(builder: Any, address: Any, lanes: Any = None, align: int = 4, kind: Any = FLOATS) -> Any:
    """A vector from memory; only the lanes of a predicate are read, the others are zero."""
    place = pointer(builder, address, kind)
    if lanes is None:
        return builder.load(place, align=align)
    arguments = [place.type, _INDEX, lanes.type, kind]
    masked = _function(builder, f"llvm.masked.load.{_suffix(kind)}.p0", kind, arguments)
    return builder.call(masked, [place, ir.Constant(_INDEX, align), lanes, kind(None)])


def store(builder: Any, value: Any, address: Any, lanes: Any = None, align: int = 4) -> None:
    """A vector to memory; with a predicate only its lanes are written."""
    place = pointer(builder, address, value.type)
    if lanes is None:
        builder.store(value, place, align=align)
        return
    arguments = [value.type, place.type, _INDEX, lanes.type]
    name = f"llvm.masked.store.{_suffix(value.type)}.p0"
    masked = _function(builder, name, ir.VoidType(), arguments)
    builder.call(masked, [value, place, ir.Constant(_INDEX, align), lanes])


def prefetch(builder: Any, address: Any) -> None:
    """Asks for the cache line at an address that may lie past the end of the bits."""
    place = pointer(builder, address, ir.IntType(8))
    request = _function(builder, "llvm.prefetch.p0", ir.VoidType(), [place.type, *[_INDEX] * 3])
    settings = [ir.Constant(_INDEX, value) for value in (0, 3, 1)]  # read, keep, data
    builder.call(request, [place, *settings])


# AVX-512


def look_up(builder: Any, table: Any, index: Any) -> Any:
    """table[index & 15] in every lane; table: floats, index: integers."""
    name = "llvm.x86.avx512.permvar.sf.512"
    return builder.call(_function(builder, name, FLOATS, [FLOATS, INTEGERS]), [table, index])


def permute_bytes(builder: Any, values: Any, order: Any) -> Any:
    """values[order & 63] in every byte."""
    name = "llvm.x86.avx512.permvar.qi.512"
    return builder.call(_function(builder, name, BYTES, [BYTES, BYTES]), [values, order])


def high_products(builder: Any, index: Any, factor: Any) -> Any:
    """The upper halves of the products of 16-bit words: with a factor 2**(16 - n), a shift by n."""
    name = "llvm.x86.avx512.pmulhu.w.512"
    words = builder.bitcast(index, WORDS)
    multiply = _function(builder, name, WORDS, [WORDS, WORDS])
    return builder.bitcast(builder.call(multiply, [words, factor]), INTEGERS)


def transpose_bits(builder: Any, values: Any) -> Any:
    """The 8x8 bits of every 8 bytes, transposed and mirrored: bit b of byte k comes from bit k of
    byte 7-b."""
    byte = ir.IntType(8)
    name = "llvm.x86.vgf2p8affineqb.512"
    single = constant(BYTES, [1 << (place % 8) for place in range(64)])
    affine = _function(builder, name, BYTES, [BYTES, BYTES, byte])
    return builder.call(affine, [single, values, byte(0)])


def _function(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    kind = ir.FunctionType(result, list(arguments))
    return cgutils.get_or_insert_function(builder.module, kind, name)


def _suffix(kind: Any) -> str:
    element = kind.element
    return f"v{kind.count}" + ("f32" if element == FLOAT else f"i{element.width}")
