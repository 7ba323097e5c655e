import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.kernels import pack, popcount, row_bytes, unpack

SIZES = st.integers(0, 5)


def random_mask(shape, seed=0, density=0.5):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density


@pytest.mark.parametrize(
    ("fan_in", "size"), [(0, 0), (1, 2), (15, 2), (16, 2), (17, 4), (32, 4), (33, 6), (784, 98)]
)
def test_rows_are_padded_to_sixteen_bits(fan_in, size):
    assert row_bytes(fan_in) == size
    assert pack(torch.ones(3, fan_in, dtype=torch.bool)).shape == (3, size)


@pytest.mark.parametrize("position", [0, 1, 7, 8, 15, 16, 20])
def test_weight_8b_plus_k_is_bit_k_of_byte_b(position):
    mask = torch.zeros(1, 21, dtype=torch.bool)
    mask[0, position] = True
    expected = torch.zeros(4, dtype=torch.uint8)
    expected[position // 8] = 1 << (position % 8)
    assert torch.equal(pack(mask)[0], expected)


@given(
    lead=st.lists(SIZES, max_size=2), units=SIZES, fan_in=st.integers(0, 40), seed=st.integers(0, 9)
)
@settings(max_examples=60, deadline=None)
def test_unpack_undoes_pack(lead, units, fan_in, seed):
    mask = random_mask((*lead, units, fan_in), seed)
    bits = pack(mask)
    assert bits.dtype == torch.uint8
    assert bits.shape == (*lead, units, row_bytes(fan_in))
    assert torch.equal(unpack(bits, fan_in), mask)


@pytest.mark.parametrize("fan_in", [1, 8, 9, 15, 17, 31, 100])
def test_padding_bits_are_zero(fan_in):
    bits = pack(torch.ones(2, 3, fan_in, dtype=torch.bool))
    every = unpack(bits, 8 * bits.shape[-1])
    assert every[..., :fan_in].all()
    assert not every[..., fan_in:].any()


def test_a_transposed_mask_is_packed_by_its_shape_not_its_memory():
    mask = random_mask((21, 5)).T
    assert not mask.is_contiguous()
    assert torch.equal(pack(mask), pack(mask.contiguous()))
    assert torch.equal(unpack(pack(mask), 21), mask)


@given(count=SIZES, units=SIZES, fan_in=st.integers(0, 40), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_popcount_is_the_number_of_ones(count, units, fan_in, seed):
    mask = random_mask((count, units, fan_in), seed)
    ones = popcount(pack(mask))
    assert ones.dtype == torch.int64
    assert torch.equal(ones, mask.sum(dim=(1, 2)))


def test_popcount_of_a_slice():
    mask = random_mask((6, 4, 30))
    assert torch.equal(popcount(pack(mask)[::2, 1:]), mask[::2, 1:].sum(dim=(1, 2)))


def test_popcount_does_not_overflow_a_byte():
    assert popcount(pack(torch.ones(1, 300, 784, dtype=torch.bool))).tolist() == [235_200]
