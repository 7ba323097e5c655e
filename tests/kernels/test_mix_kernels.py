"""The compiled loops against the reference. All fresh memory is filled with NaN."""

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from impresslearn.kernels import pack, reference, unpack

cpu = pytest.importorskip("impresslearn.kernels.cpu", exc_type=ImportError)
tiles = pytest.importorskip("impresslearn.kernels.tiles", exc_type=ImportError)

FAN_INS = (1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 128, 129, 255, 256, 257, 300, 784)


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


def check_mix(bits, alpha, weight):
    """The same bits: both add in the masks' order, then multiply once."""
    mixed = cpu.mix(bits, alpha, weight)
    assert mixed.dtype == weight.dtype
    assert mixed.shape == weight.shape
    assert torch.equal(mixed, reference.mix(bits, alpha, weight))


def check_sums(bits, left, right):
    """Both granularities within float32's rounding of the sum in float64."""
    product = left.double() * right.double()
    fan_in = product[0].numel()
    masks = unpack(bits, fan_in).double()
    exact = masks * product.reshape(len(product), fan_in)
    for per_unit in (False, True):
        dims = 2 if per_unit else (1, 2)
        sums = cpu.mask_sums(bits, left, right, per_unit)
        assert sums.dtype == torch.float32
        assert sums.shape == exact.sum(dims).shape
        error = (sums.double() - exact.sum(dims)).abs()
        assert (error <= 1e-6 * exact.abs().sum(dims) + 1e-30).all()
        torch.testing.assert_close(
            sums, reference.mask_sums(bits, left, right, per_unit), rtol=1e-4, atol=1e-3
        )


@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize("fan_in", FAN_INS)
def test_every_tile_length(fan_in, per_unit):
    inputs = draw(7, 3, fan_in, per_unit)
    copies = [tensor.clone() for tensor in inputs]
    bits, alpha, left, right = inputs
    check_mix(bits, alpha, left)
    check_sums(bits, left, right)
    assert all(map(torch.equal, inputs, copies))


@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize(
    ("count", "units", "fan_in"),
    [
        (1, 1, 1),
        (1, 300, 784),
        (1000, 1, 1),
        (1000, 10, 100),
        (1000, 17, 300),
        (100, 300, 784),
        (3, 1000, 17),
        (0, 4, 20),
        (0, 1, 1),
        (3, 0, 20),
        (3, 4, 0),
    ],
)
def test_sizes(count, units, fan_in, per_unit):
    bits, alpha, left, right = draw(count, units, fan_in, per_unit)
    check_mix(bits, alpha, left)
    if units:
        check_sums(bits, left, right)
    else:
        assert cpu.mask_sums(bits, left, right, False).tolist() == [0.0] * count
        assert cpu.mask_sums(bits, left, right, True).shape == (count, 0)


@given(
    count=st.integers(0, 40),
    units=st.integers(1, 20),
    fan_in=st.integers(1, 330),
    per_unit=st.booleans(),
    density=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
    seed=st.integers(0, 99),
)
@settings(max_examples=80, deadline=None)
def test_random_shapes(count, units, fan_in, per_unit, density, dtype, seed):
    bits, alpha, left, right = draw(count, units, fan_in, per_unit, seed, dtype, density)
    check_mix(bits, alpha, left)
    check_mix(bits, alpha.to(dtype), left)  # mixed in float32 and rounded once
    check_sums(bits, left, right)


@pytest.mark.parametrize(
    "view",
    [
        lambda bits: bits[:5],
        lambda bits: bits[3:],
        lambda bits: bits[::3],
        lambda bits: bits[:1].expand(4, -1, -1),
        lambda bits: bits.transpose(0, 1).contiguous().transpose(0, 1),
        lambda bits: torch.cat([bits, bits], dim=2)[:, :, : bits.shape[2]],
    ],
    ids=["first", "last", "every-third", "repeated", "units-first", "wide-rows"],
)
def test_views_of_a_bank(view):
    bits, alpha, left, right = draw(10, 6, 37, per_unit=True)
    bits = view(bits)
    alpha = alpha[: len(bits)]
    check_mix(bits, alpha, left)
    check_mix(bits, alpha[:, 0], left)  # a strided vector of coefficients
    check_sums(bits, left, right)


def test_weights_and_gradients_in_any_layout():
    bits, alpha, left, right = draw(10, 8, 45, per_unit=True)
    by_input = left.T.contiguous().T
    image = right.reshape(8, 5, 3, 3).to(memory_format=torch.channels_last)
    assert not by_input.is_contiguous()
    assert not image.is_contiguous()
    check_mix(bits, alpha, by_input)
    check_mix(bits, alpha, image)
    check_sums(bits, by_input, right)
    check_sums(bits, left.reshape(8, 5, 3, 3), image)
    check_sums(bits, torch.ones(()).expand(8, 45), right)
    coefficients = alpha.T.contiguous().T
    assert not coefficients.is_contiguous()
    check_mix(bits, coefficients, left)


def test_what_a_mask_leaves_out_does_not_reach_its_sum():
    bits = pack(torch.tensor([[[True, False]], [[False, True]]]))
    left = torch.tensor([[2.0, float("nan")]])
    sums = cpu.mask_sums(bits, left, torch.ones(1, 2), False)
    assert sums[0] == 2
    assert sums[1].isnan()


@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize("units", [5, 100, 101])
def test_results_do_not_depend_on_the_number_of_threads(threads, units, per_unit):
    bits, alpha, left, right = draw(150, units, 784, per_unit)
    assert bits.shape[0] * left.numel() > cpu.SMALL_WORK
    results = []
    for number in (1, 2, 3):
        threads(number)
        mixed = cpu.mix(bits, alpha, left)
        results.append((mixed, cpu.mask_sums(bits, left, right, per_unit)))
    names = {thread.name for thread in threading.enumerate()}
    if units > 5:  # all in one block
        assert any(name.startswith("impresslearn-mix") for name in names), "no thread took part"
    for mixed, sums in results[1:]:
        assert torch.equal(mixed, results[0][0])
        assert torch.equal(sums, results[0][1])
    check_mix(bits, alpha, left)
    check_sums(bits, left, right)


def test_every_thread_has_scratch_of_its_own(threads, monkeypatch):
    threads(3)
    bits, _, left, right = draw(150, 100, 784)
    given = []
    monkeypatch.setattr(tiles, "sum_rows", lambda *arguments: given.append(arguments[6]))
    cpu.mask_sums(bits, left, right, False)
    first, second, third = sorted(given)
    assert min(second - first, third - second) >= tiles.scratch_bytes(150)
    assert first % 64 == second % 64 == 0


def test_calls_from_several_threads_at_once(threads):
    threads(2)
    cases = [draw(40, 16, 784, seed % 2 == 0, seed) for seed in range(12)]

    def both(case):
        bits, alpha, left, right = case
        return cpu.mix(bits, alpha, left), cpu.mask_sums(bits, left, right, alpha.dim() == 2)

    alone = [both(case) for case in cases]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(both, cases * 5, timeout=60))
    for number, (mixed, sums) in enumerate(together):
        assert torch.equal(mixed, alone[number % 12][0])
        assert torch.equal(sums, alone[number % 12][1])


@pytest.mark.skipif(sys.platform != "linux", reason="forks after threads were started")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_starts_its_own_threads(threads):
    threads(2)
    # Small for torch, whose own threads do not survive a fork, and large for the kernels.
    bits, alpha, left, right = draw(64, 16, 784)
    expected = cpu.mix(bits, alpha, left), cpu.mask_sums(bits, left, right, False)

    def child():
        assert torch.equal(cpu.mix(bits, alpha, left), expected[0])
        assert torch.equal(cpu.mask_sums(bits, left, right, False), expected[1])

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(60)
    hung = process.is_alive()
    process.kill()
    assert not hung, "the kernel waits for threads that the fork left behind"
    assert process.exitcode == 0
