"""The CPU kernels on tensors: threads around the compiled loops of `tiles`.

Work is cut into row blocks that do not depend on the number of threads, and partial sums are added
in their order, so results are the same for any thread count. The loops release the GIL and run on
a small pool of our own with as many threads as torch uses: Numba's own threading layers may not be
entered from two threads at once.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod

import torch
from torch import Tensor

from impresslearn.kernels.tiles import LANES, mix_rows, sum_rows

PARTIAL_BLOCKS = 16
SMALL_WORK = 400_000
"""Masked additions (weights x masks) below which handing work to other threads costs more."""


@functools.lru_cache(maxsize=8)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="impresslearn-mix")


def _run(jobs: Sequence[Callable[[], None]], work: int) -> None:
    """The jobs, on as many threads as torch would use; the caller's thread takes its share."""
    threads = min(torch.get_num_threads(), len(jobs))
    if threads <= 1 or work < SMALL_WORK:
        for job in jobs:
            job()
        return

    def share(first: int) -> None:
        for job in jobs[first::threads]:
            job()

    pool = _pool(threads, os.getpid())  # keyed by process: a pool's threads do not survive a fork
    others = [pool.submit(share, first) for first in range(1, threads)]
    share(0)
    for other in others:
        other.result()


def _blocks(units: int, work: int) -> list[tuple[int, int]]:
    """Row ranges, a function of the work alone: sums must not depend on the thread count."""
    size = -(-units // PARTIAL_BLOCKS) if work >= SMALL_WORK else max(1, units)
    return [(first, min(first + size, units)) for first in range(0, units, size)]


def _float32(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32).contiguous()


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `reference.mix`, for tensors on the CPU."""
    bits, alpha, values = _packed(bits), _float32(alpha), _float32(weight)
    count, units, width = bits.shape
    out = torch.empty_like(values)
    fan_in = prod(weight.shape[1:])
    alpha_stride = 4 * (alpha.shape[1] if alpha.dim() == 2 else 1)
    head = (bits.data_ptr(), bits.stride(0), width, count)
    body = (alpha.data_ptr(), alpha_stride, 4 * (alpha.dim() == 2), values.data_ptr())
    work = count * values.numel()
    jobs = [
        functools.partial(mix_rows, *head, *body, out.data_ptr(), fan_in, (first << 32) + last)
        for first, last in _blocks(units, work)
    ]
    _run(jobs, work)
    return out.to(weight.dtype)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """As `reference.mask_sums`, for tensors on the CPU."""
    bits, left, right = _packed(bits), _float32(left), _float32(right)
    count, units, width = bits.shape
    fan_in = prod(left.shape[1:])
    work = count * left.numel()
    blocks = _blocks(units, work)
    scratch = _scratch(len(blocks), count)
    shape = (count, units) if per_unit else (len(blocks), count)
    out = torch.empty(shape, dtype=torch.float32)
    address, size = scratch.data_ptr(), 4 * LANES * count
    jobs = []
    for block, (first, last) in enumerate(blocks):
        target = out.data_ptr() + (0 if per_unit else 4 * count * block)
        strides = (4 * units, 4) if per_unit else (4, 0)
        jobs.append(
            functools.partial(
                sum_rows, bits.data_ptr(), bits.stride(0), width, count, left.data_ptr(),
                right.data_ptr(), address + block * size, target, *strides, fan_in,
                (first << 32) + last,
            )
        )  # fmt: skip
    _run(jobs, work)
    return out if per_unit else out.sum(dim=0)


def _scratch(blocks: int, count: int) -> Tensor:
    """(blocks, count, 16) zeros on a 64-byte boundary."""
    room = torch.zeros(blocks * count * LANES + LANES, dtype=torch.float32)
    shift = (-room.data_ptr() % 64) // 4
    return room[shift : shift + blocks * count * LANES]


def _packed(bits: Tensor) -> Tensor:
    """The bits with contiguous rows; masks may lie at any even distance (a slice of a bank)."""
    inner = bits.stride()[1:] == (bits.shape[2], 1)
    return bits if inner or bits.numel() == 0 else bits.contiguous()
