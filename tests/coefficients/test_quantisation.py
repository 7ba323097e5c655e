import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.coefficients.mixing import Coefficients, CoefficientSpec, uniform_coefficients
from impresslearn.coefficients.quantisation import (
    PRECISIONS,
    store_coefficients,
)
from impresslearn.errors import InputError
from toys import LAYERS

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
        if precision.startswith("float"):  # exact, or rounded once
            assert torch.equal(ours, theirs.to(getattr(torch, precision)).float())
    assert (restored.output_scale is None) == (restored.input_scale is None) == (not scales)
    kept = sum(len(p.payload) + len(p.steps) + len(p.offset) for p in stored.parts)
    assert stored.nbytes == kept + len(stored.levels)
    assert (stored.levels == b"") == (precision != "coded")
    assert store_coefficients(coefficients, precision) == stored


@given(
    count=st.integers(1, 30),
    units=st.integers(1, 6),
    exponent=st.floats(-4, 4),
    seed=st.integers(0, 99),
    precision=st.sampled_from(list(BITS)),
)
@settings(max_examples=60, deadline=None)
def test_error_is_that_of_the_widest_step_or_less(count, units, exponent, seed, precision):
    """Against rounding with the float16 step that clips nothing, column by column."""
    generator = torch.Generator().manual_seed(seed)
    values = 10**exponent * torch.randn((count, units), generator=generator)
    values[:, 1:2] = 0  # zeros stay zero
    top = 2 ** (BITS[precision] - 1) - 1
    widest = values.abs().amax(dim=0) / top
    step = widest.half().float().clamp_min(2**-24)  # the least that float16 knows
    reachable = (values / step).round().clamp(-top, top) * step
    for wanted, column, plain in zip(
        values.T, rounded(values, precision).T, reachable.T, strict=True
    ):
        assert (column - wanted).norm() <= (plain - wanted).norm() * (1 + 1e-5) + 1e-9


def test_the_step_of_least_squares_beats_the_widest():
    # One outlier: clipping it costs less than a step that reaches it.
    values = torch.cat([torch.linspace(-1, 1, 999), torch.tensor([1.9])])
    widest = np.float32(np.float16(1.9 / 7))
    plain = torch.from_numpy(np.rint(values.numpy() / widest) * widest)
    assert (rounded(values, "int4") - values).norm() < 0.95 * (plain - values).norm()


@pytest.mark.parametrize(("precision", "share"), [("int8", 0.006), ("int5", 0.05), ("int4", 0.1)])
def test_scales_are_rounded_around_their_middle(precision, share):
    scales, equal = torch.linspace(0.9, 1.1, 101), torch.full((5,), 1.2)
    coefficients = Coefficients((torch.ones(2),), (scales,), (equal,))
    restored = store_coefficients(coefficients, precision).restore()
    assert restored.input_scale[0].tolist() == pytest.approx([1.2] * 5, rel=2**-11)
    assert (restored.output_scale[0] - scales).abs().max() < share * 0.1


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_values_that_cannot_be_kept_are_refused_not_lost(value, precision):
    if value == 1e30 and precision == "float32":
        assert rounded([1.0, value], precision)[1] == np.float32(value)
        return
    for coefficients in (
        alone([1.0, -value]),
        Coefficients((torch.ones(2),), (torch.tensor([1.0, value]),)),
        Coefficients((torch.ones(2),), None, (torch.tensor([value, 1.0]),)),
    ):
        with pytest.raises(InputError, match="NaN or infinite|too large for float16"):
            store_coefficients(coefficients, precision)


@pytest.mark.parametrize(
    ("precision", "numbers", "payload"),
    [("int4", [7, -7, 1], "e080"), ("int5", [15, -15, 1], "f020"), ("int8", [127, -127], "fe00")],
)
def test_whole_numbers_are_packed_the_first_one_first(precision, numbers, payload):
    """Golden bytes: files hold them."""
    (stored,) = store_coefficients(alone(numbers), precision).alpha
    assert (stored.payload.hex(), np.frombuffer(stored.steps, np.float16).tolist()) == (
        payload,
        [1],
    )
