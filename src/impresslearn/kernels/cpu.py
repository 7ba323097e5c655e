"""The CPU kernels on tensors: threads around the compiled loops of `tiles` and `tables`.

Few masks go to `tiles`; many go to `tables` where the processor has the instructions. The choice
depends on the shapes only, so that a task's weights are the same at every call.

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
from types import ModuleType

import torch
from torch import Tensor

from impresslearn.kernels import tiles
from impresslearn.kernels.instructions import available
from impresslearn.kernels.loading import none_if_unusable

FEATURES = ("avx512f", "avx512bw", "avx512vbmi", "gfni")
"""The instructions that `tables` is made of."""
MIX_TABLES, MIX_TABLES_PER_UNIT = (16, 1), (24, 256)
SUM_TABLES, SUM_TABLES_PER_UNIT = (32, 1), (32, 128)
"""From how many masks on, and how many weights a unit, tables are faster than tiles."""
PARTIAL_BLOCKS = 16
WHOLE_ROWS = 16
"""Rows of bits, of an even number of bytes, that fill half lines of the cache at least."""
SMALL_WORK = 400_000
"""Masked additions (weights x masks) below which handing work to other threads costs more."""


Kernel = Callable[[int, int], object]


class _Workers:
    """Threads that wait for a share of a kernel's rows. Any number of callers may use them at once.

    A queue a thread hands work over faster than an executor, which counts here: a share takes a
    few hundred microseconds (both kernels over tiles at N = 100, two threads: 0.59 ms instead of
    0.65).
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
    threads = _threads(work)
    if threads == 1:
        if units:
            kernel(0, units)
        return
    blocks = -(-units // block)
    size = max(1, -(-blocks // threads) * block)
    spans = [(first << 32) + min(first + size, units) for first in range(0, units, size)]
    # Keyed by process: threads do not survive a fork.
    _workers(threads - 1, os.getpid()).run(kernel, spans)


def _threads(work: int) -> int:
    return max(1, torch.get_num_threads()) if work >= SMALL_WORK else 1


def _block(units: int, work: int) -> int:
    """Rows whose sums are added up first: set by the work, so that threads change no bit."""
    if work < SMALL_WORK:
        return max(1, units)
    return -(-units // (PARTIAL_BLOCKS * WHOLE_ROWS)) * WHOLE_ROWS


@none_if_unusable
def _tables() -> ModuleType | None:
    """The loops over tables, compiled where this processor has their instructions."""
    if not available(*FEATURES):
        return None
    from impresslearn.kernels import tables

    return tables


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `reference.mix`, for tensors on the CPU."""
    bits, alpha, values = _packed(bits), _float32(alpha), _float32(weight)
    count, units, width = bits.shape
    out = torch.empty_like(values)
    fan_in = prod(weight.shape[1:])
    per_unit = alpha.dim() == 2
    arguments = (
        bits.data_ptr(), bits.stride(0), width, count, alpha.data_ptr(),
        *((4 * units, 4) if per_unit else (4, 0)), values.data_ptr(), out.data_ptr(), fan_in,
    )  # fmt: skip
    work = count * values.numel()
    enough = MIX_TABLES_PER_UNIT if per_unit else MIX_TABLES
    tables = _tables() if count >= enough[0] and fan_in >= enough[1] else None
    if tables is None:
        _run(lambda _, span: tiles.mix_rows(*arguments, span), units, _block(units, work), work)
    else:
        loop, size = tables.mix_rows, tables.scratch_bytes(count)
        room = torch.empty(_threads(work) * size + 64, dtype=torch.uint8)
        first = _aligned(room)
        _run(
            lambda share, span: loop(*arguments, first + share * size, span),
            units, _block(units, work), work,
        )  # fmt: skip
    return out if out.dtype == weight.dtype else out.to(weight.dtype)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """As `reference.mask_sums`, for tensors on the CPU."""
    bits, left, right = _packed(bits), _float32(left), _float32(right)
    count, units, width = bits.shape
    work = count * left.numel()
    block = 1 if per_unit else _block(units, work)
    blocks = -(-units // block)
    fan_in = prod(left.shape[1:])
    out = torch.empty((count, units) if per_unit else (blocks, count))
    strides = (4 * units, 4) if per_unit else (4, 4 * count)
    enough = SUM_TABLES_PER_UNIT if per_unit else SUM_TABLES
    tables = _tables() if count >= enough[0] and fan_in >= enough[1] else None
    loops = tiles if tables is None else tables
    size = loops.scratch_bytes(count)
    # Zeros, which the tiles start from.
    room = torch.zeros(_threads(work) * size + 64, dtype=torch.uint8)
    first = _aligned(room)
    inputs = (
        bits.data_ptr(), bits.stride(0), width, count, left.data_ptr(), right.data_ptr(),
    )  # fmt: skip
    arguments = (out.data_ptr(), *strides, block, fan_in)
    _run(
        lambda share, span: loops.sum_rows(*inputs, first + share * size, *arguments, span),
        units, block, work,
    )  # fmt: skip
    return out if per_unit else out[0] if blocks == 1 else out.sum(dim=0)


def _aligned(room: Tensor) -> int:
    """The first address in it on a 64-byte boundary."""
    address = room.data_ptr()
    return address + -address % 64


def _float32(tensor: Tensor) -> Tensor:
    if tensor.dtype == torch.float32 and tensor.is_contiguous():
        return tensor
    return tensor.detach().to(torch.float32).contiguous()


def _packed(bits: Tensor) -> Tensor:
    """The bits with contiguous rows; masks may lie at any even distance (a slice of a bank)."""
    inner = bits.stride()[1:] == (bits.shape[2], 1)
    return bits if inner or bits.numel() == 0 else bits.contiguous()
