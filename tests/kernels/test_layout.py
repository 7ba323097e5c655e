"""Packed masks: weight 8b + k of a row is bit k of its byte b, rows padded to 16 bits."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.kernels import pack, row_bytes, unpack

SIZES = st.integers(0, 5)


@pytest.mark.parametrize(
    ("fan_in", "size"), [(0, 0), (1, 2), (15, 2), (16, 2), (17, 4), (33, 6), (784, 98)]
)
def test_rows_are_padded_with_zeros_to_sixteen_bits(fan_in, size):
    bits = pack(torch.ones(3, fan_in, dtype=torch.bool))
    assert bits.shape == (3, row_bytes(fan_in)) == (3, size)
    every = unpack(bits, 8 * size)
    assert every[:, :fan_in].all()
    assert not every[:, fan_in:].any()


@given(
    lead=st.lists(SIZES, max_size=2), units=SIZES, fan_in=st.integers(0, 40), seed=st.integers(0, 9)
)
@settings(max_examples=60, deadline=None)
def test_unpack_undoes_pack_in_any_layout(lead, units, fan_in, seed):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand((*lead, units, fan_in), generator=generator) < 0.5
    turned = torch.rand((*lead, fan_in, units), generator=generator).mT < 0.5
    for each_mask in (mask, turned):
        bits = pack(each_mask)
        assert (bits.dtype, bits.shape) == (torch.uint8, (*lead, units, row_bytes(fan_in)))
        assert torch.equal(unpack(bits, fan_in), each_mask)
