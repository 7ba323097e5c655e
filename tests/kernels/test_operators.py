"""`mix` and `mix_layers`: gradients, all layers at once, tracing, and errors."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mix_kernels import draw

from impresslearn.kernels import functions, mix, pack, reference, row_bytes, unpack


def plain_mix(bits, alpha, weight):
    """Eq. 1 as torch would compute it."""
    masks = unpack(bits, weight[0].numel()).to(alpha.dtype)
    subscripts = "tu,tuj->uj" if alpha.dim() == 2 else "t,tuj->uj"
    return weight * torch.einsum(subscripts, alpha, masks).reshape(weight.shape)


@pytest.mark.parametrize("backend", ["fastest", "reference"])
@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 21), (1, 1), (3, 2, 3, 3), (6,)])
def test_gradients_are_those_of_the_plain_expression(shape, dtype, per_unit, backend, monkeypatch):
    if backend == "reference":
        monkeypatch.setattr(functions, "implementation", lambda device: reference)
    fan_in = torch.Size(shape[1:]).numel()
    bits, *drawn, upstream = draw(5, shape[0], fan_in, per_unit, dtype=dtype)
    upstream = upstream.reshape(shape)
    alpha, weight = drawn[0].requires_grad_(), drawn[1].reshape(shape).requires_grad_()
    exact_alpha, exact_weight = (x.detach().double().requires_grad_() for x in (alpha, weight))
    mixed = mix(bits, alpha, weight)
    exact = plain_mix(bits, exact_alpha, exact_weight.reshape(shape[0], -1)).reshape(shape)
    mixed.backward(upstream)
    exact.backward(upstream.double())
    assert (mixed.dtype, alpha.grad.dtype, weight.grad.dtype) == (dtype, torch.float32, dtype)
    part = max(1e-5, 2 * torch.finfo(dtype).eps)
    close = partial(torch.testing.assert_close, rtol=part, atol=1e-5, check_dtype=False)
    close(mixed, exact)
    close(alpha.grad, exact_alpha.grad)
    close(weight.grad, exact_weight.grad)


def step(bits, alpha, weight, inputs):
    return (inputs @ mix(bits, alpha, weight).T).square().mean()


def test_traced_whole_by_torch_compile():
    bits, alpha, weight, _ = draw(4, 3, 20)
    alpha.requires_grad_(), weight.requires_grad_()
    inputs = torch.randn(6, 20)
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    expected = step(bits, alpha, weight, inputs)
    value = compiled(bits, alpha, weight, inputs)
    torch.testing.assert_close(value, expected)
    wanted = torch.autograd.grad(expected, (alpha, weight))
    torch.testing.assert_close(torch.autograd.grad(value, (alpha, weight)), wanted)


@given(
    units=st.integers(0, 5), fan_in=st.integers(0, 40), seed=st.integers(0, 9), turned=st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_unpack_undoes_pack_and_rows_are_padded_with_zeros(units, fan_in, seed, turned):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand((2, units, fan_in), generator=generator) < 0.5
    if turned:
        mask = mask.mT.contiguous().mT
    bits = pack(mask)
    assert (bits.dtype, bits.shape) == (torch.uint8, (2, units, row_bytes(fan_in)))
    assert torch.equal(unpack(bits, fan_in), mask)
    assert not unpack(bits, 8 * row_bytes(fan_in))[..., fan_in:].any()
