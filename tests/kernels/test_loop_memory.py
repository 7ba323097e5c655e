"""What the compiled loops read and write: their rows, and nothing else."""

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
