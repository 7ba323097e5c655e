"""The kernels against the reference. All fresh memory is filled with NaN.

These are the CPU's kernels, or with TRITON_INTERPRET=1 in the environment Triton's in its
interpreter (`test_triton_kernels` starts such a process).
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from impresslearn.kernels import functions, implementation, mix, pack, reference, unpack
from impresslearn.kernels.compiling import usable
from toys import threads, torch_default

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
PER_UNIT = pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
each_view = pytest.mark.parametrize(
    "view",
    [
        lambda bits: bits[::3],
        lambda bits: bits[:1].expand(4, -1, -1),
        lambda bits: bits.transpose(0, 1).contiguous().transpose(0, 1),
        lambda bits: torch.cat([bits, bits], dim=2)[:, :, : bits.shape[2]],
        lambda bits: odd_bytes(bits, 1, 0),
        lambda bits: odd_bytes(bits, 0, 3),
    ],
    ids=["every-third", "repeated", "units-first", "wide-rows", "odd-offset", "odd-stride"],
)


def odd_bytes(bits, offset, gap):
    """The same bits, `offset` bytes into their memory and with `gap` bytes between masks."""
    step = bits[0].numel() + gap
    room = torch.full((offset + len(bits) * step,), 255, dtype=torch.uint8, device=bits.device)
    view = room.as_strided(bits.shape, (step, bits.shape[2], 1), offset)
    return view.copy_(bits)


def draw(count, units, fan_in, per_unit=False, seed=0, dtype=torch.float32, density=0.4):
    """Packed masks, coefficients and two tensors of the weight's shape."""
    generator = torch.Generator().manual_seed(seed)
    bits = pack(torch.rand((count, units, fan_in), generator=generator) < density)
    alpha = torch.randn((count, units) if per_unit else (count,), generator=generator)
    left, right = torch.randn((2, units, fan_in), generator=generator).to(dtype)
    return bits, alpha, left, right


def mask_sums(bits, left, right, per_unit=False):
    return implementation(left.device).mask_sums(bits, left, right, per_unit)


def check_sums(sums, bits, left, right, per_unit):
    """Within float32's rounding of the sum in float64."""
    product = left.double() * right.double()
    product = product.reshape(len(product), left.shape[1:].numel())
    terms, dims = unpack(bits, product.shape[1]) * product, 2 if per_unit else (1, 2)
    assert (sums.dtype, sums.shape) == (torch.float32, terms.sum(dims).shape)
    error = (sums.double() - terms.sum(dims)).abs()
    assert (error <= 1e-6 * terms.abs().sum(dims) + 1e-30).all()


def gradients(bits, alpha, left, right):
    """Mixed weights and sums, and the gradients of mixing in alpha and weight."""
    sums = mask_sums(bits, left, right, alpha.dim() == 2)
    alpha, left = (tensor.clone().requires_grad_() for tensor in (alpha, left))
    mixed = mix(bits, alpha, left)
    return [mixed.detach(), sums, *torch.autograd.grad((mixed * right).sum(), (alpha, left))]


@pytest.fixture(params=["triton"] if INTERPRETED else ["tiles", "lookup"])
def loops(request):
    """The name of the loops of `kernels`."""
    if request.param == "lookup" and not (usable("cpu") and usable("cpu")._lookup()):
        pytest.skip("the processor lacks the instructions of lookup")
    return request.param


@pytest.fixture
def kernels(loops, monkeypatch):
    """The module whose `mix` and `mask_sums` are called, with one kind of loops."""
    module = usable("cuda" if INTERPRETED else "cpu") or pytest.skip("the kernels cannot be used")
    if loops == "tiles":
        monkeypatch.setattr(module, "_lookup", lambda: None)
    elif loops == "lookup":
        monkeypatch.setattr(module, "LOOKUP_MASKS", 0)
    return module


@pytest.fixture
def check(kernels, loops):
    """Compares mixing, and sums by layer and by unit, with the reference."""

    def compare(bits, alpha, left, right):
        inputs = bits, alpha, left, right
        copies = [tensor.clone() for tensor in inputs]
        mixed, expected = kernels.mix(bits, alpha, left), reference.mix(bits, alpha, left)
        assert (mixed.dtype, mixed.shape) == (left.dtype, left.shape)
        if INTERPRETED and left.dtype == torch.bfloat16:
            # Triton's interpreter cuts bfloat16 off where a GPU rounds.
            torch.testing.assert_close(mixed, expected, rtol=2**-7, atol=0)
        elif loops == "lookup":  # adds four masks at a time
            bound = reference.mix(bits, alpha.double().abs(), left.double().abs())
            rounding = torch.finfo(left.dtype).eps if left.dtype != torch.float32 else 1e-6
            assert ((mixed.double() - expected.double()).abs() <= rounding * bound + 1e-30).all()
        else:  # both add in the masks' order, then multiply once
            assert torch.equal(mixed, expected)
        for per_unit in (False, True):
            sums = kernels.mask_sums(bits, left, right, per_unit)
            check_sums(sums, bits, left, right, per_unit)
        assert all(map(torch.equal, inputs, copies))

    return compare


@pytest.fixture(autouse=True)
def _poisoned_memory():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # torch.empty then hands out NaN
    assert torch.empty(1000).isnan().all()
    yield
    torch.use_deterministic_algorithms(before)


LARGE = [(1, 300, 784), (1000, 1, 1), (1000, 17, 300), (100, 300, 784), (3, 1000, 17)]


@PER_UNIT
@pytest.mark.parametrize(
    ("count", "units", "fan_in"),
    [
        *((7, 3, fan_in) for fan_in in (1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 128, 255, 257)),
        *((5, 7, fan_in) for fan_in in (511, 512, 513, 784)),
        *([(1, 37, 784), (100, 10, 100)] if INTERPRETED else LARGE),
        *((0, 4, 20), (3, 0, 20), (3, 4, 0), (0, 0, 0)),
    ],
)
def test_sizes(check, count, units, fan_in, per_unit):
    check(*draw(count, units, fan_in, per_unit))


@given(
    count=st.integers(0, 40),
    units=st.integers(1, 20),
    fan_in=st.integers(1, 330),
    per_unit=st.booleans(),
    density=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
)
@settings(
    max_examples=10 if INTERPRETED else 80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_random_shapes(check, count, units, fan_in, per_unit, density, dtype, seed):
    bits, alpha, left, right = draw(count, units, fan_in, per_unit, seed, dtype, density)
    check(bits, alpha, left, right)
    check(bits, alpha.to(dtype), left, right)  # mixed in float32 and rounded once


@each_view
def test_views_of_a_bank(check, view):
    bits, alpha, left, right = draw(10, 6, 37, per_unit=True)
    bits = view(bits)
    check(bits, alpha[: len(bits)], left, right)
    check(bits, alpha[: len(bits), 0], left, right)  # a strided vector of coefficients


def test_weights_and_gradients_in_any_layout(check):
    bits, alpha, left, right = draw(10, 8, 45, per_unit=True)
    image = right.reshape(8, 5, 3, 3).to(memory_format=torch.channels_last)
    assert not image.is_contiguous()
    check(bits, alpha.T.contiguous().T, left.T.contiguous().T, right)
    check(bits, alpha, image, left.reshape(8, 5, 3, 3))
    check(bits, alpha, left, torch.ones(()).expand(8, 45))


@PER_UNIT
@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_default_dtype_changes_no_result(kernels, per_unit, dtype, monkeypatch):
    """The compiled loops write float32 through addresses, whatever torch allocates by default."""
    monkeypatch.setattr(functions, "implementation", lambda _: kernels)
    drawn = draw(40, 8, 300, per_unit)  # enough work for several partial sums
    expected = gradients(*drawn)
    with torch_default(dtype):
        results = gradients(*drawn)
    assert [result.dtype for result in results] == [torch.float32] * len(results)
    assert all(map(torch.equal, results, expected))


@pytest.mark.skipif(INTERPRETED, reason="of the CPU")
class TestThreads:
    @PER_UNIT
    @pytest.mark.parametrize("units", [5, 100, 101])
    def test_results_do_not_depend_on_their_number(self, check, kernels, units, per_unit):
        bits, alpha, left, right = draw(150, units, 784, per_unit)
        results = []
        for number in (1, 2, 3):
            with threads(number):
                mixed = kernels.mix(bits, alpha, left)
                results.append((mixed, kernels.mask_sums(bits, left, right, per_unit)))
        names = {thread.name for thread in threading.enumerate()}
        if units > 5:  # all in one block
            assert any(name.startswith("impresslearn-mix") for name in names), "no thread took part"
        assert all(all(map(torch.equal, each, results[0])) for each in results)
        check(bits, alpha, left, right)

    def test_calls_from_several_at_once(self, kernels):
        cases = [draw(40, 16, 784, seed % 2 == 0, seed) for seed in range(12)]

        def both(case):
            bits, alpha, *factors = case
            sums = kernels.mask_sums(bits, *factors, alpha.dim() == 2)
            return kernels.mix(bits, alpha, factors[0]), sums

        with threads(2), ThreadPoolExecutor(4) as pool:
            alone = [both(case) for case in cases]
            at_once = list(pool.map(both, cases * 5, timeout=60))
        for number, results in enumerate(at_once):
            assert all(map(torch.equal, results, alone[number % 12]))


@PER_UNIT
@pytest.mark.parametrize("count", [1, 16, 37, 130])
@pytest.mark.parametrize("fan_in", [1, 15, 100, 257])
def test_nothing_outside_the_rows_is_written(loops, count, fan_in, per_unit):
    """Rows 1 and 2 of 4; the rows around them and the room behind stay."""
    module = usable(loops) or pytest.skip("the compiled loops cannot be used here")
    if loops == "lookup" and fan_in < 49:
        pytest.skip("such rows are left to tiles")
    bits, alpha, left, right = draw(count, 4, fan_in, per_unit)
    whole = count + -count % 16
    out, sums = torch.full((4, fan_in), 7.0), torch.full((4, whole), 7.0)
    sums[1:3] = 0
    size = 16 * whole
    room = torch.zeros(size + 80)  # zeros on a line of the cache, and then 7s
    first = -room.data_ptr() % 64 // 4
    room[first + size :] = 7.0
    scratch = room.data_ptr() + 4 * first
    head = (bits.data_ptr(), bits.stride(0), bits.shape[2], count)
    strides = (16, 4) if per_unit else (4, 0)
    ends = (left.data_ptr(), out.data_ptr(), fan_in, scratch, 1, 3)
    values = (left.data_ptr(), right.data_ptr(), scratch, sums.data_ptr())
    module.sum_rows(*head, *values, 4 * whole, 1, fan_in, 1, 3)
    module.mix_rows(*head, alpha.data_ptr(), *strides, *ends)
    expected = reference.mix(bits, alpha, left)[1:3]
    torch.testing.assert_close(out[1:3], expected, rtol=1e-4, atol=1e-5)
    expected = reference.mask_sums(bits, left, right, True)[:, 1:3]
    torch.testing.assert_close(sums[1:3, :count].T, expected, rtol=1e-4, atol=1e-4)
    for kept in (out[[0, 3]], sums[[0, 3]], room[first + size :]):
        assert (kept == 7).all()
