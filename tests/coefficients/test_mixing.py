import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.coefficients.mixing import (
    Coefficients,
    CoefficientSpec,
    check_coefficients,
    masked_weights,
    mixed_weights,
    one_hot_coefficients,
    uniform_coefficients,
    unit_alphas,
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
@settings(max_examples=60, deadline=None)
def test_weights_are_those_of_eq_1_times_the_scales(spec, count, left, seed):
    """And stay so, bit for bit, as the bank grows; nothing that is given changes."""
    bank, weights, coefficients = bank_of(count, seed), frozen(seed), draw(count, spec, seed)
    mixed = mixed_weights(bank, weights, coefficients)
    assert list(mixed) == [layer.name for layer in LAYERS]
    for name, expected in dense(bank, weights, coefficients).items():
        assert mixed[name].dtype == torch.float32
        torch.testing.assert_close(mixed[name].double(), expected, rtol=1e-5, atol=1e-5)
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


@pytest.mark.parametrize("spec", [spec for spec in SPECS if not spec.input_scale], ids=str)
def test_coefficients_per_layer_and_output_scales_fold_into_those_per_unit(spec):
    bank, weights, coefficients = bank_of(6), frozen(), draw(6, spec)
    folded = Coefficients(unit_alphas(coefficients, LAYERS))
    assert folded.granularity == "unit"
    expected = mixed_weights(bank, weights, coefficients)
    for name, weight in mixed_weights(bank, weights, folded).items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="input scale"):
        unit_alphas(draw(6, CoefficientSpec(input_scale=True)), LAYERS)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_gradients_reach_every_number(spec):
    bank, weights = bank_of(6), frozen()

    def gradients(function):
        coefficients = draw(6, spec)
        tensors = [tensor.requires_grad_() for tensor in coefficients.tensors()]
        mixed = function(bank, weights, coefficients)
        total = sum(weight.double().pow(2).sum() for weight in mixed.values())
        return torch.autograd.grad(total, tensors)

    for ours, plain in zip(gradients(mixed_weights), gradients(dense), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_shapes_and_start(spec):
    start = uniform_coefficients(LAYERS, 5, spec)
    unit = spec.granularity == "unit"
    assert [tuple(a.shape) for a in start.alpha] == (
        [(5, 4), (5, 5), (5, 3)] if unit else [(5,)] * 3
    )
    assert all((alpha == 0.2).all() for alpha in start.alpha)
    assert (start.output_scale is not None, start.input_scale is not None) == (
        spec.output_scale,
        spec.input_scale,
    )
    if start.output_scale is not None:
        assert [scale.tolist() for scale in start.output_scale] == [[1] * 4, [1] * 5, [1] * 3]
    if start.input_scale is not None:
        assert [len(scale) for scale in start.input_scale] == [2, 33, 20]
    assert (start.num_masks, start.granularity) == (5, spec.granularity)
    assert start.numel == (5 * 12 if unit else 15) + 12 * spec.output_scale + 55 * spec.input_scale


def test_coefficients_that_do_not_fit_are_refused():
    bank, weights = bank_of(4), frozen()
    for coefficients in (draw(5), Coefficients(draw(4).alpha[:2])):
        with pytest.raises(InputError, match="do not fit a bank of 4 masks and 3 layers"):
            check_coefficients(coefficients, bank)
        with pytest.raises(InputError, match="do not fit"):
            mixed_weights(bank, weights, coefficients)
    turned = Coefficients(tuple(a.T for a in draw(4, CoefficientSpec("unit")).alpha[:1]) * 3)
    with pytest.raises(InputError, match="expected"):
        mixed_weights(bank, weights, turned)
    with pytest.raises(InputError, match="granularity must be one of layer, unit, got 'weight'"):
        CoefficientSpec("weight")
    with pytest.raises(InputError, match="the bank is empty"):
        uniform_coefficients(LAYERS, 0)
    for alpha in ((), (torch.ones(2), torch.ones(3))):
        with pytest.raises(InputError, match="one alpha per layer, all for the same masks"):
            Coefficients(alpha)


def test_detached_copies_and_the_matrix():
    coefficients = draw(4, CoefficientSpec("unit", output_scale=True))
    for tensor in coefficients.tensors():
        tensor.requires_grad_()
    copy = coefficients.detach()
    for ours, theirs in zip(copy.tensors(), coefficients.tensors(), strict=True):
        assert torch.equal(ours, theirs)
        assert not ours.requires_grad
        assert ours.data_ptr() != theirs.data_ptr()
    assert coefficients.to("meta").alpha[0].device.type == "meta"
    matrix = coefficients.matrix()
    assert matrix.shape == (4, 3)
    torch.testing.assert_close(matrix[:, 1], copy.alpha[1].mean(dim=1))
    layer = draw(4)
    assert torch.equal(layer.matrix(), torch.stack(layer.alpha, dim=1))
