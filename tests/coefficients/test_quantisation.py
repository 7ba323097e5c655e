import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.coefficients import quantisation
from impresslearn.coefficients.mixing import Coefficients, CoefficientSpec, uniform_coefficients
from impresslearn.coefficients.quantisation import PRECISIONS, store_coefficients
from impresslearn.errors import InputError
from impresslearn.networks.layers import MaskableLayer

LAYERS = (MaskableLayer("conv.weight", (4, 2, 3, 3)), MaskableLayer("head.weight", (3, 20)))
BITS = {"int8": 8, "int5": 5, "int4": 4}


def draw(count, spec, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    start = uniform_coefficients(LAYERS, count, spec)

    def near_one(tensors):
        if tensors is None:
            return None
        return tuple(1 + 0.2 * torch.randn(t.shape, generator=generator) for t in tensors)

    alpha = tuple(scale * torch.randn(a.shape, generator=generator) for a in start.alpha)
    return Coefficients(alpha, near_one(start.output_scale), near_one(start.input_scale))


def alone(values):
    return Coefficients((torch.as_tensor(values, dtype=torch.float32),))


def rounded(values, precision):
    return store_coefficients(alone(values), precision).restore().alpha[0]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("scales", [False, True])
@pytest.mark.parametrize("granularity", ["layer", "unit"])
def test_shapes_and_kinds_survive_and_the_bytes_counted_are_those_kept(
    granularity, scales, precision
):
    coefficients = draw(5, CoefficientSpec(granularity, scales, scales))
    for tensor in coefficients.tensors():
        tensor.requires_grad_()
    stored = store_coefficients(coefficients, precision)
    restored = stored.restore()
    assert stored.precision == precision
    assert (restored.granularity, restored.num_masks) == (granularity, 5)
    for ours, theirs in zip(restored.tensors(), coefficients.tensors(), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, torch.float32)
        assert ours.isfinite().all()
        assert not ours.requires_grad
    assert (restored.output_scale is None) == (restored.input_scale is None) == (not scales)
    kept = sum(len(p.payload) + len(p.steps) + len(p.offset) for p in stored.parts)
    assert stored.nbytes == kept + len(stored.levels)
    assert (stored.levels == b"") == (precision != "coded")


def test_bytes_are_exact():
    def cost(granularity, scales, precision):
        spec = CoefficientSpec(granularity, scales, scales)
        return store_coefficients(draw(5, spec), precision).nbytes

    # Alphas 5 x 2; scales 4 + 3 and 2 + 20; one step of 2 bytes a layer, scales 2 more of offset.
    assert cost("layer", False, "float32") == 40
    assert cost("layer", False, "float16") == 20
    assert cost("layer", False, "int8") == 10 + 4
    assert cost("layer", False, "int5") == 2 * 4 + 4  # 25 bits
    assert cost("layer", False, "int4") == 2 * 3 + 4  # 20 bits
    assert cost("layer", True, "float32") == 40 + 4 * 29
    assert cost("layer", True, "int4") == 10 + (2 + 2 + 1 + 10) + 4 * 4
    # Alphas 5 x 7 with a step a unit.
    assert cost("unit", False, "float32") == 140
    assert cost("unit", False, "int8") == 35 + 14
    assert cost("unit", False, "int4") == 10 + 8 + 14


def test_float32_is_exact_and_float16_rounds_once():
    coefficients = draw(9, CoefficientSpec("unit", True, True))
    exact = store_coefficients(coefficients).restore()
    half = store_coefficients(coefficients, "float16").restore()
    for original, same, near in zip(
        coefficients.tensors(), exact.tensors(), half.tensors(), strict=True
    ):
        assert torch.equal(same, original)
        assert torch.equal(near, original.half().float())


@given(
    count=st.integers(1, 30),
    units=st.integers(1, 6),
    exponent=st.floats(-4, 4),
    seed=st.integers(0, 99),
    precision=st.sampled_from(list(BITS)),
)
@settings(max_examples=150, deadline=None)
def test_error_is_that_of_the_widest_step_or_less(count, units, exponent, seed, precision):
    """Against rounding with the float16 step that clips nothing, column by column."""
    generator = torch.Generator().manual_seed(seed)
    values = 10**exponent * torch.randn((count, units), generator=generator)
    top = 2 ** (BITS[precision] - 1) - 1
    widest = values.abs().amax(dim=0) / top
    step = widest.half().float().clamp_min(2**-24)  # the least that float16 knows
    reachable = (values / step).round().clamp(-top, top) * step
    for wanted, column, plain in zip(
        values.T, rounded(values, precision).T, reachable.T, strict=True
    ):
        assert (column - wanted).norm() <= (plain - wanted).norm() * (1 + 1e-5) + 1e-9


@pytest.mark.parametrize(("precision", "error"), [("int8", 0.004), ("int5", 0.04), ("int4", 0.09)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_relative_error_at_any_scale(precision, error, scale):
    values = scale * (2 * torch.rand(2000, generator=torch.Generator().manual_seed(0)) - 1)
    difference = (rounded(values, precision) - values).norm() / values.norm()
    assert error / 3 < difference < error


def test_the_step_of_least_squares_beats_the_widest():
    # One outlier: clipping it costs less than a step that reaches it.
    values = torch.cat([torch.linspace(-1, 1, 999), torch.tensor([1.9])])
    widest = np.float32(np.float16(1.9 / 7))
    plain = torch.from_numpy(np.rint(values.numpy() / widest) * widest)
    assert (rounded(values, "int4") - values).norm() < 0.95 * (plain - values).norm()


@pytest.mark.parametrize("precision", BITS)
def test_zeros_stay_zero(precision):
    values = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    values[:, 1] = 0
    values[2, 0] = 0
    restored = rounded(values, precision)
    assert (restored[:, 1] == 0).all()
    assert restored[2, 0] == 0
    assert restored.isfinite().all()
    assert (rounded(torch.zeros(4), precision) == 0).all()


@pytest.mark.parametrize(("precision", "share"), [("int8", 0.006), ("int5", 0.05), ("int4", 0.1)])
def test_scales_are_rounded_around_their_middle(precision, share):
    scales, equal = torch.linspace(0.9, 1.1, 101), torch.full((5,), 1.2)
    coefficients = Coefficients((torch.ones(2),), (scales,), (equal,))
    restored = store_coefficients(coefficients, precision).restore()
    assert restored.input_scale[0].tolist() == pytest.approx([1.2] * 5, rel=2**-11)
    assert (restored.output_scale[0] - scales).abs().max() < share * 0.1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_refused(value, precision):
    for coefficients in (
        alone([1.0, value]),
        Coefficients((torch.ones(2),), (torch.tensor([1.0, value]),)),
        Coefficients((torch.ones(2),), None, (torch.tensor([value, 1.0]),)),
    ):
        with pytest.raises(InputError, match="NaN or infinite"):
            store_coefficients(coefficients, precision)


@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_values_too_large_for_float16_are_refused_not_lost(precision):
    for coefficients in (
        alone([1.0, -1e30]),
        Coefficients((torch.ones(2),), (torch.tensor([1e30, 1.0]),)),
    ):
        with pytest.raises(InputError, match="too large for float16"):
            store_coefficients(coefficients, precision)
    assert rounded([1.0, -1e30], "float32").tolist() == [1.0, np.float32(-1e30)]


@pytest.mark.parametrize("precision", ["int3", "bfloat16", "", None, "INT8"])
def test_other_precisions_are_refused(precision):
    with pytest.raises(InputError, match="one of float32, float16, int8, int5, int4, coded, got"):
        store_coefficients(alone([1.0]), precision)


@given(bits=st.sampled_from([4, 5, 8]), data=st.data())
@settings(max_examples=100, deadline=None)
def test_packed_integers_come_back(bits, data):
    levels = np.array(data.draw(st.lists(st.integers(0, 2**bits - 1), min_size=1, max_size=50)))
    packed = quantisation._pack(levels, bits)
    assert len(packed) == -(-bits * len(levels) // 8)
    assert quantisation._unpack(packed, bits, len(levels)).tolist() == levels.tolist()


def test_packing_puts_the_first_number_first():
    assert quantisation._pack(np.array([0xA, 0x3, 0xF]), 4) == bytes([0xA3, 0xF0])
    assert quantisation._pack(np.array([0b10000, 0b00001]), 5) == bytes([0b10000000, 0b01000000])
    assert quantisation._pack(np.array([254, 1]), 8) == bytes([254, 1])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rounding_again_changes_little_and_storing_is_repeatable(precision):
    coefficients = draw(12, CoefficientSpec("unit", True))
    stored = store_coefficients(coefficients, precision)
    assert store_coefficients(coefficients, precision) == stored
    again = store_coefficients(stored.restore(), precision).restore()
    for first, second in zip(stored.restore().tensors(), again.tensors(), strict=True):
        torch.testing.assert_close(first, second, rtol=0.02, atol=2e-2)
