"""What the compiled loops read and write: their rows, and nothing else."""

import subprocess
import sys

import pytest
import torch

from impresslearn.kernels import pack, reference
from impresslearn.kernels.compiling import usable


@pytest.fixture
def loops():
    return usable("tiles") or pytest.skip("the compiled loops cannot be used here")


@pytest.mark.parametrize("count", [1, 16, 37, 130])
@pytest.mark.parametrize("fan_in", [1, 15, 100, 257])
@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
def test_nothing_outside_the_rows_is_written(loops, count, fan_in, per_unit):
    """Rows 1 and 2 of 4; the rows around them, the next mask and the room behind stay."""
    generator = torch.Generator().manual_seed(0)
    bits = pack(torch.rand((count, 4, fan_in), generator=generator) < 0.4)
    alpha = torch.randn((count, 4) if per_unit else (count,), generator=generator)
    left, right = torch.randn((2, 4, fan_in), generator=generator)
    out, sums = torch.full((4, fan_in), 7.0), torch.full((count + 1, 4), 7.0)
    size = loops.scratch_bytes(count) // 4
    room = torch.zeros(size + 80)  # zeros on a line of the cache, and then 7s
    first = -room.data_ptr() % 64 // 4
    room[first + size :] = 7.0
    scratch = room.data_ptr() + 4 * first
    head = (bits.data_ptr(), bits.stride(0), bits.shape[2], count)
    strides = (16, 4) if per_unit else (4, 0)
    ends = (left.data_ptr(), out.data_ptr(), fan_in, 1, 3)
    values = (left.data_ptr(), right.data_ptr(), scratch, sums.data_ptr())
    loops.sum_rows(*head, *values, 16, 4, 1, fan_in, 1, 3)
    loops.mix_rows(*head, alpha.data_ptr(), *strides, *ends)
    expected = reference.mix(bits, alpha, left)[1:3]
    torch.testing.assert_close(out[1:3], expected, rtol=1e-4, atol=1e-5)
    expected = reference.mask_sums(bits, left, right, True)[:, 1:3]
    torch.testing.assert_close(sums[:count, 1:3], expected, rtol=1e-4, atol=1e-4)
    for kept in (out[[0, 3]], sums[:, [0, 3]], sums[count], room[first + size :]):
        assert (kept == 7).all()


PAGE_END = """
import ctypes, importlib, mmap, sys
import torch
from impresslearn.kernels import pack, reference
loops = importlib.import_module(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
keep = []

def at_page_end(values):
    # Values that end where readable memory ends: one element too far is a crash.
    size = values.numel() * values.element_size()
    pages = -(-size // mmap.PAGESIZE)
    area = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    wall = start + pages * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(wall), mmap.PAGESIZE, 0) == 0
    ctypes.memmove(wall - size, values.contiguous().data_ptr(), size)
    keep.append(area)
    return wall - size

def floats(address, count):
    return torch.frombuffer((ctypes.c_float * count).from_address(address), dtype=torch.float32)

for count in (1, 3, 8, 16, 21):
    for fan_in in (1, 15, 16, 17, 100, 257, 300, 784):
        bits = pack(torch.rand(count, 2, fan_in) < 0.5)
        alpha, weight = torch.randn(count), torch.randn(2, fan_in)
        out, sums = at_page_end(torch.zeros(2, fan_in)), at_page_end(torch.zeros(count))
        room = at_page_end(torch.zeros(loops.scratch_bytes(count) // 4))
        masks, values = at_page_end(bits), at_page_end(weight)
        head = (masks, bits.stride(0), bits.shape[2], count)
        loops.sum_rows(*head, values, values, room, sums, 4, 0, 2, fan_in, 0, 2)
        loops.mix_rows(*head, at_page_end(alpha), 4, 0, values, out, fan_in, 0, 2)
        expected = reference.mix(bits, alpha, weight).flatten()
        torch.testing.assert_close(floats(out, 2 * fan_in), expected, rtol=1e-4, atol=1e-5)
        expected = reference.mask_sums(bits, weight, weight, False)
        torch.testing.assert_close(floats(sums, count), expected, rtol=1e-4, atol=1e-4)
        keep.clear()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with Linux's mprotect")
def test_nothing_past_the_end_is_touched(loops):
    command = [sys.executable, "-c", PAGE_END, loops.__name__]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
