"""CPU kernels on tensors: threads around the compiled loops of `tiles` and, optionally, `tables`.

Work is cut into row blocks that do not depend on the number of threads, and partial sums are added
in their order, so results are the same for any thread count. The loops release the GIL and run on
a pool with as many threads as torch uses: Numba's own threading layers may not be entered from two
threads at once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import prod
from types import ModuleType

import torch
from torch import Tensor

from impresslearn.kernels import tiles
from impresslearn.kernels.compiling import usable

PARTIAL_BLOCKS = 16
WHOLE_ROWS = 16
"""Rows of bits, of an even number of bytes, that fill half lines of the cache at least."""
MANY_MASKS, LONG_UNIT = 32, 256
"""From how many masks, and weights a unit with coefficients of its own, `tables` are faster."""
SMALL_WORK = 400_000
"""Masked additions (weights x masks) below which handing work to other threads costs more."""

Kernel = Callable[[int, int], object]


@functools.lru_cache(maxsize=8)
def _pool(count: int, process: int) -> ThreadPoolExecutor:
    """Threads of one process: they do not survive a fork."""
    return ThreadPoolExecutor(count, thread_name_prefix="impresslearn-mix")


def _run(kernel: Kernel, units: int, block: int, work: int, scratch: int) -> None:
    """Calls kernel(scratch, span) for shares of the rows, one a thread; the caller's takes part.

    Each has zeros at its own address, on a line of the cache, `scratch` bytes of them. span codes
    the rows as first * 2**32 + last; shares begin at whole blocks of rows.
    """
    threads = max(1, torch.get_num_threads()) if work >= SMALL_WORK else 1
    room = torch.zeros(threads * scratch + 64, dtype=torch.uint8, device="cpu")
    address = room.data_ptr() + -room.data_ptr() % 64
    if threads == 1:
        if units:
            kernel(address, units)
        return
    blocks = -(-units // block)
    size = max(1, -(-blocks // threads) * block)
    spans = [(first << 32) + min(first + size, units) for first in range(0, units, size)]
    pool = _pool(threads - 1, os.getpid())
    shares = [(address + scratch * share, span) for share, span in enumerate(spans)]
    others = [pool.submit(kernel, *share) for share in shares[1:]]
    kernel(*shares[0])
    for other in others:
        other.result()


def _block(units: int, work: int) -> int:
    """Rows whose sums are added up first: set by the work, so that threads change no bit."""
    if work < SMALL_WORK:
        return max(1, units)
    return -(-units // (PARTIAL_BLOCKS * WHOLE_ROWS)) * WHOLE_ROWS


def _loops(count: int, fan_in: int, per_unit: bool) -> ModuleType:
    """Chosen by shapes only, so that a task's weights are the same at every call."""
    enough = count >= MANY_MASKS and (fan_in >= LONG_UNIT or not per_unit)
    return (usable("tables") if enough and fan_in else None) or tiles


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `reference.mix`, for tensors on the CPU."""
    bits, alpha, values = _packed(bits), _float32(alpha), _float32(weight)
    count, units, width = bits.shape
    # The loops write float32 through addresses: no allocation may follow torch's defaults.
    out = torch.empty_like(values, dtype=torch.float32, device="cpu")
    per_unit, fan_in, work = alpha.dim() == 2, prod(weight.shape[1:]), count * values.numel()
    strides = (4 * units, 4) if per_unit else (4, 0)
    masks = (bits.data_ptr(), bits.stride(0), width, count)
    arguments = (*masks, alpha.data_ptr(), *strides, values.data_ptr(), out.data_ptr(), fan_in)
    loops, block = _loops(count, fan_in, per_unit), _block(units, work)

    def kernel(scratch: int, span: int) -> None:
        loops.mix_rows(*arguments, scratch, span)

    _run(kernel, units, block, work, loops.scratch_bytes(count))
    return out if out.dtype == weight.dtype else out.to(weight.dtype)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """As `reference.mask_sums`, for tensors on the CPU."""
    bits, left, right = _packed(bits), _float32(left), _float32(right)
    count, units, width = bits.shape
    fan_in, work = prod(left.shape[1:]), count * left.numel()
    block = 1 if per_unit else _block(units, work)
    blocks = -(-units // block)
    shape = (count, units) if per_unit else (blocks, count)
    out = torch.empty(shape, dtype=torch.float32, device="cpu")
    strides = (4 * units, 4) if per_unit else (4, 4 * count)
    loops = _loops(count, fan_in, per_unit)
    masks = (bits.data_ptr(), bits.stride(0), width, count, left.data_ptr(), right.data_ptr())
    target = (out.data_ptr(), *strides, block, fan_in)

    def kernel(scratch: int, span: int) -> None:
        loops.sum_rows(*masks, scratch, *target, span)

    _run(kernel, units, block, work, loops.scratch_bytes(count))
    return out if per_unit else out[0] if blocks == 1 else out.sum(dim=0)


def _float32(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.float32 and tensor.is_contiguous():
        return tensor
    return tensor.detach().to(torch.float32).contiguous()


def _packed(bits: Tensor) -> Tensor:
    """The bits with contiguous rows; masks may lie at any even distance (a slice of a bank)."""
    inner = bits.stride()[1:] == (bits.shape[2], 1)
    return bits if inner or bits.numel() == 0 else bits.contiguous()
