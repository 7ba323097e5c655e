"""The compiled loops against the reference. All fresh memory is filled with NaN.

`test_tables` runs the same tests for the loops over tables.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from impresslearn.kernels import pack, reference, unpack

cpu = pytest.importorskip("impresslearn.kernels.cpu", exc_type=ImportError)
tiles = pytest.importorskip("impresslearn.kernels.tiles", exc_type=ImportError)

PER_UNIT = pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])


@pytest.fixture(autouse=True)
def loops(monkeypatch):
    """The module whose loops run, at any number of masks."""
    monkeypatch.setattr(cpu, "MANY_MASKS", 10**9)
    return tiles


@pytest.fixture(autouse=True)
def _poisoned_memory():
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # torch.empty then hands out NaN
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def draw(count, units, fan_in, per_unit=False, seed=0, dtype=torch.float32, density=0.4):
    """Packed masks, coefficients and two tensors of the weight's shape."""
    generator = torch.Generator().manual_seed(seed)
    bits = pack(torch.rand((count, units, fan_in), generator=generator) < density)
    alpha = torch.randn((count, units) if per_unit else (count,), generator=generator)
    left, right = torch.randn((2, units, fan_in), generator=generator).to(dtype)
    return bits, alpha, left, right


def check(bits, alpha, left, right):
    """Mixing, and sums by layer and by unit."""
    inputs = bits, alpha, left, right
    copies = [tensor.clone() for tensor in inputs]
    mixed, expected = cpu.mix(bits, alpha, left), reference.mix(bits, alpha, left)
    assert (mixed.dtype, mixed.shape) == (left.dtype, left.shape)
    if len(bits) < cpu.MANY_MASKS:  # both add in the masks' order, then multiply once
        assert torch.equal(mixed, expected)
    else:  # tables add four coefficients first
        size = reference.mix(bits, alpha.float().abs(), left.float().abs()).double()
        rounding = 0 if left.dtype == torch.float32 else torch.finfo(left.dtype).eps
        error = (mixed.double() - expected.double()).abs()
        assert (error <= (2e-6 + rounding) * size + 1e-30 + rounding * 1e-3).all()
    product = left.double() * right.double()
    terms = unpack(bits, product[0].numel()) * product.reshape(len(product), -1)
    for per_unit, dims in ((False, (1, 2)), (True, 2)):
        sums = cpu.mask_sums(bits, left, right, per_unit)
        assert (sums.dtype, sums.shape) == (torch.float32, terms.sum(dims).shape)
        error = (sums.double() - terms.sum(dims)).abs()
        assert (error <= 1e-6 * terms.abs().sum(dims) + 1e-30).all()
    assert all(map(torch.equal, inputs, copies))


@PER_UNIT
@pytest.mark.parametrize(
    ("count", "units", "fan_in"),
    [
        *((7, 3, fan_in) for fan_in in (1, 2, 15, 16, 17, 31, 63, 64, 65, 127, 128, 255, 257)),
        (1, 300, 784),
        (1000, 1, 1),
        (1000, 17, 300),
        (100, 300, 784),
        (3, 1000, 17),
        (0, 4, 20),
        (3, 4, 0),
    ],
)
def test_sizes(count, units, fan_in, per_unit):
    check(*draw(count, units, fan_in, per_unit))


def test_no_units():
    bits, _, left, right = draw(3, 0, 20)
    assert cpu.mix(bits, torch.ones(3), left).shape == (0, 20)
    assert cpu.mask_sums(bits, left, right, False).tolist() == [0.0] * 3
    assert cpu.mask_sums(bits, left, right, True).shape == (3, 0)


@given(
    count=st.integers(0, 40),
    units=st.integers(1, 20),
    fan_in=st.integers(1, 330),
    per_unit=st.booleans(),
    density=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    seed=st.integers(0, 99),
)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_shapes(count, units, fan_in, per_unit, density, dtype, seed):
    bits, alpha, left, right = draw(count, units, fan_in, per_unit, seed, dtype, density)
    check(bits, alpha, left, right)
    check(bits, alpha.to(dtype), left, right)  # mixed in float32 and rounded once


@pytest.mark.parametrize(
    "view",
    [
        lambda bits: bits[3:],
        lambda bits: bits[::3],
        lambda bits: bits[:1].expand(4, -1, -1),
        lambda bits: bits.transpose(0, 1).contiguous().transpose(0, 1),
        lambda bits: torch.cat([bits, bits], dim=2)[:, :, : bits.shape[2]],
    ],
    ids=["last", "every-third", "repeated", "units-first", "wide-rows"],
)
def test_views_of_a_bank(view):
    bits, alpha, left, right = draw(10, 6, 37, per_unit=True)
    bits = view(bits)
    check(bits, alpha[: len(bits)], left, right)
    check(bits, alpha[: len(bits), 0], left, right)  # a strided vector of coefficients


def test_weights_and_gradients_in_any_layout():
    bits, alpha, left, right = draw(10, 8, 45, per_unit=True)
    image = right.reshape(8, 5, 3, 3).to(memory_format=torch.channels_last)
    assert not image.is_contiguous()
    check(bits, alpha.T.contiguous().T, left.T.contiguous().T, right)
    check(bits, alpha, image, left.reshape(8, 5, 3, 3))
    check(bits, alpha, left, torch.ones(()).expand(8, 45))


def test_what_a_mask_leaves_out_does_not_reach_its_sum():
    bits = pack(torch.tensor([[[True, False]], [[False, True]]]))
    left = torch.tensor([[2.0, float("nan")]])
    sums = cpu.mask_sums(bits, left, torch.ones(1, 2), False)
    assert sums[0] == 2
    assert sums[1].isnan()


@PER_UNIT
@pytest.mark.parametrize("units", [5, 100, 101])
def test_results_do_not_depend_on_the_number_of_threads(threads, units, per_unit):
    bits, alpha, left, right = draw(150, units, 784, per_unit)
    results = []
    for number in (1, 2, 3):
        threads(number)
        mixed = cpu.mix(bits, alpha, left)
        results.append((mixed, cpu.mask_sums(bits, left, right, per_unit)))
    names = {thread.name for thread in threading.enumerate()}
    if units > 5:  # all in one block
        assert any(name.startswith("impresslearn-mix") for name in names), "no thread took part"
    assert all(all(map(torch.equal, each, results[0])) for each in results)
    check(bits, alpha, left, right)


def test_every_thread_has_scratch_of_its_own(threads, loops, monkeypatch):
    threads(3)
    bits, alpha, left, right = draw(150, 100, 784)
    given = {"mix_rows": [], "sum_rows": []}
    for name, place in (("mix_rows", -2), ("sum_rows", 6)):
        found = given[name]
        monkeypatch.setattr(loops, name, lambda *a, f=found, p=place: f.append(a[p]))
    cpu.mix(bits, alpha, left)
    cpu.mask_sums(bits, left, right, False)
    for found in given.values():
        first, second, third = sorted(found)
        assert min(second - first, third - second) >= loops.scratch_bytes(150)
        assert first % 64 == second % 64 == 0


def test_calls_from_several_threads_at_once(threads):
    threads(2)
    cases = [draw(40, 16, 784, seed % 2 == 0, seed) for seed in range(12)]

    def both(case):
        bits, alpha, left, right = case
        return cpu.mix(bits, alpha, left), cpu.mask_sums(bits, left, right, alpha.dim() == 2)

    alone = [both(case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        at_once = list(pool.map(both, cases * 5, timeout=60))
    for number, results in enumerate(at_once):
        assert all(map(torch.equal, results, alone[number % 12]))
