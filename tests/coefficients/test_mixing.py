import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.coefficients.mixing import (
    Coefficients,
    CoefficientSpec,
    masked_weights,
    mixed_weights,
    one_hot_coefficients,
    uniform_coefficients,
)
from impresslearn.errors import InputError
from impresslearn.masks import add_random_masks, random_bank
from impresslearn.networks.layers import MaskableLayer

LAYERS = (
    MaskableLayer("conv.weight", (4, 2, 3, 3)),
    MaskableLayer("wide.weight", (5, 33)),
    MaskableLayer("head.weight", (3, 20)),
)
SPECS = [CoefficientSpec(g, o, i) for g in ("layer", "unit") for o in (0, 1) for i in (0, 1)]
SHAPES = [layer.shape for layer in LAYERS]


def frozen(seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return {layer.name: torch.randn(layer.shape, generator=generator).to(dtype) for layer in LAYERS}


def bank_of(count, seed=0):
    return random_bank(LAYERS, count, sparsity=0.6, seed=seed)


def draw(count, spec=None, seed=0):
    """Random coefficients with the shapes of `uniform_coefficients`."""
    generator = torch.Generator().manual_seed(seed)
    start = uniform_coefficients(LAYERS, count, spec)
    return start.like(torch.randn(each.shape, generator=generator) for each in start.tensors())


def dense(bank, weights, coefficients):
    """Eq. 1 and the scales with unpacked masks, in float64."""
    mixed = {}
    for number, layer in enumerate(LAYERS):
        masks = torch.stack([bank.mask(name)[layer.name] for name in bank.names])
        alpha = coefficients.alpha[number].double()
        masks = masks[: len(alpha)].double().reshape(len(alpha), layer.units, layer.fan_in)
        columns = alpha if alpha.dim() == 2 else alpha[:, None].expand(-1, layer.units)
        weight = torch.einsum("tu,tuj->uj", columns, masks).reshape(layer.shape)
        weight = weight * weights[layer.name].double()
        tail = (1,) * (len(layer.shape) - 2)
        if coefficients.output_scale is not None:
            weight = weight * coefficients.output_scale[number].double().reshape(-1, 1, *tail)
        if coefficients.input_scale is not None:
            weight = weight * coefficients.input_scale[number].double().reshape(1, -1, *tail)
        mixed[layer.name] = weight
    return mixed


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name


@given(
    spec=st.sampled_from(SPECS),
    count=st.integers(1, 9),
    left=st.integers(1, 20),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_weights_are_those_of_eq_1_times_the_scales(spec, count, left, seed):
    """With their gradients; and stay so, bit for bit, as the bank grows."""
    bank, weights, coefficients = bank_of(count, seed), frozen(seed), draw(count, spec, seed)
    numbers = [tensor.requires_grad_() for tensor in coefficients.tensors()]
    both = [make(bank, weights, coefficients) for make in (mixed_weights, dense)]
    mixed, expected = both
    assert list(mixed) == [layer.name for layer in LAYERS]
    for name, weight in mixed.items():
        assert weight.dtype == torch.float32
        torch.testing.assert_close(weight.double(), expected[name], rtol=1e-5, atol=1e-5)
    ours, plain = (
        torch.autograd.grad(sum(w.double().pow(2).sum() for w in each.values()), numbers)
        for each in both
    )
    for gradient, exact in zip(ours, plain, strict=True):
        torch.testing.assert_close(gradient, exact, rtol=1e-3, atol=1e-3)
    add_random_masks(bank, left, sparsity=0.6)
    assert_equal(mixed_weights(bank, weights, coefficients), mixed)
    assert_equal(weights, frozen(seed))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_one_mask_alone_is_its_one_hot_mixture_bit_for_bit(dtype):
    bank, weights = bank_of(9), frozen(1, dtype)
    for position, name in enumerate(bank.names):
        alone = masked_weights(bank, weights, name)
        assert_equal(alone, {key: weights[key] * mask for key, mask in bank.mask(name).items()})
        assert_equal(alone, mixed_weights(bank, weights, one_hot_coefficients(LAYERS, position, 9)))
        assert {weight.dtype for weight in alone.values()} == {dtype}


def test_coefficients_that_do_not_fit_are_refused():
    bank, weights = bank_of(4), frozen()
    for coefficients in (draw(5), Coefficients(draw(4).alpha[:2])):
        with pytest.raises(InputError, match="do not fit 4 masks and 3 layers"):
            mixed_weights(bank, weights, coefficients)
    turned = Coefficients(tuple(a.T for a in draw(4, CoefficientSpec("unit")).alpha[:1]) * 3)
    with pytest.raises(InputError, match="expected"):
        mixed_weights(bank, weights, turned)
    with pytest.raises(
        InputError, match="granularity must be one of layer, unit, weight, readout, got 'kernel'"
    ):
        CoefficientSpec("kernel")
    with pytest.raises(InputError, match='must be coded; set precision="coded"'):
        CoefficientSpec("weight")
    with pytest.raises(InputError, match="need no scales"):
        CoefficientSpec("weight", output_scale=True, bit_price=1)
    with pytest.raises(InputError, match="the bank is empty"):
        uniform_coefficients(LAYERS, 0)
    for alpha in ((), (torch.ones(2), torch.ones(3))):
        with pytest.raises(InputError, match="one alpha per layer, all for the same masks"):
            Coefficients(alpha)
