"""The compiled loops against the reference, with all fresh memory filled with NaN."""

import multiprocessing
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from impresslearn.kernels import pack, reference, unpack

pytest.importorskip("numba", reason="the compiled kernels need Numba")
from impresslearn.kernels import cpu, tiles

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
    """The same bits as the reference: both add in the masks' order, then multiply once."""
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


def test_fresh_memory_is_poisoned():
    assert torch.empty(1000).isnan().all()
    assert torch.empty_like(torch.zeros(1000)).isnan().all()


@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
@pytest.mark.parametrize("fan_in", FAN_INS)
def test_every_tile_length(fan_in, per_unit):
    bits, alpha, left, right = draw(7, 3, fan_in, per_unit)
    check_mix(bits, alpha, left)
    check_sums(bits, left, right)


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
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_shapes(count, units, fan_in, per_unit, density, dtype, seed):
    bits, alpha, left, right = draw(count, units, fan_in, per_unit, seed, dtype, density)
    check_mix(bits, alpha, left)
    check_sums(bits, left, right)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
def test_half_precision_weights_are_mixed_in_float32_and_rounded_once(dtype, per_unit):
    bits, alpha, left, right = draw(50, 20, 300, per_unit, dtype=dtype)
    check_mix(bits, alpha, left)
    check_sums(bits, left, right)
    check_mix(bits, alpha.to(dtype), left)


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


def test_inputs_stay_as_they_are():
    inputs = draw(10, 6, 37)
    copies = [tensor.clone() for tensor in inputs]
    bits, alpha, left, right = inputs
    cpu.mix(bits, alpha, left)
    cpu.mask_sums(bits, left, right, True)
    assert all(torch.equal(now, then) for now, then in zip(inputs, copies, strict=True))


def test_what_a_mask_leaves_out_does_not_reach_its_sum():
    bits = pack(torch.tensor([[[True, False]], [[False, True]]]))
    left = torch.tensor([[2.0, float("nan")]])
    sums = cpu.mask_sums(bits, left, torch.ones(1, 2), False)
    assert sums[0] == 2
    assert sums[1].isnan()


@pytest.mark.parametrize("fan_in", [1, 15, 17, 100, 257])
def test_nothing_outside_the_rows_is_written(fan_in):
    """Rows 1 and 2 of 4; the rows around them and the masks' neighbours keep their values."""
    bits, alpha, left, right = draw(5, 4, fan_in)
    out = torch.full((4, fan_in), 7.0)
    head = (bits.data_ptr(), bits.stride(0), bits.shape[2], 5)
    span = (1 << 32) + 3
    tiles.mix_rows(
        *head, alpha.data_ptr(), 4, 0, left.data_ptr(), out.data_ptr(), fan_in, span
    )  # fmt: skip
    assert torch.equal(out[1:3], reference.mix(bits, alpha, left)[1:3])
    assert (out[[0, 3]] == 7).all()

    scratch, sums = cpu._scratch(1, 6)[: 6 * 16], torch.full((6, 4), 7.0)
    scratch[-16:] = 7.0
    tiles.sum_rows(
        *head, left.data_ptr(), right.data_ptr(), scratch.data_ptr(), sums.data_ptr(), 16, 4,
        1, fan_in, span,
    )  # fmt: skip
    expected = reference.mask_sums(bits, left, right, True)
    torch.testing.assert_close(sums[:5, 1:3], expected[:, 1:3])
    assert (sums[:, [0, 3]] == 7).all()
    assert (sums[5] == 7).all()
    assert (scratch[-16:] == 7).all()


PAGE_END = """
import ctypes, mmap
import torch
from impresslearn.kernels import pack, reference, tiles
libc = ctypes.CDLL(None, use_errno=True)

def at_page_end(values):
    # Values that end where readable memory ends: one element too far is a crash.
    size = values.numel() * values.element_size()
    pages = -(-size // mmap.PAGESIZE)
    area = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    wall = start + pages * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(wall), mmap.PAGESIZE, 0) == 0
    ctypes.memmove(wall - size, values.data_ptr(), size)
    keep.append(area)
    return wall - size

for fan_in in (1, 15, 16, 17, 100, 257, 300):
    keep = []
    bits = pack(torch.rand(3, 2, fan_in) < 0.5)
    alpha, weight, sums = torch.randn(3), torch.randn(2, fan_in), torch.zeros(3)
    scratch, out = torch.zeros(64 * 4), at_page_end(torch.zeros(2, fan_in))
    shift = scratch.data_ptr() + -scratch.data_ptr() % 64
    masks, values = at_page_end(bits), at_page_end(weight)
    head = (masks, bits.stride(0), bits.shape[2], 3)
    tiles.mix_rows(*head, at_page_end(alpha), 4, 0, values, out, fan_in, 2)
    got = torch.frombuffer((ctypes.c_float * (2 * fan_in)).from_address(out), dtype=torch.float32)
    assert torch.equal(got, reference.mix(bits, alpha, weight).flatten())
    tiles.sum_rows(*head, values, values, shift, sums.data_ptr(), 4, 0, 2, fan_in, 2)
    expected = reference.mask_sums(bits, weight, weight, False)
    torch.testing.assert_close(sums, expected, rtol=1e-4, atol=1e-4)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="guards memory with Linux's mprotect")
def test_nothing_past_the_end_is_touched():
    done = subprocess.run([sys.executable, "-c", PAGE_END], capture_output=True, text=True)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"


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
    assert any(name.startswith("impresslearn-mix") for name in names), "no thread took part"
    for mixed, sums in results[1:]:
        assert torch.equal(mixed, results[0][0])
        assert torch.equal(sums, results[0][1])
    check_mix(bits, alpha, left)
    check_sums(bits, left, right)


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
