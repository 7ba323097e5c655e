"""The GPU kernels: in Triton's interpreter, which runs anywhere, and on a CUDA device.

The interpreter must be chosen before Triton is first imported, so the tests of `TestInterpreted`
run in a process of their own, which `test_in_the_interpreter` starts.
"""

import importlib.util
import os
import subprocess
import sys

import pytest
import torch

from impresslearn.kernels import functions, implementation, mask_sums, mix, pack, reference, unpack

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
PER_UNIT = pytest.mark.parametrize("per_unit", [False, True], ids=["layer", "unit"])
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


def draw(count, units, fan_in, per_unit=False, dtype=torch.float32, device="cpu"):
    """Packed masks, coefficients and two tensors of the weight's shape."""
    generator = torch.Generator().manual_seed(0)
    bits = pack(torch.rand((count, units, fan_in), generator=generator) < 0.4)
    alpha = torch.randn((count, units) if per_unit else (count,), generator=generator)
    left, right = torch.randn((2, units, fan_in), generator=generator).to(dtype)
    return tuple(tensor.to(device) for tensor in (bits, alpha, left, right))


def check_sums(sums, bits, left, right, per_unit):
    """Within float32's rounding of the sum in float64."""
    product = left.double() * right.double()
    product = product.reshape(len(product), product[0].numel())
    terms = unpack(bits, product.shape[1]) * product
    exact, size = (each.sum(2 if per_unit else (1, 2)) for each in (terms, terms.abs()))
    assert sums.dtype == torch.float32
    assert sums.shape == exact.shape
    assert ((sums.double() - exact).abs() <= 1e-6 * size).all()


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, *code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_triton
@pytest.mark.slow
def test_in_the_interpreter():
    arguments = ("-m", "pytest", "-p", "no:cacheprovider", f"{__file__}::TestInterpreted")
    assert " passed" in run(arguments, TRITON_INTERPRET="1")


@needs_triton
@pytest.mark.parametrize("weight", ["fp32", "fp16", "bf16"])
def test_compiles_for_a_gpu_that_is_not_there(weight, tmp_path, monkeypatch):
    """The interpreter knows no types and no layouts; the compiler needs no device."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from impresslearn.kernels import cuda

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pointers = {"bits": "*i16", "alpha": "*fp32"}
    pointers |= dict.fromkeys(("weight", "left", "right"), f"*{weight}")
    for kernel, out, constants in (
        (cuda._mix, f"*{weight}", {}),
        (cuda._sums, "*fp32", {"PER_UNIT": True}),
        (cuda._sums, "*fp32", {"PER_UNIT": False}),
    ):
        constants |= {"ROWS": 4, "WORDS": 32}
        types = (
            pointers | {"out": out, "mask_stride": "i64"} | dict.fromkeys(constants, "constexpr")
        )
        signature = {name: types.get(name, "i32") for name in kernel.arg_names}
        source = ASTSource(kernel, signature, constants)
        assert triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["cubin"]


CPU_ONLY = """
import sys, torch
from impresslearn.kernels import implementation, mix, pack
alpha = torch.ones(2, requires_grad=True)
mix(pack(torch.ones(2, 3, 20) > 0), alpha, torch.ones(3, 20)).sum().backward()
implementation(torch.device("meta"))
print("triton" in sys.modules, implementation(torch.device("cuda")).__name__)
"""


@needs_triton
@pytest.mark.slow
def test_tensors_on_the_cpu_load_no_triton_and_a_gpu_gets_its_kernels():
    assert run(("-c", CPU_ONLY)).split() == ["False", "impresslearn.kernels.cuda"]


@pytest.mark.slow
def test_without_triton_a_gpu_gets_the_reference():
    hidden = "import sys\nsys.modules['triton'] = None\n"
    assert run(("-c", hidden + CPU_ONLY)).split()[1] == "impresslearn.kernels.reference"


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.fixture(autouse=True)
    def _poisoned_memory(self):
        torch.use_deterministic_algorithms(True)  # torch.empty then hands out NaN
        assert torch.empty(1000).isnan().all()
        yield
        torch.use_deterministic_algorithms(False)

    @staticmethod
    def check(bits, alpha, left, right):
        from impresslearn.kernels import cuda

        inputs = bits, alpha, left, right
        copies = [tensor.clone() for tensor in inputs]
        mixed, expected = cuda.mix(bits, alpha, left), reference.mix(bits, alpha, left)
        assert (mixed.dtype, mixed.shape) == (left.dtype, left.shape)
        if left.dtype == torch.bfloat16:  # the interpreter cuts bfloat16 off, a GPU rounds it
            torch.testing.assert_close(mixed, expected, rtol=2**-7, atol=0)
        else:
            assert torch.equal(mixed, expected)
        for per_unit in (False, True):
            sums = cuda.mask_sums(bits, left, right, per_unit)
            check_sums(sums, bits, left, right, per_unit)
        assert all(map(torch.equal, inputs, copies))

    @PER_UNIT
    @pytest.mark.parametrize(
        ("count", "units", "fan_in"),
        [
            *((5, 7, fan_in) for fan_in in (1, 15, 16, 17, 31, 511, 512, 513, 784)),
            (1, 1, 1),
            (1, 37, 784),
            (100, 3, 1),
            (100, 10, 100),
            (2, 300, 17),
        ],
    )
    def test_sizes(self, count, units, fan_in, per_unit):
        self.check(*draw(count, units, fan_in, per_unit))

    @PER_UNIT
    @pytest.mark.parametrize("dtype", DTYPES[1:])
    def test_half_precision(self, dtype, per_unit):
        bits, alpha, left, right = draw(9, 11, 100, per_unit, dtype)
        self.check(bits, alpha, left, right)
        self.check(bits, alpha.to(dtype), left, right)

    @pytest.mark.parametrize("shape", [(0, 4, 20), (3, 0, 20), (3, 4, 0), (0, 0, 0)])
    def test_nothing_to_mix(self, shape):
        from impresslearn.kernels import cuda

        for per_unit in (False, True):
            bits, alpha, left, right = draw(*shape, per_unit)
            assert torch.equal(cuda.mix(bits, alpha, left), reference.mix(bits, alpha, left))
            sums = cuda.mask_sums(bits, left, right, per_unit)
            assert torch.equal(sums, torch.zeros_like(alpha))

    @each_view
    def test_views_of_a_bank(self, view):
        bits, alpha, left, right = draw(10, 6, 37, per_unit=True)
        bits = view(bits)
        self.check(bits, alpha[: len(bits)], left, right)
        self.check(bits, alpha[: len(bits), 0], left, right)  # a strided vector of coefficients

    def test_weights_and_gradients_in_any_layout(self):
        bits, alpha, left, right = draw(6, 8, 45, per_unit=True)
        image = right.reshape(8, 5, 3, 3).to(memory_format=torch.channels_last)
        self.check(bits, alpha.T.contiguous().T, left.T.contiguous().T, right)
        self.check(bits, alpha, image, left.reshape(8, 5, 3, 3))
        self.check(bits, alpha, left, torch.ones(()).expand(8, 45))

    def test_what_a_mask_leaves_out_does_not_reach_its_sum(self):
        from impresslearn.kernels import cuda

        bits = pack(torch.tensor([[[True, False]], [[False, True]]]))
        left = torch.tensor([[2.0, float("nan")]])
        sums = cuda.mask_sums(bits, left, torch.ones(1, 2), False)
        assert sums[0] == 2
        assert sums[1].isnan()

    @PER_UNIT
    def test_every_gradient(self, per_unit, monkeypatch):
        from impresslearn.kernels import cuda

        calls = []
        drawn = draw(5, 4, 45, per_unit)
        for kernels in (cuda, reference):
            monkeypatch.setattr(
                functions, "implementation", lambda device, kernels=kernels: kernels
            )
            calls.append(gradients(*drawn))
        for found, expected in zip(*calls, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def gradients(bits, alpha, left, right):
    """Both functions' values, and their first and second derivatives in every argument."""
    per_unit = alpha.dim() == 2
    alpha, left, right = (tensor.clone().requires_grad_() for tensor in (alpha, left, right))
    mixed = mix(bits, alpha, left)
    sums = mask_sums(bits, left, right, per_unit)
    first = torch.autograd.grad(
        (mixed * right.detach()).sum(), (alpha, left), create_graph=True
    ) + torch.autograd.grad((sums * alpha.detach()).sum(), (left, right), create_graph=True)
    size = sum(each.float().square().mean() for each in first)
    second = torch.autograd.grad(size, (alpha, left, right))
    return [tensor.detach() for tensor in (mixed, sums, *first, *second)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGpu:
    @PER_UNIT
    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(
        ("count", "units", "fan_in"),
        [(1, 1, 1), (5, 7, 15), (5, 7, 17), (100, 10, 100), (100, 300, 784), (3, 64, 4608)],
    )
    def test_values_and_gradients(self, count, units, fan_in, per_unit, dtype):
        drawn = draw(count, units, fan_in, per_unit, dtype)
        moved = [tensor.cuda() for tensor in drawn]
        found = gradients(*moved)
        part = 1e-4 if dtype == torch.float32 else 0.02
        for ours, theirs in zip(found, gradients(*drawn), strict=True):
            largest = float(theirs.abs().max())
            torch.testing.assert_close(ours.cpu(), theirs, rtol=part, atol=part * largest)
        bits, alpha, left, right = moved
        assert torch.equal(found[0], reference.mix(bits, alpha, left))
        check_sums(found[1], bits, left, right, per_unit)
        for again, once in zip(gradients(*moved), found, strict=True):
            assert torch.equal(again, once)

    @each_view
    def test_views_of_a_bank(self, view):
        bits, alpha, left, right = draw(10, 6, 37, per_unit=True, device="cuda")
        bits = view(bits)
        alpha = alpha[: len(bits)]
        assert torch.equal(mix(bits, alpha, left), reference.mix(bits, alpha, left))
        check_sums(mask_sums(bits, left, right), bits, left, right, False)

    @needs_triton
    def test_triton_serves_it(self):
        assert implementation(torch.device("cuda")).__name__.endswith(".cuda")

    def test_masks_further_apart_than_32_bits_count(self):
        if torch.cuda.mem_get_info()[0] < 2**33:
            pytest.skip("needs 8 GB of free GPU memory")
        bits, alpha, left, right = draw(3, 4, 20, device="cuda")
        room = torch.empty(2**32 + 2**31, dtype=torch.uint8, device="cuda")
        far = room.as_strided(bits.shape, (2**31 + 2, bits.shape[2], 1)).copy_(bits)
        assert torch.equal(mix(far, alpha, left), reference.mix(bits, alpha, left))
        check_sums(mask_sums(far, left, right), bits, left, right, False)
