"""CPU kernels on tensors: run compiled loops in several threads.

The work is divided into blocks of rows that do not depend on the number of threads. Partial sums
are added in the order of the blocks, so results are bit-identical for any number of threads. The
loops release the GIL and run in a thread pool of this module, because Numba's default threading
layer aborts when two Python threads enter it.
"""

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
# Blocks have a multiple of 16 rows. Since rows have an even number of bytes, a block then fills at
# least half a cache line.
WHOLE_ROWS = 16
# With fewer masked additions (weights x masks) than this, other threads cost more than they save.
SMALL_WORK = 400_000

LOOKUP_FEATURES = {"+avx512f", "+avx512bw", "+avx512vbmi", "+gfni"}
LOOKUP_MASKS = 32  # with fewer, building the tables takes as long as they save
LOOKUP_FAN_IN = 49  # `lookup` reads the bits of four words of 16 weights at once

# Arguments: the address of the scratch memory, the first row, and the row after the last.
Kernel = Callable[[int, int, int], object]


@functools.lru_cache(maxsize=8)
def _pool(count: int, process: int) -> ThreadPoolExecutor:
    """The thread pool of a process; the id is in the key because threads do not survive a fork."""
    return ThreadPoolExecutor(count, thread_name_prefix="impresslearn-mix")


def _run(kernel: Kernel, units: int, block: int, work: int, scratch: int) -> None:
    """Divides the rows among threads and calls the kernel in each; no block is divided.

    Each call gets its own `scratch` bytes of zeros, aligned to a cache line.
    """
    threads = max(1, torch.get_num_threads()) if work >= SMALL_WORK else 1
    memory = torch.zeros(threads * scratch + 64, dtype=torch.uint8, device="cpu")
    address = memory.data_ptr() + -memory.data_ptr() % 64
    if threads == 1 or not units:
        kernel(address, 0, units)
        return
    size = max(1, -(-units // (block * threads)) * block)
    firsts = enumerate(range(0, units, size))
    shares = [(address + scratch * n, first, min(first + size, units)) for n, first in firsts]
    pool = _pool(threads - 1, os.getpid())
    waiting = [pool.submit(kernel, *share) for share in shares[1:]]
    kernel(*shares[0])
    for future in waiting:
        future.result()


def _block(units: int, work: int) -> int:
    """The number of rows in a block; it depends only on the work, not on the threads."""
    if work < SMALL_WORK:
        return max(1, units)
    return -(-units // (PARTIAL_BLOCKS * WHOLE_ROWS)) * WHOLE_ROWS


def mix(bits: Tensor, alpha: Tensor, weight: Tensor) -> Tensor:
    """As `reference.mix`, for tensors on the CPU."""
    bits, alpha, values = _packed(bits), _float32(alpha), _float32(weight)
    count, units, width = bits.shape
    fan_in, work = prod(weight.shape[1:]), count * values.numel()
    # The loops write float32 to addresses, so torch's default dtype and device must not be used.
    out = torch.empty_like(values, dtype=torch.float32, device="cpu")
    alpha_strides = (4 * units, 4) if alpha.dim() == 2 else (4, 0)
    masks = (bits.data_ptr(), bits.stride(0), width, count)
    loops = _loops(count, fan_in)
    tensors = (alpha.data_ptr(), *alpha_strides, values.data_ptr(), out.data_ptr(), fan_in)

    def kernel(scratch: int, first: int, last: int) -> None:
        loops.mix_rows(*masks, *tensors, scratch, first, last)

    _run(kernel, units, _block(units, work), work, scratch=16 * (count + 16))
    return out if out.dtype == weight.dtype else out.to(weight.dtype)


def mask_sums(bits: Tensor, left: Tensor, right: Tensor, per_unit: bool) -> Tensor:
    """As `reference.mask_sums`, for tensors on the CPU."""
    bits, left, right = _packed(bits), _float32(left), _float32(right)
    count, units, width = bits.shape
    fan_in, work = prod(left.shape[1:]), count * left.numel()
    block = 1 if per_unit else _block(units, work)
    blocks = -(-units // block)
    loops = _loops(count, fan_in)
    out = torch.zeros((blocks, count + -count % 16), dtype=torch.float32, device="cpu")
    masks = (bits.data_ptr(), bits.stride(0), width, count, left.data_ptr(), right.data_ptr())

    def kernel(scratch: int, first: int, last: int) -> None:
        target = (scratch, out.data_ptr(), 4 * out.shape[1], block, fan_in)
        loops.sum_rows(*masks, *target, first, last)

    _run(kernel, units, block, work, scratch=64 * count)
    sums = out[:, :count]
    if per_unit:
        return sums.T.contiguous()
    return sums[0] if blocks == 1 else sums.sum(dim=0)


def _loops(count: int, fan_in: int) -> ModuleType:
    """The faster loops for a layer."""
    large = count >= LOOKUP_MASKS and fan_in >= LOOKUP_FAN_IN
    return (large and _lookup()) or tiles


@functools.cache
def _lookup() -> ModuleType | None:
    """The module `lookup`, if the processor has its instructions."""
    return usable("lookup") if tiles.processor_features() >= LOOKUP_FEATURES else None


def _float32(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float32).contiguous()


def _packed(bits: Tensor) -> Tensor:
    """The bits with contiguous rows. Masks may have any even stride (as in a slice of a bank)."""
    rows_are_whole = bits.stride()[1:] == (bits.shape[2], 1)
    return bits if rows_are_whole or bits.numel() == 0 else bits.contiguous()
