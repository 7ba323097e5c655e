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
from impresslearn.masks.bank import MaskBank
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


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_weights_are_those_of_eq_1_times_the_scales(spec):
    bank, weights, coefficients = bank_of(6), frozen(), draw(6, spec)
    mixed = mixed_weights(bank, weights, coefficients)
    assert list(mixed) == [layer.name for layer in LAYERS]
    for name, expected in dense(bank, weights, coefficients).items():
        assert mixed[name].dtype == torch.float32
        torch.testing.assert_close(mixed[name].double(), expected, rtol=1e-5, atol=1e-5)


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


def test_a_uniform_start_is_the_mean_of_the_masks():
    bank, weights = bank_of(4), frozen()
    mixed = mixed_weights(bank, weights, uniform_coefficients(LAYERS, 4))
    for layer in LAYERS:
        mean = torch.stack([bank.mask(name)[layer.name] for name in bank.names]).float().mean(0)
        torch.testing.assert_close(mixed[layer.name], weights[layer.name] * mean)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_one_hot_coefficients_give_that_mask_exactly(dtype):
    bank, weights = bank_of(5), frozen(dtype=dtype)
    for position, name in enumerate(bank.names):
        mixed = mixed_weights(bank, weights, one_hot_coefficients(LAYERS, position, 5))
        assert_equal(mixed, {key: weights[key] * mask for key, mask in bank.mask(name).items()})


@given(seed=st.integers(0, 50), factor=st.floats(-3, 3), unit=st.booleans())
@settings(max_examples=25, deadline=None)
def test_mixing_is_linear_in_the_coefficients(seed, factor, unit):
    bank, weights = bank_of(7), frozen()
    spec = CoefficientSpec("unit" if unit else "layer")
    first, second = draw(7, spec, seed), draw(7, spec, seed + 1000)
    both = Coefficients(
        tuple(a + factor * b for a, b in zip(first.alpha, second.alpha, strict=True))
    )
    parts = [mixed_weights(bank, weights, each) for each in (first, second)]
    for name, mixed in mixed_weights(bank, weights, both).items():
        expected = parts[0][name] + factor * parts[1][name]
        torch.testing.assert_close(mixed, expected, rtol=1e-4, atol=1e-4)


@given(order=st.permutations(range(6)), unit=st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_order_of_the_masks_does_not_matter(order, unit):
    bank, weights = bank_of(6), frozen()
    shuffled = MaskBank(LAYERS)
    for place in order:
        shuffled.append(f"m{place}", bank.mask(bank.names[place]))
    coefficients = draw(6, CoefficientSpec("unit" if unit else "layer"))
    moved = Coefficients(tuple(alpha[list(order)] for alpha in coefficients.alpha))
    expected = mixed_weights(bank, weights, coefficients)
    for name, mixed in mixed_weights(shuffled, weights, moved).items():
        torch.testing.assert_close(mixed, expected[name], rtol=1e-5, atol=1e-5)


def test_coefficients_per_layer_are_equal_coefficients_per_unit():
    bank, weights, coefficients = bank_of(6), frozen(), draw(6)
    expanded = Coefficients(unit_alphas(coefficients, LAYERS))
    assert expanded.granularity == "unit"
    assert_equal(mixed_weights(bank, weights, expanded), mixed_weights(bank, weights, coefficients))


@pytest.mark.parametrize("granularity", ["layer", "unit"])
def test_output_scales_fold_into_coefficients_per_unit(granularity):
    bank, weights = bank_of(6), frozen()
    coefficients = draw(6, CoefficientSpec(granularity, output_scale=True))
    folded = mixed_weights(bank, weights, Coefficients(unit_alphas(coefficients, LAYERS)))
    for name, expected in mixed_weights(bank, weights, coefficients).items():
        torch.testing.assert_close(folded[name], expected, rtol=1e-5, atol=1e-5)


def test_input_scales_do_not_fold():
    with pytest.raises(InputError, match="input scale"):
        unit_alphas(draw(6, CoefficientSpec(input_scale=True)), LAYERS)


def test_scales_multiply_units_and_inputs():
    bank, weights = bank_of(3), frozen()
    plain = draw(3)
    generator = torch.Generator().manual_seed(5)
    rows = tuple(torch.rand(layer.shape[0], generator=generator) for layer in LAYERS)
    columns = tuple(torch.rand(layer.shape[1], generator=generator) for layer in LAYERS)
    scaled = mixed_weights(bank, weights, Coefficients(plain.alpha, rows, columns))
    expected = mixed_weights(bank, weights, plain)
    torch.testing.assert_close(
        scaled["conv.weight"],
        expected["conv.weight"] * rows[0][:, None, None, None] * columns[0][None, :, None, None],
    )
    torch.testing.assert_close(
        scaled["head.weight"], rows[2][:, None] * expected["head.weight"] * columns[2]
    )


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_task_stays_bit_for_bit_the_same_as_the_bank_grows(spec):
    bank, weights, coefficients = bank_of(6), frozen(), draw(6, spec)
    before = {
        name: mixed.clone() for name, mixed in mixed_weights(bank, weights, coefficients).items()
    }
    for count in (1, 5, 40):
        add_random_masks(bank, count, sparsity=0.6)
        assert_equal(mixed_weights(bank, weights, coefficients), before)


def test_weights_are_not_changed():
    bank, weights = bank_of(3), frozen()
    mixed_weights(bank, weights, draw(3, SPECS[-1]))
    assert_equal(weights, frozen())


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_one_mask_alone_is_the_one_hot_mixture_bit_for_bit(dtype):
    bank, weights = bank_of(9), frozen(1, dtype)
    for position in (0, 4, 8):
        alone = masked_weights(bank, weights, bank.names[position])
        mixed = mixed_weights(bank, weights, one_hot_coefficients(LAYERS, position, 9))
        for layer in LAYERS:
            assert alone[layer.name].dtype == dtype
            assert torch.equal(alone[layer.name], mixed[layer.name])
