"""The CPU kernels on tensors: threads around the compiled loops of `tiles`.

Work is cut into row blocks that do not depend on the number of threads, and partial sums are added
in their order, so results are the same for any thread count. The loops release the GIL and run on
a small pool of our own with as many threads as torch uses: Numba's own threading layers may not be
entered from two threads at once.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from math import prod
from queue import SimpleQueue

import torch
from torch import Tensor

from impresslearn.kernels.tiles import LANES, mix_rows, sum_rows

PARTIAL_BLOCKS = 16
SMALL_WORK = 400_000
"""Masked additions (weights x masks) below which handing work to other threads costs more."""


Kernel = Callable[[int, int], object]


class _Workers:
    """Threads that wait for a share of a kernel's rows. Any number of callers may use them at once.

    A queue a thread hands work over faster than an executor, which counts here: a share takes a
    few hundred microseconds (both kernels at N = 100, two threads: 0.59 ms instead of 0.65).
    """

    def __init__(self, count: int) -> None:
        self._inboxes: list[SimpleQueue] = [SimpleQueue() for _ in range(count)]
        for number, inbox in enumerate(self._inboxes):
            name = f"impresslearn-mix-{number}"
            threading.Thread(target=self._serve, args=(inbox,), name=name, daemon=True).start()

    def run(self, kernel: Kernel, spans: list[int]) -> None:
        """kernel(share, span) for every span, the first one in the caller's own thread."""
        done: SimpleQueue = SimpleQueue()
        for share, inbox in zip(range(1, len(spans)), self._inboxes, strict=False):
            inbox.put((kernel, share, spans[share], done))
        kernel(0, spans[0])
        for _ in spans[1:]:
            done.get()

    @staticmethod
    def _serve(inbox: SimpleQueue) -> None:
        while True:
            kernel, share, span, done = inbox.get()
            try:
                kernel(share, span)
            finally:
                done.put(None)


@functools.lru_cache(maxsize=8)
def _workers(count: int, process: int) -> _Workers:
    return _Workers(count)


def _run(kernel: Kernel, units: int, block: int, work: int) -> None:
    """Calls kernel(share, span) for shares of the rows, one a thread; the caller's takes part.

    span codes the rows as first * 2**32 + last; shares begin at whole blocks of rows.
    """
    spans = _spans(units, block, work)
    if len(spans) <= 1:
        for span in spans:
            kernel(0, span)
        return
    # Keyed by process: threads do not survive a fork.
    _workers(len(spans) - 1, os.getpid()).run(kernel, spans)


def _spans(units: int, block: int, work: int) -> list[int]:
    threads = torch.get_num_threads() if work >= SMALL_WORK else 1
    blocks = -(-units // block)
    size = -(-blocks // max(1, threads)) * block
    return [(first << 32) + min(first + size, units) for first in range(0, units, max(1, size))]


def _block(units: int, work: int) -> int:
    """Rows whose sums are added up first: set by the work, so that threads change no bit."""
    return max(1, -(-units // PARTIAL_BLOCKS) if work >= SMALL_WORK else units)


def _float32(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.float32 and tensor.is_contiguous():
        return tensor
    return tensor.detach().to(torch.float32).contiguous()


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `reference.mix`, for tensors on the CPU."""
    bits, alpha, values = _packed(bits), _float32(alpha), _float32(weight)
    count, units, width = bits.shape
    out = torch.empty_like(values, requires_grad=False)
    fan_in = prod(weight.shape[1:])
    strides = (4 * units, 4) if alpha.dim() == 2 else (4, 0)
    arguments = (
        bits.data_ptr(), bits.stride(0), width, count, alpha.data_ptr(), *strides,
        values.data_ptr(), out.data_ptr(), fan_in,
    )  # fmt: skip
    work = count * values.numel()
    _run(lambda _, span: mix_rows(*arguments, span), units, _block(units, work), work)
    return out if out.dtype == weight.dtype else out.to(weight.dtype)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """As `reference.mask_sums`, for tensors on the CPU."""
    bits, left, right = _packed(bits), _float32(left), _float32(right)
    count, units, width = bits.shape
    work = count * left.numel()
    block = 1 if per_unit else _block(units, work)
    blocks = -(-units // block)
    out = torch.empty((count, units) if per_unit else (blocks, count), dtype=torch.float32)
    strides = (4 * units, 4) if per_unit else (4, 4 * count)
    scratch = _scratch(torch.get_num_threads(), count)
    arguments = (out.data_ptr(), *strides, block, prod(left.shape[1:]))
    inputs = (
        bits.data_ptr(), bits.stride(0), width, count, left.data_ptr(), right.data_ptr(),
    )  # fmt: skip

    def kernel(share: int, span: int) -> None:
        sum_rows(*inputs, scratch.data_ptr() + share * 4 * LANES * count, *arguments, span)

    _run(kernel, units, block, work)
    return out if per_unit else out.sum(dim=0)


def _scratch(shares: int, count: int) -> Tensor:
    """(shares, count, 16) zeros, flat, on a 64-byte boundary."""
    room = torch.zeros(shares * count * LANES + LANES, dtype=torch.float32)
    return room[(-room.data_ptr() % 64) // 4 :]


def _packed(bits: Tensor) -> Tensor:
    """The bits with contiguous rows; masks may lie at any even distance (a slice of a bank)."""
    inner = bits.stride()[1:] == (bits.shape[2], 1)
    return bits if inner or bits.numel() == 0 else bits.contiguous()
